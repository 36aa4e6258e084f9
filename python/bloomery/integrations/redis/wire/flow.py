"""Flows: what a filter in Redis does, written once for threads and for asyncio.

A flow is a generator: it yields a round trip, a list of `Ask`, and is sent the replies to each. A
driver makes the trip: `link` in the caller's thread, `aiolink` on a loop. An error that Redis
replied with is among the replies, as an exception; what cannot be reached is raised.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from bloomery.integrations.redis.wire.failures import checked

T = TypeVar("T")


class Ask(NamedTuple):
    """Commands for the server that has this key, in a cluster."""

    key: bytes
    data: bytes  # packed, as they go over the wire
    replies: int
    again: bool = True  # may they be sent again if nobody knows whether they were done?


Flow: TypeAlias = "Generator[list[Ask], list[list[Any]], T]"


def packed(words: Iterable[bytes | str | int]) -> bytes:
    """Return one command as it goes over the wire."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    out = [b"*%d\r\n" % len(parts)]
    out += [b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]
    return b"".join(out)


def command(key: bytes, *words: bytes | str | int) -> Ask:
    """Return one command that goes to where a key lies."""
    return Ask(key, packed(words), 1)


def commands(key: bytes, *given: tuple[bytes | str | int, ...]) -> Ask:
    """Return commands that go to where a key lies, in order."""
    return Ask(key, b"".join(map(packed, given)), len(given))


def replies_to(asks: list[Ask]) -> Flow[list[list[Any]]]:
    """Make a round trip; return the replies to each ask, and raise the first that is an error."""
    return [checked(replies) for replies in (yield asks)]


def reply_to(key: bytes, *words: bytes | str | int) -> Flow[Any]:
    """Send one command to where a key lies; return its reply, or raise it if it is an error."""
    [[reply]] = yield from replies_to([command(key, *words)])
    return reply
