"""Which generations of a rotating filter there are, and which is the current one.

Time never goes back: after the newest that was made comes none that is older. If Redis's clock was
ahead and was put right, nothing is forgotten until the time has caught up.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from bloomery.errors import CorruptData

SLACK = 1.0  # seconds that a string outlives its generation: nobody asks for it by then
_LONGEST = 10_000  # generations that anybody could have made and not forgotten


class RotationSchedule(NamedTuple):
    """When generations begin and end."""

    each: float  # seconds
    whole: int  # that make up the window, besides the current one
    shift: float = 0.0  # seconds that tests are ahead of Redis

    def start(self, number: int) -> int:
        """When a generation begins: milliseconds of Redis's own time."""
        return math.floor((number * self.each - self.shift) * 1000)

    def end(self, number: int) -> int:
        """When its string expires: milliseconds of Redis's own time."""
        return math.ceil(((number + 1 + self.whole) * self.each + SLACK - self.shift) * 1000)


class KnownGenerations(NamedTuple):
    """The generations that a client knows of; replaced as a whole, since threads share it."""

    now: int  # the current generation when Redis said so
    made: frozenset[int]
    ahead: float  # Redis's time less our clock's

    @classmethod
    def from_replies(
        cls, schedule: RotationSchedule, clock: Any, fields: Any
    ) -> KnownGenerations | None:
        """Return what the replies to TIME and HKEYS say; None if the hash is not there."""
        try:
            seconds, microseconds = (int(part) for part in clock)
            names = set(fields)
            if len(names) > _LONGEST:
                raise ValueError
            made = frozenset(int(name) for name in names - {b"made"})
        except (TypeError, ValueError):
            raise CorruptData("Redis answered to TIME or HKEYS with what it never does") from None
        if b"made" not in names:
            return None
        now = seconds + microseconds / 1e6
        return cls(_current(schedule, now, made), made, now - time.monotonic())

    def guess_current(self, schedule: RotationSchedule) -> int:
        """The current generation by our own clock."""
        return _current(schedule, time.monotonic() + self.ahead, self.made)

    def live(self, schedule: RotationSchedule, current: int) -> set[int]:
        """The generations within the window, when this one is the current one."""
        return {number for number in self.made if number >= current - schedule.whole}


def _current(schedule: RotationSchedule, seconds: float, made: frozenset[int]) -> int:
    return max(math.floor((seconds + schedule.shift) / schedule.each), *made, 0)
