"""The ways to use a filter in Redis that are measured, all with the same few calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bloomery import sizing
from bloomery.integrations import redis as integration

ERROR_RATE = 0.01
MUST = "blocked"


@dataclass(frozen=True)
class Way:
    """One filter, and how it is called."""

    name: str
    add: Callable[[str], object]
    add_many: Callable[[list[str]], Any]
    contains_many: Callable[[list[str]], Any]
    num_hashes: int
    nbytes: int


@contextlib.contextmanager
def ways(url: str, capacity: int) -> Iterator[list[Way]]:
    """All of them, each with a filter of its own."""
    with contextlib.ExitStack() as ends:
        made = [_plain(ends, url, MUST, capacity)]
        made.append(_plain(ends, url, "classic", capacity, layout="classic"))
        made.append(_plain(ends, url, "4 shards", capacity, shards=4))
        made.append(_asyncio(ends, url, capacity))
        one = integration.RedisCountingFilter.create(url, "counting", capacity, ERROR_RATE)
        ends.callback(one.close)
        made.append(_way("counting", one, sizing.counting_plan(capacity, ERROR_RATE).num_hashes))
        yield made


def _way(name: str, one: Any, num_hashes: int) -> Way:
    return Way(name, one.add, one.add_many, one.contains_many, num_hashes, one.nbytes)


def _plain(ends: contextlib.ExitStack, url: str, name: str, capacity: int, **options: Any) -> Way:
    one = integration.RedisFilter.create(url, name, capacity, ERROR_RATE, **options)
    ends.callback(one.close)
    return _way(name, one, one.num_hashes)


def _asyncio(ends: contextlib.ExitStack, url: str, capacity: int) -> Way:
    loop = asyncio.new_event_loop()
    ends.callback(loop.close)
    run = loop.run_until_complete
    one = run(integration.AsyncRedisFilter.create(url, "asyncio", capacity, ERROR_RATE))
    ends.callback(lambda: run(one.close()))
    about = run(one.info())
    return Way(
        "asyncio",
        lambda key: run(one.add(key)),
        lambda keys: run(one.add_many(keys)),
        lambda keys: run(one.contains_many(keys)),
        about["num_hashes"],
        about["nbytes"],
    )
