"""Failed logins are slowed: who fails has to wait before the next try, longer each time.

It goes by address and by user. A try waits for its turn *before* it is looked at, so that hanging
up early or trying on many connections at once is no quicker. What is remembered fades, and there is
a bound to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

__all__ = ["ADDRESS", "USER", "Pace", "Slowing", "TooMany", "network"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast tries may follow each other."""

    free: int  # failures that cost nothing
    first: float  # seconds between tries after those; each failure doubles it
    longest: float  # seconds between tries at most
    fades: float  # seconds after which a failure is forgotten


ADDRESS = Pace(free=4, first=0.25, longest=30.0, fades=60.0)
# Shorter: others must not be able to lock somebody out.
USER = Pace(free=8, first=0.25, longest=2.0, fades=60.0)

PATIENCE = (
    10.0  # seconds that a try waits for its turn; one that would have to wait longer is refused
)
_AT_ONCE = 8  # tries of one address, or for one user, that are looked at together
_WAITING = 32  # and that wait
_LOOK_AGAIN = 0.05
_MOST_OVER = 8  # failures that count beyond the free ones: all is forgotten in some minutes
_MOST = 10_000  # addresses and users that are remembered


class TooMany(Exception):
    """Refused without being looked at."""


@dataclass(slots=True)
class _Record:
    failures: float = 0.0
    since: float = 0.0  # when `failures` was so many
    following: float = 0.0  # when the next try may be looked at
    busy: int = 0
    waiting: int = 0

    def fade(self, pace: Pace, now: float) -> None:
        self.failures = max(0.0, self.failures - max(0.0, now - self.since) / pace.fades)
        self.since = now

    def interval(self, pace: Pace) -> float:
        over = round(self.failures) - pace.free
        return 0.0 if over < 0 else min(pace.longest, pace.first * 2.0 ** min(over, 40))


class Slowing:
    """Who failed how often."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._records: OrderedDict[str, _Record] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(self, key: str, pace: Pace) -> AsyncIterator[None]:
        """Wait for the turn of a try, which is over at the end; TooMany if that takes too long."""
        record = self._record(key)
        if record.waiting >= _WAITING:
            raise TooMany
        record.waiting += 1
        try:
            await self._wait(record, pace)
        finally:
            record.waiting -= 1
        record.following = self._clock() + record.interval(pace)
        record.busy += 1
        try:
            yield
        finally:
            record.busy -= 1

    async def _wait(self, record: _Record, pace: Pace) -> None:
        until = self._clock() + PATIENCE
        while True:
            now = self._clock()
            record.fade(pace, now)
            wait = record.following - now
            if record.busy >= _AT_ONCE:
                wait = max(wait, _LOOK_AGAIN)
            if wait <= 0:
                return
            if now + wait > until:
                raise TooMany
            await self._sleep(wait)

    def blocked(self, key: str) -> bool:
        """Whether tries are refused without being looked at."""
        record = self._records.get(key)
        return record is not None and (
            record.waiting >= _WAITING or record.following - self._clock() > PATIENCE
        )

    def failed(self, key: str, pace: Pace) -> None:
        """Remember a failure."""
        now, record = self._clock(), self._record(key)
        record.fade(pace, now)
        record.failures = min(record.failures + 1, pace.free + _MOST_OVER)
        record.following = max(record.following, now + record.interval(pace))

    def _record(self, key: str) -> _Record:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(since=self._clock())
        self._records.move_to_end(key)
        while len(self._records) > _MOST:
            self._records.popitem(last=False)
        return record


def network(address: str) -> str:
    """What an address is remembered by: an IPv6 one by its network, of which one host has many."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 6:
        mapped = found.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
