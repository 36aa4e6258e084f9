"""One round trip, until every ask is answered: who is asked again, and for how long.

A cluster moves slots and changes masters, a server is restarted: what was refused for such a
reason was not done, and is sent again, as is what nobody knows the fate of if its ask allows it.
This module sends nothing: `link` and `aiolink` do, and tell it what came.
"""

from __future__ import annotations

import time
from typing import Any, Literal, NoReturn, TypeAlias

from bloomery.errors import BloomeryError
from bloomery.integrations.redis.wire.failures import refused, unavailable, unknown
from bloomery.integrations.redis.wire.flow import Ask, packed

__all__ = ["Kind", "Part", "Round", "single_commands"]

# `maybe`: one server by its URL, which can turn out to be a node of a cluster.
Kind: TypeAlias = Literal["single", "maybe", "sentinel", "cluster"]
_ASKING = packed(["ASKING"])
_FIRST, _LONGEST = 0.005, 0.25  # seconds between tries: twice as long each time


class Part:
    """What is to be sent for one ask: all of its commands, or those that were refused."""

    __slots__ = ("asked", "count", "data", "index", "places")

    def __init__(self, index: int, data: bytes, count: int, places: list[int] | None) -> None:
        self.index, self.data, self.count, self.places = index, data, count, places
        self.asked: tuple[str, int] | None = None  # the node that ASK named


class Round:
    """The asks of a round trip, and what is known of each."""

    def __init__(self, asks: list[Ask], timeout: float, place: str) -> None:
        self.asks, self.timeout, self.place = asks, timeout, place
        self.replies: list[list[Any]] = [[]] * len(asks)
        self.left = [Part(i, ask.data, ask.replies, None) for i, ask in enumerate(asks)]
        self.moved = False  # the map of the cluster is out of date
        self.tries = 0
        self._next: list[Part] = []
        self.problem: BaseException | None = None
        self._ends = False  # trying again would bring the same
        self._until = 0.0

    # ---- what came

    def answered(self, part: Part, replies: list[Any]) -> None:
        """All of a part was read, and no reply was an error."""
        found = replies[1::2] if part.asked else replies
        if part.places is None:
            self.replies[part.index] = found
        else:
            for place, reply in zip(part.places, found, strict=True):
                self.replies[part.index][place] = reply

    def read(self, part: Part, replies: list[Any], kind: Kind) -> bool:
        """All of a part was read, and some replies are errors; was it sent to the wrong server?

        Those that tell of a change are tried again. An ask that may be sent twice is sent whole:
        its first command, which tells how long the string is, belongs with the others.
        """
        from redis.exceptions import AskError, ClusterDownError, ReadOnlyError, TryAgainError

        self.answered(part, replies)
        ask, held = self.asks[part.index], self.replies[part.index]
        passing: tuple[type[Exception], ...] = (ClusterDownError, TryAgainError)
        if kind in ("maybe", "cluster"):
            passing += (AskError,)  # which MOVED is one of
        # A replica stays one unless a name or a proxy leads elsewhere: worth one more try.
        if kind in ("cluster", "sentinel") or not self.tries:
            passing += (ReadOnlyError,)
        bad = [place for place, reply in enumerate(held) if isinstance(reply, passing)]
        if not bad:
            return False
        self.problem = held[bad[0]]
        asked = [held[at] for at in bad if kind == "cluster" and type(held[at]) is AskError]
        self.moved |= not asked and not isinstance(self.problem, TryAgainError)
        if ask.again and not asked:
            self._again(part.index)
            return True
        places = list(range(ask.replies)) if ask.again else bad
        every, before = single_commands(ask.data), _ASKING if asked else b""
        data = b"".join(before + every[at] for at in places)
        some = Part(part.index, data, len(places) * (2 if asked else 1), places)
        some.asked = (asked[0].host, asked[0].port) if asked else None
        self._next.append(some)
        return True

    def unsent(self, parts: list[Part], problem: Exception) -> None:
        """No connection was to be had."""
        self._failed(problem)
        self._next += parts

    def lost(self, parts: list[Part], problem: Exception) -> None:
        """They were sent, at least in part, and no answer came."""
        self._failed(problem)
        for part in parts:
            if not self.asks[part.index].again and not self._ends:
                self._ends, self.problem = True, unknown(problem, self.place)
            self._again(part.index)

    def _again(self, index: int) -> None:
        ask = self.asks[index]
        self._next.append(Part(index, ask.data, ask.replies, None))

    def _failed(self, problem: Exception) -> None:
        from redis.exceptions import AuthenticationError, ResponseError

        self.moved = True
        if isinstance(self.problem, BloomeryError):
            return  # which ends it
        self.problem = problem
        if isinstance(problem, AuthenticationError | ResponseError):
            self._ends, self.problem = True, refused(problem)

    # ---- what is next

    def pause(self) -> float | None:
        """Seconds to wait before the next try; None if all is answered. Raises when time is up."""
        self.left, self._next = self._next, []
        if not self.left:
            return None
        now = time.monotonic()
        if not self.tries:
            self._until = now + self.timeout
        if self._ends or now >= self._until:
            self._raise()
        self.tries += 1
        if self.tries == 1:
            return 0.0
        return min(_FIRST * 2.0 ** min(self.tries, 20), _LONGEST, self._until - now)

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
    found, start = [], 0
    while start < len(data):
        at = data.index(b"\r\n", start)
        words, at = int(data[start + 1 : at]), at + 2
        for _ in range(words):
            end = data.index(b"\r\n", at)
            at = end + 2 + int(data[at + 1 : end]) + 2
        found.append(data[start:at])
        start = at
    return found
