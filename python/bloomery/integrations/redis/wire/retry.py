"""Retries of a round trip after a failover, a moved slot, a restart or a lost connection.

A cluster moves slots, a failover makes a replica the master, a server is restarted: what was
refused for such a reason was not done, and is sent again. So is what may or may not have been done,
because the connection was lost, if its `Ask` allows that (`again`). Retries go on until everything
is answered or the timeout is over. This module sends nothing: `baselink` and `aiolink` do,
and tell it what came.
"""

from __future__ import annotations

import time
from typing import Any, NoReturn

from bloomery.errors import BloomeryError
from bloomery.integrations.redis.wire.failures import refused, unavailable, unknown
from bloomery.integrations.redis.wire.flow import Ask, packed
from bloomery.redis_client import Routing

_ASKING = packed(["ASKING"])
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25  # seconds between retries: twice as long each time


class Sending:
    """What is to be sent for one ask: all of its commands, or those that were refused."""

    __slots__ = ("count", "data", "index", "positions", "redirect")

    def __init__(self, index: int, data: bytes, count: int, positions: list[int] | None) -> None:
        self.index, self.data, self.count, self.positions = index, data, count, positions
        self.redirect: tuple[str, int] | None = None  # the node that ASK named


class RoundTrip:
    """The asks of a round trip, and what is known of each."""

    def __init__(self, asks: list[Ask], timeout: float, place: str) -> None:
        self.asks, self.timeout, self.place = asks, timeout, place
        self.replies: list[list[Any]] = [[]] * len(asks)
        self.left = [Sending(i, ask.data, ask.replies, None) for i, ask in enumerate(asks)]
        self.moved = False  # the map of the cluster is out of date
        self.retries = 0
        self._next: list[Sending] = []
        self.problem: BaseException | None = None
        self._hopeless = False  # a retry would bring the same
        self._deadline = 0.0

    # ---- what came

    def answered(self, sending: Sending, replies: list[Any]) -> None:
        """Note the replies to all of a sending, none of which is an error."""
        own = replies[1::2] if sending.redirect else replies  # the others are those to ASKING
        if sending.positions is None:
            self.replies[sending.index] = own
        else:
            for position, reply in zip(sending.positions, own, strict=True):
                self.replies[sending.index][position] = reply

    def refused(self, sending: Sending, replies: list[Any], routing: Routing) -> bool:
        """Note the replies to all of a sending, some of which are errors. Return whether it went
        to the wrong server.

        What was refused because of a failover or a moved slot is sent again. An ask that may be
        sent twice is sent whole: its first command, which tells how long the string is, belongs
        with the others.
        """
        from redis.exceptions import AskError, ClusterDownError, ReadOnlyError, TryAgainError

        self.answered(sending, replies)
        ask, every_reply = self.asks[sending.index], self.replies[sending.index]
        passing: tuple[type[Exception], ...] = (ClusterDownError, TryAgainError)
        if routing in ("maybe", "cluster"):
            passing += (AskError,)  # which MOVED is one of
        # A replica stays one unless a name or a proxy leads elsewhere: worth one retry.
        if routing in ("cluster", "sentinel") or not self.retries:
            passing += (ReadOnlyError,)
        bad = [position for position, reply in enumerate(every_reply) if isinstance(reply, passing)]
        if not bad:
            return False
        self.problem = every_reply[bad[0]]
        redirects = [
            every_reply[position]
            for position in bad
            if routing == "cluster" and type(every_reply[position]) is AskError
        ]
        self.moved |= not redirects and not isinstance(self.problem, TryAgainError)
        if ask.again and not redirects:
            self._send_again(sending.index)
            return True
        positions = list(range(ask.replies)) if ask.again else bad
        every, before = single_commands(ask.data), _ASKING if redirects else b""
        data = b"".join(before + every[position] for position in positions)
        rest = Sending(sending.index, data, len(positions) * (2 if redirects else 1), positions)
        rest.redirect = (redirects[0].host, redirects[0].port) if redirects else None
        self._next.append(rest)
        return True

    def unsent(self, sendings: list[Sending], problem: Exception) -> None:
        """Note that there was no connection, and nothing was sent."""
        self._failed(problem)
        self._next += sendings

    def lost(self, sendings: list[Sending], problem: Exception) -> None:
        """Note that the connection was lost when these were sent, at least in part."""
        self._failed(problem)
        for sending in sendings:
            if not self.asks[sending.index].again and not self._hopeless:
                self._hopeless, self.problem = True, unknown(problem, self.place)
            self._send_again(sending.index)

    def _send_again(self, index: int) -> None:
        ask = self.asks[index]
        self._next.append(Sending(index, ask.data, ask.replies, None))

    def _failed(self, problem: Exception) -> None:
        from redis.exceptions import AuthenticationError, ResponseError

        self.moved = True
        if isinstance(self.problem, BloomeryError):
            return  # there is no retry after this one
        self.problem = problem
        if isinstance(problem, AuthenticationError | ResponseError):
            self._hopeless, self.problem = True, refused(problem)

    # ---- what is next

    def pause(self) -> float | None:
        """Return the seconds to wait before the next retry; None if everything is answered.

        Raises StoreUnavailable when the timeout is over, and StoreRefused if a retry is hopeless.
        """
        self.left, self._next = self._next, []
        if not self.left:
            return None
        now = time.monotonic()
        if not self.retries:
            self._deadline = now + self.timeout
        if self._hopeless or now >= self._deadline:
            self._raise()
        self.retries += 1
        if self.retries == 1:
            return 0.0
        pause = _FIRST_PAUSE * 2.0 ** min(self.retries, 20)
        return min(pause, _LONGEST_PAUSE, self._deadline - now)

    def _raise(self) -> NoReturn:
        from redis.exceptions import AskError, ReadOnlyError

        problem = self.problem
        assert problem is not None, "something is left, so something went wrong"
        if isinstance(problem, BloomeryError):
            raise problem
        if isinstance(problem, AskError | ReadOnlyError):
            raise refused(problem) from problem
        raise unavailable(problem, self.place, self.timeout) from problem


def single_commands(data: bytes) -> list[bytes]:
    """Return packed commands one by one."""
    commands, start = [], 0
    while start < len(data):
        at = data.index(b"\r\n", start)
        words, at = int(data[start + 1 : at]), at + 2
        for _ in range(words):
            end = data.index(b"\r\n", at)
            at = end + 2 + int(data[at + 1 : end]) + 2
        commands.append(data[start:at])
        start = at
    return commands
