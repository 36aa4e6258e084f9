"""Filters that are built once, from keys that are all known: the static one, the smallest and the
fastest to ask, and the exact set, which is right about every key it was built with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.filter import Filter
from bloomery.filters.hashers import check_hasher
from bloomery.filters.internals import open_filter
from bloomery.storage import memory
from bloomery.suggestions import constructor, known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Batch, Hasher, Nulls

MIN_ERROR_RATE = 2.0**-32  # fingerprints of 32 bits
BUILD_BYTES = 24  # a key, for a while: its hash, 1.1 cells of 9 bytes, numbers of cells
_HASH_BYTES = 8  # a key of either side, until the set is built
_LARGEST_RATE = math.nextafter(1.0, 0.0)  # a header's rate is below 1
_ADVICE = "build it of fewer keys, or in parts"
E = TypeVar("E", bound="ExactSet")


class StaticFilter(Filter):
    """A filter for keys that are all known: nothing can be added later, or taken out.

    >>> words = StaticFilter.build(["alice", "bob"], error_rate=0.001)
    >>> "alice" in words, "carol" in words
    (True, False)

    A binary fuse filter: three places a key, and about 1.13 bits for each bit of a fingerprint.
    """

    __slots__ = ()
    kind = "static"
    _UNMERGED = "build one from the keys of both"

    def __new__(cls, *args: object, **options: object) -> Self:
        """Refuse: there is no empty one."""
        raise errors.InvalidParameter(
            "a StaticFilter is made of all of its keys at once: StaticFilter.build(keys, rate)"
        )

    @constructor
    @known_keywords
    def build(
        cls,
        keys: Batch,
        error_rate: float | str = 0.01,
        *,
        hasher: Hasher = "xxh3",
        seed: int = 0,
        nulls: Nulls = "error",
    ) -> Self:
        """Make the filter of these keys; one that comes twice counts once.

        It takes about 24 bytes a key while it is built.
        """
        rate = sizing.check_error_rate(error_rate, MIN_ERROR_RATE)
        seed = check_hasher(hasher, seed)
        if isinstance(keys, Sized):
            memory.check(BUILD_BYTES * len(keys), "build it of fewer keys, or in parts")
        return cls._open(*_native.build_static(keys, rate, hasher, seed, nulls))

    def _saturated(self, facts: dict[str, Any]) -> bool:
        return False  # it holds what it was made of, at the rate it was made for


class ExactSet(Filter):
    """A set of known members and known non-members, without an error about any of them.

    >>> revoked = ExactSet.build(["t1", "t2"], ["t3", "t4", "t5"])
    >>> "t1" in revoked, "t4" in revoked
    (True, False)

    A key of neither side is answered by chance: then no means that it is no member, yes that it is
    no known non-member, and nothing more. `estimated_error_rate` is the share of them that is a
    yes. Two levels of static filters, in about 10 bits for each of the fewer keys where the others
    are a hundred times as many.
    """

    __slots__ = ()
    kind = "exact"
    _UNMERGED = "build one from the keys of both"

    def __new__(cls, *args: object, **options: object) -> Self:
        """Refuse: there is no empty one."""
        raise errors.InvalidParameter(
            "an ExactSet is made of all of its keys at once: ExactSet.build(members, non_members)"
        )

    @constructor
    @known_keywords
    def build(
        cls,
        members: Batch,
        non_members: Batch,
        *,
        error_rate: float | str | None = None,
        hasher: Hasher = "xxh3",
        seed: int = 0,
        nulls: Nulls = "error",
    ) -> Self:
        """Make the set of these keys; one that comes twice on a side counts once.

        A key of both sides is ConflictingKeys. With an `error_rate`, at most that share of keys of
        neither side is answered with a yes; without one the set is as small as it can be. It takes
        8 bytes a key while it is built, and 24 for each that the first level lets through.
        """
        sides = ExactSides(error_rate=error_rate, hasher=hasher, seed=seed)
        for side, keys in ((sides.members, members), (sides.non_members, non_members)):
            if isinstance(keys, Sized):
                memory.check(_HASH_BYTES * len(keys), _ADVICE)
            side.update(keys, nulls)
        return sides.build(cls, lambda: [_twice(members), _twice(non_members)])

    @property
    def member_count(self) -> int:
        """How many distinct members it was built with."""
        return self._extra[0]

    @property
    def non_member_count(self) -> int:
        """How many distinct non-members it was built with."""
        return self._extra[1]

    def __repr__(self) -> str:
        """Show how many keys of each side it knows, and its size."""
        return (
            f"<{type(self).__name__}: {self.member_count:,} members, "
            f"{self.non_member_count:,} non-members, {self.nbytes:,} bytes>"
        )

    def _saturated(self, facts: dict[str, Any]) -> bool:
        return False  # it knows what it was made of


class ExactSides:
    """The keys of an exact set as they come: `members` and `non_members` each take batches by
    `update` and text by `add_lines`. Then `build` makes the set, once."""

    def __init__(
        self,
        *,
        error_rate: float | str | None = None,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> None:
        self._asked = None
        if error_rate is not None:
            self._asked = sizing.check_error_rate(error_rate, sizing.MIN_EXACT_RATE)
        self._hasher, self._seed = hasher, check_hasher(hasher, seed)
        self.members = _native.KeyHashes(hasher, self._seed)
        self.non_members = _native.KeyHashes(hasher, self._seed)

    def build(self, cls: type[E], again: Callable[[], list[Iterable[Batch]]]) -> E:
        """Make the set. `again` gives the batches of each side once more, those that can be read
        twice: so that a key on both sides can be named."""
        plan = sizing.exact_plan(
            self.members.distinct(), self.non_members.distinct(), error_rate=self._asked
        )
        conflicts, hash = self.members.common(self.non_members)
        if hash is not None:
            raise errors.ConflictingKeys(self._describe(conflicts, hash, again()))
        memory.check(BUILD_BYTES * plan.second_keys, _ADVICE)
        rate = self._asked or plan.error_rate or 0.5  # without members no key is a yes
        return open_filter(
            cls,
            *_native.build_exact(
                self.members,
                self.non_members,
                plan.fingerprint_bits,
                plan.holds_non_members,
                min(rate, _LARGEST_RATE),
            ),
        )

    def _describe(self, conflicts: int, hash: int, sides: list[Iterable[Batch]]) -> str:
        """Say that keys are on both sides, and which, as far as they can be read again."""
        keys = [key for batches in sides for key in self._find(batches, hash)]
        shown = [sizing.show(key) for key in keys]
        if len(keys) == 2 and _native.canonical(keys[0]) != _native.canonical(keys[1]):
            return (
                f"{shown[0]} of the members and {shown[1]} of the non-members have the same 64-bit "
                "hash: build with another seed"
            )
        many = f"{conflicts:,} keys are" if conflicts > 1 else "1 key is"
        such = f": {', '.join(shown[:1])}{', …' * (conflicts > 1)}" if shown else ""
        return f"{many} among the members and among the non-members{such}"

    def _find(self, batches: Iterable[Batch], hash: int) -> Iterator[Any]:
        """The key with this hash, if it is there."""
        for batch in batches:
            hashes = _native.KeyHashes(self._hasher, self._seed)
            hashes.update(batch, "skip")
            row = hashes.row_of(hash)
            if row is not None:
                rows: Iterable[Any] = batch  # type: ignore[assignment]  # `_twice` has seen to it
                keys = (key for key in map(_plain, rows) if key is not None)
                yield next(islice(keys, row, None))
                return


def _plain(key: Any) -> Any:
    """A row of a column as Python has it: Arrow's and NumPy's are objects of their own."""
    for name in ("as_py", "item"):
        if hasattr(key, name):
            return getattr(key, name)()
    return key


def _twice(keys: Batch) -> list[Batch]:
    """The batch, if it can be read twice."""
    return [] if isinstance(keys, Iterator) or not isinstance(keys, Iterable) else [keys]
