"""Failed logins are slowed: who fails has to wait before the next try, longer each time.

It goes by address and by user. A try waits for its turn *before* it is looked at, so that hanging
up early or trying on many connections at once is no quicker. Of those that wait for one user, the
address that tried least of late is next: who guesses without end does not keep out who comes with
the right password. What is remembered fades, and there is a bound to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

__all__ = ["ADDRESS", "HASHING", "USER", "Pace", "Slowing", "TooMany", "network"]


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
# All that are hashed: no failure slows these, there only are so many at once.
HASHING = Pace(free=1 << 30, first=0.0, longest=0.0, fades=60.0)

PATIENCE = (
    10.0  # seconds that a try waits for its turn; one that would have to wait longer is refused
)
_AT_ONCE = 8  # tries of one address, or for one user, that are looked at together
_WAITING = 32  # and that wait
_LOOK_AGAIN = 0.05
_MOST_TRIES = 20.0  # of an address that are remembered
_MOST_OVER = 8  # failures that count beyond the free ones: all is forgotten in some minutes
_MOST = 10_000  # addresses and users that are remembered


class TooMany(Exception):
    """Refused without being looked at."""


@dataclass(eq=False, slots=True)
class _Try:
    """One that waits for its turn."""

    address: _Record  # where it comes from
    ousted: bool = False  # by one that comes before it

    def rank(self) -> int:
        """Those with less come first; of equals, who came first."""
        return math.ceil(self.address.tries)


@dataclass(eq=False, slots=True)
class _Record:
    failures: float = 0.0
    tries: float = 0.0  # also those that were refused without being looked at
    since: float = 0.0  # when there were so many
    following: float = 0.0  # when the next try may be looked at
    busy: int = 0
    queue: list[_Try] = field(default_factory=list)

    def fade(self, pace: Pace, now: float) -> None:
        faded = max(0.0, now - self.since) / pace.fades
        self.failures = max(0.0, self.failures - faded)
        self.tries = max(0.0, self.tries - faded)
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
        self.records: OrderedDict[str, _Record] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(self, key: str, pace: Pace, address: str | None = None) -> AsyncIterator[None]:
        """Wait for the turn of a try, which is over at the end; TooMany if that takes too long.
        `address`: the key of where it comes from, if that is another."""
        record = self._record(key)
        record.fade(pace, self._clock())
        record.tries = min(record.tries + 1, _MOST_TRIES)
        one = _Try(record if address is None else self._record(address))
        self._enter(record, one)
        try:
            await self._wait(record, pace, one)
        finally:
            if not one.ousted:
                record.queue.remove(one)
        record.following = self._clock() + record.interval(pace)
        record.busy += 1
        try:
            yield
        finally:
            record.busy -= 1

    def _enter(self, record: _Record, one: _Try) -> None:
        """Let a try wait; where too many do, in place of the last, if that comes after it."""
        if len(record.queue) >= _WAITING:
            last = max(reversed(record.queue), key=_Try.rank)
            if last.rank() <= one.rank():
                raise TooMany
            last.ousted = True
            record.queue.remove(last)
        record.queue.append(one)

    async def _wait(self, record: _Record, pace: Pace, one: _Try) -> None:
        until = self._clock() + PATIENCE
        while not one.ousted:
            now = self._clock()
            record.fade(pace, now)
            wait = record.following - now
            if record.busy >= _AT_ONCE:
                wait = max(wait, _LOOK_AGAIN)
            if wait <= 0:
                if min(record.queue, key=_Try.rank) is one:
                    return
                wait = _LOOK_AGAIN
            if now + wait > until:
                break
            await self._sleep(wait)
        raise TooMany

    def blocked(self, key: str) -> bool:
        """Whether tries are refused without being looked at."""
        record = self.records.get(key)
        return record is not None and (
            len(record.queue) >= _WAITING or record.following - self._clock() > PATIENCE
        )

    def failed(self, key: str, pace: Pace) -> None:
        """Remember a failure."""
        now, record = self._clock(), self._record(key)
        record.fade(pace, now)
        record.failures = min(record.failures + 1, pace.free + _MOST_OVER)
        record.following = max(record.following, now + record.interval(pace))

    def _record(self, key: str) -> _Record:
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = _Record(since=self._clock())
        self.records.move_to_end(key)
        while len(self.records) > _MOST:
            self.records.popitem(last=False)
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
