"""The header of a filter in Redis: what it was made with, and from that how full it is."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bloomery import _native, sizing
from bloomery.filters.hashers import shown_seed

if TYPE_CHECKING:
    from bloomery.types import Hasher, Layout


@dataclass(frozen=True)
class PlainHeader:
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
    def of(cls, header: bytes) -> PlainHeader:
        """Read the fields of a header."""
        return cls(*_native.parse_header(header, None)[:8])

    @property
    def nbytes(self) -> int:
        """How long the strings are together."""
        return -(-self.num_bits // 512) * 64


@dataclass(frozen=True)
class CountingHeader:
    """What the header of a counting filter says (docs/format.md)."""

    capacity: int
    error_rate: float
    counter_bits: int

    @classmethod
    def of(cls, header: bytes) -> CountingHeader:
        """Read the fields of a header."""
        capacity, error_rate = struct.unpack_from("<Qd", header, 24)
        [counter_bits] = struct.unpack_from("<Q", header, 64)
        return cls(capacity, error_rate, counter_bits)


def plain_info(header: bytes, kind: str, shards: int, bits_set: int) -> dict[str, Any]:
    """Return what `BloomFilter.info()` does, from the number of bits that are set.

    A local filter looks into each line for its error rate; here it is what so many keys make of
    such a filter.
    """
    plain = PlainHeader.of(header)
    shape = plain.layout, plain.num_bits, plain.num_hashes, plain.lines_per_key
    count = sizing.estimated_count(*shape, bits_set)
    rate = sizing.expected_error_rate(*shape, count) if bits_set else 0.0
    error = sizing.count_error(*shape, plain.capacity)
    return {
        "kind": kind,
        **asdict(plain),
        "seed": shown_seed(plain),
        "shards": shards,
        "nbytes": plain.nbytes,
        "bits_per_key": plain.num_bits / plain.capacity,
        "fill_ratio": bits_set / plain.num_bits,
        "estimated_count": round(count),
        "estimated_error_rate": rate,
        "saturated": sizing.is_beyond(count, plain.capacity, error) and rate > plain.error_rate,
    }
