"""Rate limit on failed logins: after each failure the next login has to wait longer (exponential
backoff), by address and by user.

A login waits *before* its password is checked, so that hanging up early or trying on many
connections at once is no quicker. Of the logins that wait for one user, the one from the address
that tried least of late is next: somebody who guesses without end does not keep out the user with
the right password. Failures are forgotten with time, and the number of addresses and users that are
remembered is bounded.
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


@dataclass(frozen=True, slots=True)
class Backoff:
    """How fast logins may follow each other."""

    free: int  # failures that cost nothing
    first: float  # seconds between logins after those; each failure doubles it
    longest: float  # seconds between logins at most
    fades: float  # seconds after which a failure is forgotten


ADDRESS = Backoff(free=4, first=0.25, longest=30.0, fades=60.0)
# Shorter: others must not be able to lock somebody out.
USER = Backoff(free=8, first=0.25, longest=2.0, fades=60.0)
# All that are hashed: no failure slows these, there only are so many at once.
HASHING = Backoff(free=1 << 30, first=0.0, longest=0.0, fades=60.0)

PATIENCE = 10.0  # seconds that a login waits; one that would have to wait longer is refused
_AT_ONCE = 8  # logins of one address, or for one user, that are checked together
_WAITING = 32  # and that wait
_LOOK_AGAIN = 0.05
_MOST_TRIES = 20.0  # logins of an address that are remembered
_MOST_OVER = 8  # failures that count beyond the free ones: all is forgotten in some minutes
_MOST = 10_000  # addresses and users that are remembered


class TooManyLogins(Exception):
    """The login is refused without its password being checked."""


@dataclass(eq=False, slots=True)
class _QueuedLogin:
    """A login that waits."""

    address: _Attempts  # of the address it comes from
    ousted: bool = False  # by one that comes before it

    def rank(self) -> int:
        """Logins of a lower rank come first; of equals, the one that waits longer."""
        return math.ceil(self.address.tries)


@dataclass(eq=False, slots=True)
class _Attempts:
    """What is remembered of one address, or of one user."""

    failures: float = 0.0
    tries: float = 0.0  # also those that were refused without being checked
    since: float = 0.0  # when there were so many
    following: float = 0.0  # when the next login may be checked
    busy: int = 0  # logins that are being checked
    queue: list[_QueuedLogin] = field(default_factory=list)

    def fade(self, backoff: Backoff, now: float) -> None:
        faded = max(0.0, now - self.since) / backoff.fades
        self.failures = max(0.0, self.failures - faded)
        self.tries = max(0.0, self.tries - faded)
        self.since = now

    def interval(self, backoff: Backoff) -> float:
        over = round(self.failures) - backoff.free
        return 0.0 if over < 0 else min(backoff.longest, backoff.first * 2.0 ** min(over, 40))


class LoginThrottle:
    """The failed logins of all addresses and users, and the logins that wait because of them."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self.attempts: OrderedDict[str, _Attempts] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(
        self, key: str, backoff: Backoff, address: str | None = None
    ) -> AsyncIterator[None]:
        """Wait until a login may be checked, which is to be done inside; TooManyLogins if that
        takes too long. `address`: the key of where it comes from, if that is another."""
        attempts = self._attempts_of(key)
        attempts.fade(backoff, self._clock())
        attempts.tries = min(attempts.tries + 1, _MOST_TRIES)
        login = _QueuedLogin(attempts if address is None else self._attempts_of(address))
        self._enter(attempts, login)
        try:
            await self._wait(attempts, backoff, login)
        finally:
            if not login.ousted:
                attempts.queue.remove(login)
        attempts.following = self._clock() + attempts.interval(backoff)
        attempts.busy += 1
        try:
            yield
        finally:
            attempts.busy -= 1

    def _enter(self, attempts: _Attempts, login: _QueuedLogin) -> None:
        """Queue a login; if the queue is full, in place of the last, if that comes after it."""
        if len(attempts.queue) >= _WAITING:
            last = max(reversed(attempts.queue), key=_QueuedLogin.rank)
            if last.rank() <= login.rank():
                raise TooManyLogins
            last.ousted = True
            attempts.queue.remove(last)
        attempts.queue.append(login)

    async def _wait(self, attempts: _Attempts, backoff: Backoff, login: _QueuedLogin) -> None:
        until = self._clock() + PATIENCE
        while not login.ousted:
            now = self._clock()
            attempts.fade(backoff, now)
            wait = attempts.following - now
            if attempts.busy >= _AT_ONCE:
                wait = max(wait, _LOOK_AGAIN)
            if wait <= 0:
                if min(attempts.queue, key=_QueuedLogin.rank) is login:
                    return
                wait = _LOOK_AGAIN
            if now + wait > until:
                break
            await self._sleep(wait)
        raise TooManyLogins

    def blocked(self, key: str) -> bool:
        """Whether logins are refused without being checked."""
        attempts = self.attempts.get(key)
        return attempts is not None and (
            len(attempts.queue) >= _WAITING or attempts.following - self._clock() > PATIENCE
        )

    def failed(self, key: str, backoff: Backoff) -> None:
        """Remember a failure."""
        now, attempts = self._clock(), self._attempts_of(key)
        attempts.fade(backoff, now)
        attempts.failures = min(attempts.failures + 1, backoff.free + _MOST_OVER)
        attempts.following = max(attempts.following, now + attempts.interval(backoff))

    def _attempts_of(self, key: str) -> _Attempts:
        attempts = self.attempts.get(key)
        if attempts is None:
            attempts = self.attempts[key] = _Attempts(since=self._clock())
        self.attempts.move_to_end(key)
        while len(self.attempts) > _MOST:
            self.attempts.popitem(last=False)
        return attempts


def network(address: str) -> str:
    """Return what an address is remembered by: an IPv6 one by its network, since one host has all
    addresses of it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 6:
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
