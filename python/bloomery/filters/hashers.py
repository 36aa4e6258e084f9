"""Filters that hash keys by a function and a seed: how these are checked and shown, and how two
filters that have the same are merged."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.saved import SavedFilter
from bloomery.storage import memory

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Hasher


def check_hasher(hasher: object, seed: object) -> int:
    """Return the seed as an int; InvalidParameter if hasher or seed is not right."""
    if hasher not in _native.HASHERS:
        names = ", ".join(_native.HASHERS)
        raise errors.InvalidParameter(f"hasher is {hasher!r}, must be one of {names}")
    bits = 128 if hasher == "siphash" else 64
    if isinstance(seed, SupportsIndex) and not isinstance(seed, bool):
        number = operator.index(seed)
        if 0 <= number < 1 << bits:
            return number
    shown = sizing.show(seed) if hasher != "siphash" else f"a {type(seed).__name__} out of range"
    raise errors.InvalidParameter(
        f"seed is {shown}, must be an int of at least 0 and below 2**{bits}"
    )


def shown_seed(filter: Any) -> int | str:
    """Return the seed for people to see; siphash's is a key, and a secret."""
    return "secret" if filter.hasher == "siphash" else int(filter.seed)


class HashedFilter(SavedFilter):
    """A filter that is made for a number of keys and an error rate, with a hasher and a seed."""

    __slots__ = ()
    # What two filters must share for one to take in the other, and how they come to share it.
    _SHAPE: ClassVar[tuple[str, ...]]
    _ALIKE: ClassVar[str] = "the same parameters"

    if TYPE_CHECKING:  # the native half's, or the kind's

        @property
        def capacity(self) -> int: ...
        @property
        def error_rate(self) -> float: ...
        @property
        def hasher(self) -> Hasher: ...
        @property
        def seed(self) -> int: ...
        @property
        def estimated_count(self) -> int: ...
        def _clear(self) -> None: ...
        def __ior__(self, other: object) -> Self: ...
        def __iand__(self, other: object) -> Self: ...

    def _repr_fields(self) -> dict[str, tuple[object, object]]:
        """Return what `repr` shows besides capacity and error rate: name to value and default."""
        seed = self.seed if self.hasher != "siphash" else 0  # that one is a secret
        return {"hasher": (self.hasher, "xxh3"), "seed": (seed, 0)}

    def __repr__(self) -> str:
        """Show what it was made with and how full it is."""
        fields = self._repr_fields().items()
        extras = "".join(f", {name}={value!r}" for name, (value, usual) in fields if value != usual)
        # A repr must be quick, whatever the size: no count of a filter that takes a while to read.
        count = f"~{self.estimated_count:,} keys, " if self.nbytes <= memory.ASK_FROM else ""
        return (
            f"<{type(self).__name__}(capacity={self.capacity}, error_rate={self.error_rate:g}"
            f"{extras}): {count}{self.nbytes:,} bytes>"
        )

    def _check_shape(self, other: HashedFilter, operation: str) -> None:
        """Raise IncompatibleFilters unless the two have the same shape."""
        for name in self._SHAPE:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                if name == "seed" and self.hasher == "siphash":
                    mine, theirs = "one", "another"
                raise errors.IncompatibleFilters(
                    f"{operation} needs filters of the same {name}: this one has {mine}, the "
                    f"other {theirs}; make both with {self._ALIKE}"
                )

    def union(self, *others: HashedFilter) -> Self:
        """Return a filter that holds every key of this one and of the others."""
        result = self.copy()
        for other in others:
            result |= other
        return result

    def intersection(self, *others: HashedFilter) -> Self:
        """Return a filter that holds every key that all of them hold, and a maybe for some more."""
        result = self.copy()
        for other in others:
            result &= other
        return result

    def __or__(self, other: object) -> Self:
        """Return the union."""
        return self.union(other) if isinstance(other, HashedFilter) else NotImplemented

    def __and__(self, other: object) -> Self:
        """Return the intersection."""
        return self.intersection(other) if isinstance(other, HashedFilter) else NotImplemented

    def clear(self) -> None:
        """Forget every key."""
        self._clear()
