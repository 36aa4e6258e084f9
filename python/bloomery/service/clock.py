"""The server's time, which windows, TTLs and grace periods go by.

It runs with a steady clock and follows the machine's wall clock by at most a tenth of the time that
passes: a wall clock that is set an hour forward is caught up with in ten hours, and one that is set
back lets the time run slower until it is right again. So a clock that jumps neither turns a window
over at once nor stops the time; and the time never goes back, not even over a restart: it goes no
further than what a file says, which is up to two seconds ahead and written before it gets there.

A server that is killed starts at the time of the file, so it skips up to the difference. Any number
of kills must not add up: the file is ahead by no more than a tenth of the time since the start, and
a clock that is ahead of the wall clock falls back by a tenth of that time. So a run and a kill
together leave it no further ahead than before, or than two seconds.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from bloomery.boottime import boottime

_SHARE = 0.1  # of the time that passes, by which it may run faster or slower
ALARM_SECONDS = 5.0  # off the wall clock by more: somebody should know
_MAX_AHEAD = 2.0  # seconds that the file is ahead: what a restart may skip


class HighWaterMark:
    """A file with a time that the server's clock has not passed: after a restart the clock begins
    no earlier."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.at = self._read()
        if not self.at:
            os.ftruncate(self._file, 0)

    def _read(self) -> float:
        """Return the time of the file; 0 if it is damaged: a later one would end all filters."""
        with contextlib.suppress(OSError, ValueError):
            line = os.pread(self._file, 64, 0)
            at = float(line.partition(b" ")[0])
            if line == _line(at):
                return at
        return 0.0

    def move(self, at: float) -> None:
        """Write another time. A disk that does not take it stops nothing: there is the log."""
        self.at = math.ceil(at * 1000) / 1000  # as the file has it: a restart must not go back
        with contextlib.suppress(OSError):
            # In place and of one length: it is whole at any moment, also for who is killed.
            os.pwrite(self._file, _line(self.at), 0)

    def close(self, at: float) -> None:
        """End with the time itself: nothing passes while nobody runs."""
        self.move(at)
        os.close(self._file)


def _line(at: float) -> bytes:
    """Return a time with its checksum."""
    text = b"%017.3f" % at
    return b"%b %08x\n" % (text, zlib.crc32(text))


class Clock:
    """Unix time that only goes forward, and never jumps while it runs."""

    def __init__(
        self,
        since: float = 0.0,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = boottime,
        mark: HighWaterMark | None = None,
    ) -> None:
        """Begin with the wall clock's time, or with `since` or the mark, the last that are known,
        if they are later."""
        self._wall = wall
        self._steady = steady
        self._then = self._started = steady()
        self._mark = mark
        self._now = max(since, wall(), 0.0 if mark is None else mark.at)

    def now(self) -> float:
        """The time."""
        then, self._then = self._then, self._steady()
        # In every turn: `min` and `max` are calls, half of the time that this takes.
        passed = self._then - then if self._then > then else 0.0
        off, most = self._wall() - (self._now + passed), _SHARE * passed
        self._now += passed + (most if off > most else -most if off < -most else off)
        if self._mark is not None and self._now > self._mark.at:
            self._mark.move(self._now + min(_MAX_AHEAD, _SHARE * (self._then - self._started)))
        return self._now

    def close(self) -> None:
        """Keep the time for the next start."""
        if self._mark is not None:
            self._mark.close(self._now)
            self._mark = None

    @property
    def off(self) -> float:
        """By how many seconds the wall clock is ahead; behind, if below 0."""
        return self._wall() - self._now
