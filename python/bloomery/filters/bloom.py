"""The plain Bloom filter. Adding, asking and batches are native (`_native.Bloom`); here is the rest
of what a filter can do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, ClassVar

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.hashers import HashedFilter, check_hasher, shown_seed
from bloomery.storage import memory
from bloomery.suggestions import OtherNames, constructor, known_keywords

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from bloomery.types import Batch, Hasher, Layout, Nulls

# A fold that errs a little too often is tried again this much larger.
_FOLD_STEP = 1.03


class BloomFilter(HashedFilter, _native.Bloom, OtherNames):
    """Have I seen this key before? `key in filter` is False: definitely not; True: maybe.

    >>> seen = BloomFilter(capacity=1_000_000, error_rate=0.01)
    >>> seen.add("https://example.org/")
    True
    >>> "https://example.org/" in seen
    True

    A *maybe* for a key that was never added comes up with at most `error_rate` probability while no
    more than `capacity` distinct keys were added. Adding more loses no key; the rate climbs.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # filters change and compare by their bits

    kind: ClassVar[str] = "bloom"
    _SHAPE = ("layout", "num_bits", "num_hashes", "lines_per_key", "hasher", "seed")
    _ALIKE = "the same capacity, error_rate, layout, hasher and seed"

    @known_keywords
    def __new__(
        cls,
        capacity: int,
        error_rate: float | str = 0.01,
        *,
        layout: Layout = "blocked",
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty filter for `capacity` distinct keys. An `error_rate` may also be "1%"."""
        return cls._planned(sizing.plan(capacity, error_rate, layout=layout), hasher, seed)

    @constructor
    @known_keywords
    def with_shape(
        cls,
        num_bits: int,
        num_hashes: int,
        layout: Layout = "classic",
        *,
        lines_per_key: int | None = None,
        capacity: int | None = None,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty filter of so many bits, m, of which a key sets so many, k.

        For those who bring m and k. Its `capacity`, unless it is given too, is the number of keys
        for which that k is the textbook's choice, ln 2 * m / k, and its `error_rate` what that many
        keys make. Blocked, its bits are in whole lines: m is rounded up to a multiple of 512, and a
        key has its bits in one or two of them, as suits k, or as `lines_per_key` says.
        """
        plan = sizing.shape_plan(
            num_bits, num_hashes, layout=layout, lines_per_key=lines_per_key, capacity=capacity
        )
        return cls._planned(plan, hasher, seed)

    @classmethod
    def _planned(cls, plan: sizing.Plan, hasher: Hasher, seed: int) -> Self:
        seed = check_hasher(hasher, seed)
        memory.check(plan.nbytes)
        return cls._with(
            plan.capacity,
            plan.error_rate,
            plan.layout,
            plan.num_bits,
            plan.num_hashes,
            plan.lines_per_key,
            hasher,
            seed,
        )

    @classmethod
    def _with(cls, *parts: Any) -> Self:
        """Make one from the native class's own arguments."""
        return _native.Bloom.__new__(cls, *parts)

    @classmethod
    def _open(
        cls,
        head: bytes,
        body: _native.Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
    ) -> Self:
        """Make one from its head and its bits. `writable` is for other kinds: here the buffer says
        it."""
        *parts, _ = _native.parse_header(head, None)
        filter = cls._with(*parts, body, offset)
        if not filter._padding_is_clear():
            raise errors.CorruptData("bits are set in the padding behind the last bit")
        return filter

    @constructor
    @known_keywords
    def from_keys(
        cls,
        keys: Batch,
        error_rate: float | str = 0.01,
        *,
        layout: Layout = "blocked",
        hasher: Hasher = "xxh3",
        seed: int = 0,
        nulls: Nulls = "error",
    ) -> Self:
        """Make a filter that holds these keys, sized for as many; an iterator is listed first."""
        if isinstance(keys, Sized):
            capacity = len(keys)
        elif hasattr(keys, "__arrow_c_stream__"):
            raise errors.UnsupportedBatch(
                f"{type(keys).__name__} is a stream of unknown length: make a BloomFilter with a "
                "capacity and update it, or read the stream into a column first"
            )
        else:
            _native.column_objects(keys)  # which says what to pass in place of a LazyFrame, say
            if not isinstance(keys, Iterable):
                raise errors.UnsupportedBatch(
                    f"{type(keys).__name__} is not a batch of keys: pass a list or other iterable"
                )
            keys = list(keys)
            capacity = len(keys)
        filter = cls(max(1, capacity), error_rate, layout=layout, hasher=hasher, seed=seed)
        filter.update(keys, nulls=nulls)
        return filter

    # How full it is. Each of these reads all of the bits.

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set."""
        return self._fill()[0] / self.num_bits

    @property
    def estimated_count(self) -> int:
        """How many distinct keys were added, estimated from the fill."""
        return self._count(self._fill()[0])

    def _count(self, bits_set: int) -> int:
        return round(sizing.estimated_count(*self._sizes(), bits_set))

    def _sizes(self) -> tuple[Layout, int, int, int]:
        return self.layout, self.num_bits, self.num_hashes, self.lines_per_key

    def _count_error(self) -> float:
        """Return the standard error of `estimated_count` when it is as full as it is made for."""
        return sizing.count_error(*self._sizes(), self.capacity)

    @property
    def estimated_error_rate(self) -> float:
        """The share of absent keys answered with a maybe, as the bits stand now; of a blocked
        filter from the fill of each line (`Bits::fill` in crates/core/src/bits.rs)."""
        return self._fill()[1]

    @property
    def saturated(self) -> bool:
        """True once it holds more keys than its capacity, by more than their estimate may be off,
        and errs more often than was asked."""
        return self._saturated(*self._fill())

    def _saturated(self, bits_set: int, rate: float) -> bool:
        shape = self._sizes()
        count = sizing.estimated_count(*shape, bits_set)
        if not sizing.is_beyond(count, self.capacity, self._count_error()):
            return False
        # As the bits stand, or as so many keys make them on average: whichever is worse.
        return max(rate, sizing.expected_error_rate(*shape, count)) > self.error_rate

    def info(self) -> dict[str, Any]:
        """All that is known about the filter, ready for JSON."""
        bits_set, rate = self._fill()
        count = self._count(bits_set)
        return {
            "kind": self.kind,
            "capacity": self.capacity,
            "error_rate": self.error_rate,
            "layout": self.layout,
            "hasher": self.hasher,
            "seed": shown_seed(self),
            "num_bits": self.num_bits,
            "num_hashes": self.num_hashes,
            "lines_per_key": self.lines_per_key,
            "nbytes": self.nbytes,
            "bits_per_key": self.num_bits / self.capacity,
            "fill_ratio": bits_set / self.num_bits,
            "estimated_count": count,
            "estimated_error_rate": rate,
            "saturated": self._saturated(bits_set, rate),
            "read_only": self.read_only,
        }

    def _repr_fields(self) -> dict[str, tuple[object, object]]:
        return {"layout": (self.layout, "blocked"), **super()._repr_fields()}

    # Filters together.

    def _check_compatible(self, other: object, operation: str) -> _native.Bloom:
        if not isinstance(other, BloomFilter):
            raise errors.IncompatibleFilters(
                f"{operation} takes another BloomFilter, not {type(other).__name__}"
            )
        self._check_shape(other, operation)
        return other

    def __ior__(self, other: object) -> Self:
        """Add every key of the other filter."""
        self._or(self._check_compatible(other, "a union"))
        return self

    def __iand__(self, other: object) -> Self:
        """Keep only what the other filter may hold too."""
        self._and(self._check_compatible(other, "an intersection"))
        return self

    def __eq__(self, other: object) -> bool:
        """True if both give the same answer for every key: same shape, same bits."""
        if not isinstance(other, BloomFilter):
            return NotImplemented
        if any(getattr(self, name) != getattr(other, name) for name in self._SHAPE):
            return False
        return self._is_subset(other) and other._is_subset(self)

    def __le__(self, other: object) -> bool:
        """True if every maybe of this filter is a maybe of the other."""
        if not isinstance(other, BloomFilter):
            return NotImplemented
        return self._is_subset(self._check_compatible(other, "a comparison"))

    def _parts(self) -> tuple[Any, ...]:
        return (
            self.capacity,
            self.error_rate,
            self.layout,
            self.num_bits,
            self.num_hashes,
            self.lines_per_key,
            self.hasher,
            self.seed,
        )

    def copy(self) -> Self:
        """Return a filter with the same keys, in memory of its own."""
        memory.check(self.nbytes)
        copy = self._with(*self._parts())
        copy._or(self)
        return copy

    def fold(self) -> Self:
        """Return a filter with the same keys in the fewest bits that keep the error rate.

        For a filter that was made larger than it turned out to need. No key is lost. Where the new
        size does not divide the old one, the two lines a boundary runs through share their keys, so
        `estimated_count` comes out higher, at most by the ratio of new size to old.
        """
        for num_bits in _smaller_sizes(self):
            shape = (num_bits, self.num_hashes, self.lines_per_key)
            capacity = max(1, sizing.capacity_for(*shape, self.error_rate, self.layout))
            parts = (capacity, self.error_rate, self.layout, *shape, self.hasher, self.seed)
            folded = self._with(*parts)
            folded._fold_from(self)
            if folded.estimated_error_rate <= self.error_rate:
                return folded
        return self.copy()

    # Bytes.

    def _sections(self) -> list[Buffer]:
        return [self]

    def _changes(self) -> int:
        return 0  # a bit that is set meanwhile does no harm to those that are saved

    def to_bytes(self) -> bytes:
        """Return the filter as bytes, checksummed; what `save` would write."""
        body = bytes(memoryview(self))
        return self._header(_native.checksum(body)) + body


def _smaller_sizes(filter: BloomFilter) -> Iterator[int]:
    """Yield the sizes in bits to try to fold a filter to, the smallest first."""
    unit = 1 if filter.layout == "classic" else sizing.LINE_BITS
    old = filter.num_bits // unit
    need = _places_needed(filter, max(1, filter.estimated_count), unit, old)
    # Memory comes in lines: fewer bits than one holds save nothing, and a classic filter of a few
    # dozen bits has too few places for its probes to be independent.
    need = max(need, sizing.LINE_BITS // unit)
    if need >= old:
        return
    # A size that divides the old one folds exactly; another lets each new place share a boundary
    # with its neighbour, which costs the load of one old place more: new = need * (1 + new / old).
    # From 64 parts on that is so little that the size needed may do as it is.
    sizes = {old // by for by in range(2, min(old // need, 64) + 1) if old % by == 0}
    if need * 64 <= old:
        sizes.add(need)
    shared = need / (1 - need / old)
    while shared < old - 1:
        sizes.add(int(shared) + 1)
        shared = max(shared * _FOLD_STEP, shared + 1)
    for size in sorted(sizes):
        yield size * unit


def _places_needed(filter: BloomFilter, count: int, unit: int, most: int) -> int:
    """Return the fewest lines (classic: bits) that hold `count` keys within the error rate."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        shape = (middle * unit, filter.num_hashes, filter.lines_per_key)
        if sizing.capacity_for(*shape, filter.error_rate, filter.layout) >= count:
            high = middle
        else:
            low = middle + 1
    return low
