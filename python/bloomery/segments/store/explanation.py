"""What a read did, segment by segment: the answer of `SegmentStore.explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal[
    "found", "deleted", "not there", "skipped", "read in vain", "not asked"
]


@dataclass(frozen=True)
class Step:
    """One place that a read may have to look at."""

    place: str  # "memtable", or the number of a segment
    keys: int
    fp_chance: float | None  # None: it has no filter
    outcome: Outcome


@dataclass(frozen=True)
class Explanation:
    """One read: every place from the newest to the oldest, and what became of it there.

    A segment is *skipped* if its filter says no, which is certain; *read in vain* if its filter
    said maybe and the key was not there; *not asked* if a newer one had the answer.
    """

    key: bytes
    steps: tuple[Step, ...]

    def _count(self, *outcomes: Outcome) -> int:
        segments = (step for step in self.steps if step.fp_chance is not None)
        return sum(step.outcome in outcomes for step in segments)

    @property
    def found(self) -> bool:
        """Whether the key has a value."""
        return any(step.outcome == "found" for step in self.steps)

    @property
    def skipped(self) -> int:
        """How many segments the filters kept from being read."""
        return self._count("skipped")

    @property
    def read(self) -> int:
        """How many segments were read."""
        return self._count("found", "deleted", "read in vain")

    @property
    def read_in_vain(self) -> int:
        """How many of those did not have the key."""
        return self._count("read in vain")

    def __str__(self) -> str:
        """Return a line for each place, and one that sums it up."""
        lines = [
            f"{step.place:<9} {step.keys:>12,} keys  {step.outcome}"
            + ("" if step.fp_chance is None else f" (fp_chance {step.fp_chance:g})")
            for step in self.steps
        ]
        lines.append(f"{self.skipped} skipped, {self.read} read, {self.read_in_vain} in vain")
        return "\n".join(lines)
