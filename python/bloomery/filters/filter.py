"""What every kind but the plain filter has in common. Adding, asking and batches are native
(`_native.Family`); a kind is a class of its own that names itself and makes its header."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.hashers import HashedFilter, check_hasher, shown_seed
from bloomery.storage import memory
from bloomery.suggestions import OtherNames

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from bloomery.types import Batch, Hasher, Mask, Nulls


def float_bits(value: float) -> int:
    """Return a float as the word that a header holds."""
    return int.from_bytes(struct.pack("<d", value), "little")


class Filter(HashedFilter, _native.Family, OtherNames):
    """A filter of any kind: `key in filter` is False: definitely not there; True: maybe."""

    __slots__ = ()
    # What to do instead of merging two of them, where that cannot be done.
    _UNMERGED: ClassVar[str | None] = None
    _SHAPE: ClassVar[tuple[str, ...]] = (
        "num_bits",
        "num_hashes",
        "lines_per_key",
        "hasher",
        "seed",
    )

    @classmethod
    def _make(
        cls,
        capacity: int,
        error_rate: float,
        hasher: Hasher,
        seed: int,
        *,
        nbytes: int,
        layout: int = 0,
        lines_per_key: int = 0,
        num_hashes: int = 0,
        num_bits: int = 0,
        extra: tuple[int, ...] = (),
    ) -> Self:
        """Make an empty filter, whose memory is `nbytes`."""
        seed = check_hasher(hasher, seed)
        memory.check(nbytes)
        header = _native.make_header(
            cls.kind,
            capacity,
            error_rate,
            hasher,
            seed,
            layout=layout,
            lines_per_key=lines_per_key,
            num_hashes=num_hashes,
            num_bits=num_bits,
            nbytes=nbytes,
            extra=extra,
        )
        return cls._open(header)

    @classmethod
    def _make_cells(cls, plan: sizing.CellPlan, hasher: Hasher, seed: int, *extra: int) -> Self:
        """Make an empty filter of cells in lines, as it was planned."""
        return cls._make(
            plan.capacity,
            plan.error_rate,
            hasher,
            seed,
            nbytes=plan.nbytes,
            lines_per_key=plan.lines_per_key,
            num_hashes=plan.num_hashes,
            num_bits=plan.num_bits,
            extra=extra,
        )

    @classmethod
    def _make_table(
        cls,
        capacity: int,
        error_rate: float,
        hasher: Hasher,
        seed: int,
        table: tuple[int, int, int, int],
        *extra: int,
    ) -> Self:
        """Make an empty filter of fingerprints in a table, each in one of two places."""
        layout, num_bits, nbytes, word = table
        return cls._make(
            capacity,
            error_rate,
            hasher,
            seed,
            nbytes=nbytes,
            layout=layout,
            lines_per_key=2,
            num_hashes=2,
            num_bits=num_bits,
            extra=(word, *extra),
        )

    @classmethod
    def _open(
        cls,
        head: bytes,
        body: _native.Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
    ) -> Self:
        """Make one from its head and, if it was saved, its memory."""
        filter = _native.Family.__new__(cls, head, body, offset, writable)
        if (kind := filter._kind) != cls.kind:
            raise errors.IncompatibleFilters(f"a {kind} filter is no {cls.kind} filter")
        return filter

    # How full it is. Each of these may read all of the memory.

    @property
    def fill_ratio(self) -> float:
        """The share of its places that are taken."""
        return self._facts()["fill_ratio"]

    @property
    def estimated_count(self) -> int:
        """How many distinct keys it holds, estimated where it is not known."""
        return int(self._facts()["estimated_count"])

    @property
    def estimated_error_rate(self) -> float:
        """The share of absent keys answered with a maybe, as the filter stands now."""
        return self._facts()["estimated_error_rate"]

    @property
    def saturated(self) -> bool:
        """True once it holds more keys than its capacity, by more than their estimate may be off,
        and errs more often than was asked."""
        return self._saturated(self._facts())

    def _saturated(self, facts: dict[str, Any]) -> bool:
        count = facts["estimated_count"]
        beyond = sizing.is_beyond(count, self.capacity, self._count_error())
        return bool(beyond and facts["estimated_error_rate"] > self.error_rate)

    def _count_error(self) -> float:
        """Return the standard error of `estimated_count` when it is as full as it is made for; 0
        where keys are counted as they come."""
        return 0.0

    def info(self) -> dict[str, Any]:
        """All that is known about the filter, ready for JSON."""
        facts: dict[str, Any] = self._facts()
        nbytes = self.nbytes
        return {
            "kind": self.kind,
            "capacity": self.capacity,
            "error_rate": self.error_rate,
            "hasher": self.hasher,
            "seed": shown_seed(self),
            "nbytes": nbytes,
            "bits_per_key": 8 * nbytes / self.capacity,
            **facts,
            "saturated": self._saturated(facts),
            "read_only": self.read_only,
        }

    # Filters together.

    def _check_compatible(self, other: object, operation: str) -> Filter:
        if self._UNMERGED is not None:
            raise errors.IncompatibleFilters(
                f"{operation} with a {type(self).__name__} cannot be made: {self._UNMERGED}"
            )
        if not isinstance(other, Filter) or other.kind != self.kind:
            raise errors.IncompatibleFilters(
                f"{operation} takes another {type(self).__name__}, not {type(other).__name__}"
            )
        self._check_shape(other, operation)
        return other.copy() if other is self else other

    def __ior__(self, other: object) -> Self:
        """Add every key of the other filter."""
        self._merge(self._check_compatible(other, "a union"), False)
        return self

    def __iand__(self, other: object) -> Self:
        """Keep only what the other filter may hold too."""
        self._merge(self._check_compatible(other, "an intersection"), True)
        return self


class RemovingFilter(Filter):
    """A filter from which keys can be taken out again.

    Remove only what was added: a key that never was, but is answered with a maybe, takes the place
    of another key with it. That cannot be known.
    """

    __slots__ = ()

    # Native, under the names that sets have: no Python runs on the way.
    remove = _native.Family._remove_one
    discard = _native.Family._discard_one

    def remove_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Take one copy of each key out; a mask that is True where there was one."""
        return self._remove_many(keys, nulls)

    def remove_lines(self, data: Buffer, *, final: bool = False) -> tuple[bytes, int, int, int]:
        """Take one copy of each line out; returns as `add_lines` does, with the lines removed."""
        return self._remove_lines(data, final)
