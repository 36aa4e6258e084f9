"""Spark's own Bloom filter, bit for bit: Spark reads what is written here, and the other way."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, NoReturn

import bloomery._native as _native
from bloomery import errors
from bloomery.sizing.limits import check_sizes, show
from bloomery.storage import memory
from bloomery.suggestions import OtherNames, constructor, known_keywords

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from bloomery.types import Batch, Nulls

# Big-endian: version, k, in version 2 the seed, the number of words; then the words, 64 bits each.
_HEADS = {1: struct.Struct(">iii"), 2: struct.Struct(">iiii")}
_MOST_WORDS = 2**31 - 1
# Spark itself never chooses more than some thirty; each of them takes time with every key.
_MOST_HASHES = 65_536


class SparkBloomFilter(_native.SparkBits, OtherNames):
    """The filter that Spark's `df.stat.bloomFilter` makes, and its `BloomFilter.readFrom` reads.

    >>> seen = SparkBloomFilter(capacity=1000, error_rate=0.01)
    >>> seen.add(42)
    True
    >>> SparkBloomFilter.from_bytes(seen.to_bytes()).contains(42)
    True

    Keys are what Spark puts in: ints of 64 signed bits, str (its UTF-8) and bytes. Version 2 is
    what Spark makes since 4.1; those before know version 1 alone, which errs more often than it
    was asked to beyond some ten million keys, since it finds its bits by 32-bit numbers.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # it changes, and compares by its bits

    @known_keywords
    def __new__(
        cls, capacity: int, error_rate: float | str = 0.01, *, version: int = 2, seed: int = 0
    ) -> Self:
        """Make an empty filter, of the size that Spark would give it."""
        capacity, rate = check_sizes(capacity, error_rate)
        if version not in _HEADS:
            raise errors.InvalidParameter(f"version must be 1 or 2, not {show(version)}")
        if not -(2**31) <= seed < 2**31 or (version == 1 and seed):
            raise errors.InvalidParameter(
                f"seed must be a 32-bit int, and 0 in version 1, not {show(seed)}"
            )
        # As Spark does, in its order, so that rounding is the same.
        bits = int(-capacity * math.log(rate) / (math.log(2) * math.log(2)))
        hashes = max(1, math.floor(bits / capacity * math.log(2) + 0.5))
        words = max(1, math.ceil(bits / 64))
        if words > _MOST_WORDS:
            raise errors.InvalidParameter(
                f"capacity {capacity:,} at error_rate {rate:g} needs {words:,} words of 64 bits; "
                f"Spark's filters have at most {_MOST_WORDS:,}: use a BloomFilter of ours"
            )
        memory.check(8 * words)
        return _native.SparkBits.__new__(cls, version, hashes, seed, words)

    @constructor
    def from_bytes(cls, data: Buffer) -> Self:
        """Make the filter that Spark's `writeTo` or our `to_bytes` gave; CorruptData if the bytes
        are not that."""
        view = memoryview(data).cast("B")
        version = int.from_bytes(view[:4], "big", signed=True)
        head = _HEADS.get(version)
        if len(view) >= 4 and head is None:
            raise errors.UnsupportedVersion(
                f"version {version} of Spark's filter, and 1 and 2 are known: if Spark did not "
                "write these bytes, read them with bloomery.open or BloomFilter.from_bytes"
            )
        if head is None or len(view) < head.size:
            _corrupt(f"{len(view)} bytes are too few for a header: was the file cut off?")
        _, hashes, *seed, words = head.unpack(view[: head.size])
        if not 1 <= hashes <= _MOST_HASHES:
            _corrupt(f"the number of hashes is {hashes}, and 1 to {_MOST_HASHES:,} are possible")
        if words < 1 or len(view) - head.size != 8 * words:
            _corrupt(
                f"the header says {words} words of 8 bytes, and {len(view) - head.size} bytes "
                "follow: was the file cut off?"
            )
        memory.check(8 * words)
        body = bytes(view[head.size :])
        return _native.SparkBits.__new__(cls, version, hashes, sum(seed), words, body)

    def to_bytes(self) -> bytes:
        """Return the filter as Spark writes it."""
        seed = [self.seed] if self.version == 2 else []
        words = self.num_bits // 64
        head = _HEADS[self.version].pack(self.version, self.num_hashes, *seed, words)
        return head + self._words()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the bytes."""
        return type(self).from_bytes, (self.to_bytes(),)

    def update(self, keys: Batch, *, nulls: Nulls = "error") -> None:
        """Add every key of a batch or column."""
        self.add_many(keys, nulls=nulls)

    def __ior__(self, other: object) -> Self:
        """Add every key of the other filter."""
        if not isinstance(other, SparkBloomFilter) or not self._merge(other):
            raise errors.IncompatibleFilters(
                f"a union of {self!r} with {other!r} cannot be made: both must have the same "
                "version, seed, number of bits and of hashes"
            )
        return self

    def __eq__(self, other: object) -> bool:
        """True if both are the same bytes to Spark."""
        if not isinstance(other, SparkBloomFilter):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    @property
    def nbytes(self) -> int:
        """Bytes of its bits."""
        return self.num_bits // 8

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set."""
        return self._bits_set() / self.num_bits

    @property
    def estimated_error_rate(self) -> float:
        """The share of absent keys answered with a maybe, as the bits stand now; Spark's
        `expectedFpp`."""
        rate: float = self.fill_ratio**self.num_hashes
        return rate

    def __repr__(self) -> str:
        """Show what it is made of."""
        return (
            f"<{type(self).__name__}: version {self.version}, {self.num_bits:,} bits, "
            f"{self.num_hashes} hashes>"
        )


def _corrupt(problem: str) -> NoReturn:
    raise errors.CorruptData(f"not a filter that Spark wrote: {problem}")
