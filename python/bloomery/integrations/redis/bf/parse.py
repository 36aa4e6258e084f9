"""Replies to BF.*, of RESP2 and RESP3, checked and read: a server may send anything."""

from __future__ import annotations

from typing import Any

from bloomery.errors import BloomeryError, CorruptData, FilterExists, FilterFull, UnknownFilter
from bloomery.integrations.redis.wire.failures import refused


def says(reply: Any, words: str) -> bool:
    """Whether a reply is an error with these words."""
    return isinstance(reply, Exception) and words in str(reply).lower()


def unknown(reply: Any) -> bool:
    """Whether a reply says that the server has no such command."""
    return says(reply, "unknown command")


def failure(name: str, problem: Exception) -> BloomeryError:
    """Return the error for what a server replied about a filter."""
    if says(problem, "not found"):
        return UnknownFilter(
            f"filter {name!r} is not in this Redis: it was deleted, has expired or was evicted; "
            "create it again, and add its keys"
        )
    if says(problem, "item exists"):
        return FilterExists(f"there is a filter {name!r} already: open it, or take another name")
    if says(problem, " full"):
        return FilterFull(
            f"filter {name!r} is full, and was made not to grow (NONSCALING): the keys from the "
            "first that it refused were not added; make a larger one"
        )
    return refused(problem)


def answers(name: str, reply: Any, count: int) -> bytes:
    """Return a byte for each of so many keys: integers of RESP2, booleans of RESP3.

    A filter that is not to grow ends its reply with an error at the first key that it refuses.
    """
    if isinstance(reply, Exception):
        raise failure(name, reply) from reply
    if isinstance(reply, list):
        for item in reply:
            if isinstance(item, Exception):
                raise failure(name, item) from item
        if len(reply) == count and {*map(type, reply)} <= {int, bool} and {*reply} <= {0, 1}:
            return bytes(reply)
    raise _wrong(name, reply)


def info(name: str, reply: Any) -> dict[str, Any]:
    """Return the fields of BF.INFO: a flat list in RESP2, a map in RESP3."""
    if isinstance(reply, Exception):
        raise failure(name, reply) from reply
    if isinstance(reply, list) and len(reply) % 2 == 0:
        reply = dict(zip(map(_text, reply[::2]), reply[1::2], strict=True))
    if not isinstance(reply, dict):
        raise _wrong(name, reply)
    fields = {_text(field): value for field, value in reply.items()}
    for field in ("Capacity", "Size", "Number of filters", "Number of items inserted"):
        if type(fields.get(field)) is not int or fields[field] < 0:
            raise _wrong(name, reply)
    return fields


def capacity(name: str, reply: Any) -> int:
    """Return what BF.INFO … CAPACITY said: a list of one, a map of one, or the number itself."""
    if isinstance(reply, Exception):
        raise failure(name, reply) from reply
    if isinstance(reply, dict):
        reply = list(reply.values())
    if isinstance(reply, list) and reply:
        reply = reply[-1]
    if type(reply) is not int:
        raise _wrong(name, reply)
    return reply


def _text(field: Any) -> str:
    return field.decode("latin-1") if isinstance(field, bytes) else str(field)


def _wrong(name: str, reply: Any) -> CorruptData:
    return CorruptData(f"filter {name!r}: the server's reply is none to BF.*: {reply!r:.80}")
