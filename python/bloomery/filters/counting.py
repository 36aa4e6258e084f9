"""The counting Bloom filter: keys can be added more than once, and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bloomery import sizing
from bloomery.filters.filter import RemovingFilter
from bloomery.suggestions import constructor, known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Hasher, Key


class CountingBloomFilter(RemovingFilter):
    """A Bloom filter with counters in place of bits: keys can be removed, and counted.

    >>> seen = CountingBloomFilter(capacity=1_000_000, error_rate=0.01)
    >>> seen.add("alice"), seen.add("alice"), seen.count("alice")
    (True, False, 2)
    >>> seen.remove("alice"), "alice" in seen
    (True, True)

    A counter of 4 bits counts to 15, one of 8 bits to 255. One that got there stays there for ever,
    since it no longer knows for how many keys it stands: such a key may never be gone.

    `|` adds the counts of both filters up, `&` takes the lesser.
    """

    __slots__ = ()
    kind = "counting"
    _SHAPE = (*RemovingFilter._SHAPE, "counter_bits")

    @known_keywords
    def __new__(
        cls,
        capacity: int,
        error_rate: float | str = 0.01,
        *,
        counter_bits: int = 4,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty filter for `capacity` distinct keys."""
        plan = sizing.counting_plan(capacity, error_rate, counter_bits=counter_bits)
        return cls._make_cells(plan, hasher, seed, sizing.LINE_BITS // plan.line_cells)

    @constructor
    @known_keywords
    def with_shape(
        cls,
        num_bits: int,
        num_hashes: int,
        *,
        counter_bits: int = 4,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty filter of so many bits, of which a key has so many counters, k.

        `num_bits` are those of all counters: m counters take `m * counter_bits`, rounded up to a
        multiple of 512. Capacity and error rate follow as for `BloomFilter.with_shape`.
        """
        plan = sizing.counting_shape_plan(num_bits, num_hashes, counter_bits=counter_bits)
        return cls._make_cells(plan, hasher, seed, sizing.LINE_BITS // plan.line_cells)

    @property
    def counter_bits(self) -> int:
        """Bits of a counter: 4 or 8."""
        return self._extra[0]

    def positions(self, key: Key) -> list[int]:
        """Where the key's counters are: `num_hashes` numbers, of which some may be equal."""
        return self._positions(key)

    def count(self, key: Key) -> int:
        """How often the key was added: never less, but for keys added more often than a counter can
        count (15 or 255), and while nothing was removed that was not there."""
        return self._count(key)

    def _count_error(self) -> float:
        shape = (
            self.num_bits,
            self.num_hashes,
            self.lines_per_key,
            sizing.LINE_BITS // self.counter_bits,
        )
        return sizing.cell_count_error(*shape, self.capacity)

    def _repr_fields(self) -> dict[str, tuple[object, object]]:
        return {"counter_bits": (self.counter_bits, 4), **super()._repr_fields()}
