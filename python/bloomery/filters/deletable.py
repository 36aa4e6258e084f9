"""The deletable filter: most keys can be removed, for a little more memory than the plain one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bloomery import sizing
from bloomery.filters.filter import RemovingFilter
from bloomery.suggestions import known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Hasher, Key


class DeletableBloomFilter(RemovingFilter):
    """A Bloom filter whose bits are in regions, each with a flag that says whether keys have met
    there. A key with a bit in a region without the flag can be removed.

    >>> seen = DeletableBloomFilter(capacity=1_000_000, error_rate=0.01)
    >>> seen.add("alice")
    True
    >>> seen.removable("alice"), seen.remove("alice"), "alice" in seen
    (True, True, False)

    `remove` is True if the key is now gone, False if it could not be taken out; no other key is
    ever lost by it. More regions make more keys removable and cost a bit each:
    `sizing.removable_share` tells how many. A key that is added twice has met itself, and cannot be
    removed.
    """

    __slots__ = ()
    kind = "deletable"
    _SHAPE = (*RemovingFilter._SHAPE, "regions")

    @known_keywords
    def __new__(
        cls,
        capacity: int,
        error_rate: float | str = 0.01,
        *,
        regions: int | None = None,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty filter for `capacity` distinct keys, with at least `regions` regions."""
        plan = sizing.deletable_plan(capacity, error_rate, regions=regions)
        return cls._make_cells(plan, hasher, seed, sizing.LINE_BITS - plan.line_cells)

    @property
    def regions(self) -> int:
        """How many regions there are: 16, 32, 64 or 128 in each line of 64 bytes."""
        return self.num_bits // sizing.LINE_BITS * self._extra[0]

    def removable(self, key: Key) -> bool:
        """True if `remove` would take the key out, as the filter stands now."""
        return bool(self._ask("removable", key))

    def _count_error(self) -> float:
        shape = (
            self.num_bits,
            self.num_hashes,
            self.lines_per_key,
            sizing.LINE_BITS - self._extra[0],
        )
        return sizing.cell_count_error(*shape, self.capacity)

    def _repr_fields(self) -> dict[str, tuple[object, object]]:
        lines = self.num_bits // sizing.LINE_BITS
        return {"regions": (self.regions, 64 * lines), **super()._repr_fields()}
