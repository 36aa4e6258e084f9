"""An answer: is the key there, what is its value, and who says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

By: TypeAlias = Literal["filter", "cache", "source", "stale", "unconfirmed"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a guard says of a key; true where the key is there, or may be.

    `by` is who answered: `filter` (a *no*, which is certain), `cache` or `source` (confirmed),
    `stale` (a cached answer past its time, since the source is down) or `unconfirmed` (the filter's
    *maybe*: nobody could be asked). `queued` is the idempotency key of what waits for the source;
    `on_answer` is told the same.
    """

    found: bool
    value: Any = None
    by: By = "source"
    queued: str | None = None

    def __bool__(self) -> bool:
        return self.found

    @property
    def confirmed(self) -> bool:
        """Is it certain, as of now or of at most a TTL ago?"""
        return self.by not in ("stale", "unconfirmed")


# The answer to most questions: one object for all of them.
ABSENT = Answer(False, None, "filter")
