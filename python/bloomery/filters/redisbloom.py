"""RedisBloom's own two filters, bit for bit: what a server that takes its place keeps behind BF and
CF. Keys are bytes, as they come over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import bloomery._native as _native
from bloomery import errors
from bloomery.filters.saved import SavedFilter
from bloomery.sizing.limits import number, show
from bloomery.storage import memory
from bloomery.suggestions import OtherNames, constructor, known_keywords

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

MOST_EXPANSION = 32768
_MOST_BYTES = 2**64 - 1


def _within(name: str, value: object, least: int, most: int) -> int:
    """Return a whole number that is in its range; raise if it is not."""
    amount = number(value)
    if amount is not None and least <= amount <= most and amount == int(amount):
        return int(amount)
    raise errors.InvalidParameter(
        f"{name} must be a whole number from {least:,} to {most:,}, not {show(value)}"
    )


class RedisModuleFilter(SavedFilter):
    """The base of RedisBloom's two structures: how they are made, saved and merged."""

    __slots__ = ()
    _NATIVE: ClassVar[Any]  # the native half

    if TYPE_CHECKING:  # the native half's

        @property
        def capacity(self) -> int: ...
        @property
        def error_rate(self) -> float: ...
        @property
        def estimated_count(self) -> int: ...
        @property
        def num_layers(self) -> int: ...
        @property
        def redis_size(self) -> int: ...
        def _chunk(self, iterator: int) -> tuple[int, bytes]: ...
        def _check_chunk(self, iterator: int, nbytes: int) -> None: ...
        def _load_chunk(self, iterator: int, data: bytes) -> None: ...
        def _clear(self) -> None: ...
        def _facts(self) -> dict[str, float]: ...
        @staticmethod
        def _planned(dump: bytes) -> int: ...

    @classmethod
    def _open(
        cls,
        head: bytes,
        body: _native.Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
    ) -> Self:
        filter: Self = cls._NATIVE.__new__(cls, head, body, offset, writable)
        return filter

    @classmethod
    def planned_nbytes(cls, header: bytes) -> int:
        """Return how many bytes the filter of a dump's header will have, without allocating them;
        CorruptData as from `from_dump`."""
        return cls._planned(header)

    @constructor
    def from_dump(cls, header: bytes, most: int = _MOST_BYTES) -> Self:
        """Make the filter that a dump's header describes, to be filled by `load_chunk`.

        CorruptData, in RedisBloom's words, if it is none; NotEnoughMemory if it would have more
        than `most` bytes, or more than are free.
        """
        memory.check(min(cls.planned_nbytes(header), most))
        filter: Self = cls._NATIVE.__new__(cls, header, most=most)
        return filter

    def chunk(self, iterator: int) -> tuple[int, bytes]:
        """Return the part of a dump at an iterator, 0 at first, and the one that comes next; 0 and
        nothing at the end. With each part `load_chunk` takes the iterator that came with it."""
        return self._chunk(iterator)

    def load_chunk(self, iterator: int, data: bytes) -> None:
        """Take a part of a dump; CorruptData, in RedisBloom's words, if it does not fit."""
        self._load_chunk(iterator, data)

    def clear(self) -> None:
        """Forget every key: as it was when it was made."""
        self._clear()

    def _check_compatible(self, other: object, operation: str) -> RedisModuleFilter:
        raise errors.IncompatibleFilters(
            f"{operation} with a {type(self).__name__} cannot be made: add the keys to one filter"
        )

    def info(self) -> dict[str, Any]:
        """All that is known about the filter, ready for JSON."""
        facts: dict[str, Any] = self._facts()
        nbytes = self.nbytes
        return {
            "kind": self.kind,
            "capacity": self.capacity,
            "error_rate": self.error_rate,
            "nbytes": nbytes,
            "bits_per_key": 8 * nbytes / max(1, facts["estimated_count"]),
            **facts,
            "num_layers": self.num_layers,
            "redis_size": self.redis_size,
            "read_only": self.read_only,
        }

    def __repr__(self) -> str:
        """Show its kind and how full it is."""
        return (
            f"<{type(self).__name__}: {self.estimated_count:,} keys in {self.num_layers} layers, "
            f"{self.nbytes:,} bytes>"
        )


class RedisBloomFilter(RedisModuleFilter, _native.Chain, OtherNames):
    """The filter behind BF: layers of Bloom filters, each `expansion` times larger than the last.

    It is not to grow if `expansion` is 0, or `nonscaling` True; the header of such a filter keeps
    the expansion all the same, as RedisBloom's does. Error rates above 0.25 become 0.25.
    """

    __slots__ = ()
    kind = "redisbloom"
    _NATIVE = _native.Chain

    @known_keywords
    def __new__(
        cls,
        error_rate: float = 0.01,
        capacity: int = 100,
        expansion: int = 2,
        nonscaling: bool = False,
    ) -> Self:
        """Make an empty filter."""
        rate = number(error_rate)
        if rate is None or not 0 < rate < 1:
            raise errors.InvalidParameter(
                f"error_rate must be a number between 0 and 1, not {show(error_rate)}"
            )
        capacity = _within("capacity", capacity, 1, 2**48)
        expansion = _within("expansion", expansion, 0, MOST_EXPANSION)
        return cls.from_dump(cls._plan(rate, capacity, expansion, bool(nonscaling)))

    def layers(self) -> list[dict[str, float]]:
        """The numbers of each layer, the oldest first."""
        names = ("num_bits", "num_hashes", "capacity", "keys", "error_rate")
        return [dict(zip(names, layer, strict=True)) for layer in self._layers()]

    def info(self) -> dict[str, Any]:
        """All that is known about the filter, ready for JSON."""
        return {**super().info(), "expansion": self.expansion}


class RedisCuckooFilter(RedisModuleFilter, _native.Cuckoo, OtherNames):
    """The filter behind CF: fingerprints of 8 bits in buckets, from which keys can be removed.

    A key that is added twice is there twice. It is not to grow if `expansion` is 0; else each layer
    has that many times more buckets than the last, rounded up to a power of two.
    """

    __slots__ = ()
    kind = "rediscuckoo"
    _NATIVE = _native.Cuckoo

    @known_keywords
    def __new__(
        cls,
        capacity: int = 1024,
        bucket_size: int = 2,
        max_iterations: int = 20,
        expansion: int = 1,
    ) -> Self:
        """Make an empty filter."""
        bucket_size = _within("bucket_size", bucket_size, 1, 255)
        max_iterations = _within("max_iterations", max_iterations, 1, 65535)
        expansion = _within("expansion", expansion, 0, MOST_EXPANSION)
        capacity = _within("capacity", capacity, 1, 2**44)
        return cls.from_dump(cls._plan(capacity, bucket_size, max_iterations, expansion))

    def remove(self, key: bytes) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there."""
        if not self.discard(key):
            raise KeyError(key)
        return True

    def info(self) -> dict[str, Any]:
        """All that is known about the filter, ready for JSON."""
        own = ("num_buckets", "num_removed", "bucket_size", "expansion", "max_iterations")
        return {**super().info(), **{name: getattr(self, name) for name in own}}
