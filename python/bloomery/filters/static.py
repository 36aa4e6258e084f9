"""The filter that is built once from all of its keys: the smallest, and the fastest to ask."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.filter import Filter
from bloomery.filters.hashers import check_hasher
from bloomery.storage import memory
from bloomery.suggestions import constructor, known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Batch, Hasher, Nulls

MIN_ERROR_RATE = 2.0**-32  # fingerprints of 32 bits
BUILD_BYTES = 24  # a key, for a while: its hash, 1.1 cells of 9 bytes, numbers of cells


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
