"""From what a user asks for to the configuration of a filter in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from bloomery import _native, sizing
from bloomery.errors import InvalidParameter
from bloomery.filters.hashers import check_hasher
from bloomery.integrations.redis.config import Config

if TYPE_CHECKING:
    from bloomery.types import Hasher, Layout

__all__ = ["LONGEST_STRING", "planned", "shards_for"]

LONGEST_STRING = (1 << 29) - 64  # bytes: what Redis takes, with one behind the last line


def planned(
    capacity: int,
    error_rate: float,
    layout: Layout,
    hasher: Hasher,
    seed: int,
    shards: int | Literal["auto"],
) -> Config:
    """The configuration of a filter of this size."""
    plan = sizing.plan(capacity, error_rate, layout=layout)
    seed = check_hasher(hasher, seed)
    count = shards_for(plan.nbytes, shards)
    header = _native.make_header(
        "bloom",
        plan.capacity,
        plan.error_rate,
        hasher,
        seed,
        layout=1 if plan.layout == "blocked" else 2,
        lines_per_key=plan.lines_per_key,
        num_hashes=plan.num_hashes,
        num_bits=plan.num_bits,
        nbytes=plan.nbytes,
    )
    return Config("bloom", header, count)


def shards_for(nbytes: int, shards: int | Literal["auto"]) -> int:
    """How many strings so many bytes lie in."""
    needed = -(-nbytes // LONGEST_STRING)
    count: Any = needed if shards == "auto" else shards
    lines = nbytes // 64
    most = min(lines, 16_384)
    if not isinstance(count, int) or isinstance(count, bool) or not needed <= count <= most:
        raise InvalidParameter(
            f"shards is {shards!r}, must be 'auto' or in the range [{needed}, {most}] for "
            f"{nbytes:,} bytes"
        )
    # Four lines on three shards are two on each, so two shards.
    return -(-lines // -(-lines // count))
