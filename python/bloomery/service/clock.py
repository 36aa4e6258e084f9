"""The server's time, which windows, TTLs and grace periods go by.

It runs with a steady clock and follows the machine's wall clock by at most a tenth of the time that
passes: a wall clock that is set an hour forward is caught up with in ten hours, and one that is set
back lets the time run slower until it is right again. So a clock that jumps neither turns a window
over at once nor stops the time; and the time never goes back, not even over a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bloomery.steady import steady as _steady

__all__ = ["ALARM_SECONDS", "Clock"]

_SHARE = 0.1  # of the time that passes, by which it may run faster or slower
ALARM_SECONDS = 5.0  # off the wall clock by more: somebody should know


class Clock:
    """Unix time that only goes forward, and never jumps while it runs."""

    def __init__(
        self,
        since: float = 0.0,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = _steady,
    ) -> None:
        """Begin with the wall clock's time, or with `since`, the last that is known, if later."""
        self._wall = wall
        self._steady = steady
        self._then = steady()
        self._now = max(since, wall())

    def now(self) -> float:
        """The time."""
        then, self._then = self._then, self._steady()
        passed = max(0.0, self._then - then)
        off = self._wall() - (self._now + passed)
        self._now += passed + min(max(off, -_SHARE * passed), _SHARE * passed)
        return self._now

    @property
    def off(self) -> float:
        """By how many seconds the wall clock is ahead; behind, if below 0."""
        return self._wall() - self._now
