"""What the header of a filter in Redis says, and how full it is."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from bloomery import _native, sizing

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Config
    from bloomery.types import Hasher, Layout

__all__ = ["Counting", "Settings", "figures"]


class Settings(NamedTuple):
    """What the header of a plain filter says."""

    capacity: int
    error_rate: float
    layout: Layout
    num_bits: int
    num_hashes: int
    lines_per_key: int
    hasher: Hasher
    seed: int

    @classmethod
    def of(cls, config: Config) -> Settings:
        """Read them."""
        return cls(*_native.parse_header(config.header, None)[:8])

    @property
    def nbytes(self) -> int:
        """How long the strings are together."""
        return -(-self.num_bits // 512) * 64


class Counting(NamedTuple):
    """What the header of a counting filter says (docs/format.md)."""

    capacity: int
    error_rate: float
    counter_bits: int

    @classmethod
    def of(cls, header: bytes) -> Counting:
        """Read it."""
        capacity, error_rate = struct.unpack_from("<Qd", header, 24)
        [counter_bits] = struct.unpack_from("<Q", header, 64)
        return cls(capacity, error_rate, counter_bits)


def figures(config: Config, bits_set: int) -> dict[str, Any]:
    """All of it, as `BloomFilter.info()` has it, from the number of bits that are set.

    A local filter looks into each line for its error rate; here it is what so many keys make of
    such a filter.
    """
    found = Settings.of(config)
    shape = found.layout, found.num_bits, found.num_hashes, found.lines_per_key
    count = sizing.estimated_count(*shape, bits_set)
    rate = sizing.expected_error_rate(*shape, count) if bits_set else 0.0
    error = sizing.count_error(*shape, found.capacity)
    return {
        "kind": config.kind,
        **found._asdict(),
        "seed": "secret" if found.hasher == "siphash" else found.seed,
        "shards": config.shards,
        "nbytes": found.nbytes,
        "bits_per_key": found.num_bits / found.capacity,
        "fill_ratio": bits_set / found.num_bits,
        "estimated_count": round(count),
        "estimated_error_rate": rate,
        "saturated": sizing.is_beyond(count, found.capacity, error) and rate > found.error_rate,
    }
