"""The scalable filter, which grows with its keys and keeps its error rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.filter import Filter, float_bits
from bloomery.sizing import limits
from bloomery.suggestions import known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Hasher

_ROOM = 1000  # keys, unless somebody says
LEAST_GROWTH = 1.125
MOST_GROWTH = 2.0


class ScalableBloomFilter(Filter):
    """A filter that grows with what it is given, within the error rate at any size.

    >>> seen = ScalableBloomFilter(initial_capacity=1_000, error_rate=0.01)
    >>> seen.update(range(100_000))
    >>> 5 in seen, seen.saturated
    (True, False)

    There are no layers: fingerprints of keys lie in one table, which grows by an eighth or less at
    a time, and a question looks at two places in it however often it grew. `initial_capacity` is
    the size to begin with; a filter that never outgrows it is better a BloomFilter.
    """

    __slots__ = ()
    kind = "scalable"
    _UNMERGED = "add the keys of both to one filter"

    @known_keywords
    def __new__(
        cls,
        initial_capacity: int = _ROOM,
        error_rate: float | str = 0.01,
        *,
        capacity: int | None = None,
        growth: float = 1.125,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty filter with room for `initial_capacity` keys, or `capacity`: the same.

        `growth` is how many times larger it becomes at most when it is full: 1.125 wastes least
        memory, 2 takes a third less time to grow.
        """
        if capacity is not None and initial_capacity not in (_ROOM, capacity):
            raise errors.InvalidParameter(
                f"initial_capacity is {sizing.show(initial_capacity)} and capacity "
                f"{sizing.show(capacity)}: they are the same, give one"
            )
        room, rate = sizing.check_sizes(
            initial_capacity if capacity is None else capacity, error_rate
        )
        step = _check_growth(growth)
        table = _native.growing_table(room, rate)
        return cls._make_table(room, rate, hasher, seed, table, 0, 0, 0, float_bits(step))

    def _saturated(self, facts: dict[str, Any]) -> bool:
        # It has room for what it holds; only keys chosen to collide can make it err more often.
        return bool(facts["estimated_error_rate"] > self.error_rate)

    def _repr_fields(self) -> dict[str, tuple[object, object]]:
        return {"growth": (self._facts()["growth"], LEAST_GROWTH), **super()._repr_fields()}

    def info(self) -> dict[str, Any]:
        """All that is known about the filter, ready for JSON."""
        facts = super().info()
        # What it was made for says little about a filter that grew.
        return {**facts, "bits_per_key": 8 * self.nbytes / max(1, facts["estimated_count"])}


def _check_growth(value: object) -> float:
    factor = limits.number(value)
    if factor is not None and LEAST_GROWTH <= factor <= MOST_GROWTH:
        return float(factor)
    raise errors.InvalidParameter(
        f"growth is {sizing.show(value)}, must be a number from {LEAST_GROWTH} to {MOST_GROWTH:g}"
    )
