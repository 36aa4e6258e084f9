"""Rotating filters in Redis: planned, created and opened."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from bloomery import sizing
from bloomery.errors import InvalidParameter
from bloomery.filters.rotating import parse_window
from bloomery.integrations.redis.bits.generations import Generations
from bloomery.integrations.redis.bits.strings import create, open_config
from bloomery.integrations.redis.config import LONGEST_STRING, MAX_GENERATIONS, Config, planned
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys
    from bloomery.types import Hasher, Layout

__all__ = ["create_rotating", "open_rotating", "planned_rotating"]


def planned_rotating(
    capacity: int,
    error_rate: float | str,
    window: str | float | timedelta,
    generations: int,
    per_generation: int | None,
    layout: Layout,
    hasher: Hasher,
    seed: int,
) -> Config:
    """Return the configuration. A wrong maybe of any generation is one of the filter, so each has a
    share of the error rate."""
    if window is None:
        raise InvalidParameter("window is None, must be a time: a filter in Redis rotates by that")
    seconds = parse_window(window)
    if type(generations) is not int or not 1 <= generations <= MAX_GENERATIONS:
        raise InvalidParameter(
            f"generations is {sizing.show(generations)}, must be an int from 1 to {MAX_GENERATIONS}"
        )
    most, whole = sizing.check_sizes(capacity, error_rate)
    rate = whole / (generations + 1)
    each = most if per_generation is None else sizing.check_capacity(per_generation)
    nbytes = sizing.plan(min(each, most), rate, layout=layout).nbytes
    if nbytes > LONGEST_STRING:
        raise InvalidParameter(
            f"{min(each, most):,} keys of one generation need {nbytes:,} bytes, and a string of "
            f"Redis has {LONGEST_STRING:,} at most: take a smaller capacity or per_generation"
        )
    config = planned(min(each, most), rate, layout, hasher, seed, 1)
    return replace(config, kind="rotating", window=seconds, generations=generations, capacity=most)


def create_rotating(keys: Keys, config: Config, ttl: float | None) -> Flow[Generations]:
    """Create a rotating filter, or open it if there is just such a one."""
    stored = yield from create(keys, config, ttl)
    generations = Generations(keys, stored)
    if not stored.made:
        # From now on a hash that is not there was lost, and nobody makes another.
        yield from generations.prepare()
        settled = stored.settled().to_json()
        checked((yield [command(keys.config, "SET", keys.config, settled, "XX", "KEEPTTL")])[0])
    return generations


def open_rotating(keys: Keys) -> Flow[Generations]:
    """Open a rotating filter; UnknownFilter if there is none."""
    return Generations(keys, (yield from open_config(keys)))
