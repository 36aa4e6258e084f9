"""What every filter checks and shows about its hash function."""

from __future__ import annotations

import operator
from typing import Protocol, SupportsIndex

import bloomery._native as _native
from bloomery import errors, sizing


class Hashing(Protocol):
    """Whatever has a hasher and a seed."""

    @property
    def hasher(self) -> str:
        """The hash function's name."""

    @property
    def seed(self) -> int:
        """Its seed."""


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


def shown_seed(filter: Hashing) -> int | str:
    """Return the seed; a siphash seed is a key, which has no business in logs and on screens."""
    return "secret" if filter.hasher == "siphash" else filter.seed
