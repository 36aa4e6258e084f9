"""Replies that a connection has received already, taken all at once.

redis-py reads reply by reply, through several calls each: of 10,000 short ones that is most of the
time, and on an event loop nearly all of it. Where its parser is hiredis's, what came with a reply
is taken from there; with any other parser, or another redis-py, replies come one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

__all__ = ["taken"]

_PLAIN = (bytes, int, list)


class _Hiredis(NamedTuple):
    reader: type
    nothing: object  # what redis-py lets it return for want of data
    pushed: type | None  # a message of RESP3 that nobody asked for


@cache
def _hiredis() -> _Hiredis | None:
    try:
        import hiredis
        from redis._parsers.hiredis import NOT_ENOUGH_DATA
    except ImportError:
        return None
    return _Hiredis(hiredis.Reader, NOT_ENOUGH_DATA, getattr(hiredis, "PushNotification", None))


def _gets(connection: Any, known: _Hiredis | None) -> Callable[[bool], Any] | None:
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    if known is None or known.reader is not type(reader):
        return None
    if connection.protocol in (3, "3") and known.pushed is None:
        return None  # a message and a list cannot be told apart
    gets: Callable[[bool], Any] = getattr(reader, "gets")  # noqa: B009  # of a type not known here
    return gets


def taken(connection: Any, found: list[Any], count: int) -> tuple[bool, list[Any]]:
    """Append replies that are there, until there are so many. Return whether one of them is an
    error, and messages that came in between, which are redis-py's to handle.

    Raises what redis-py would: a server that is loading or wants a password ends the connection.
    """
    bad, told = False, list[Any]()
    known = _hiredis()
    gets = _gets(connection, known)
    if gets is None or known is None:
        return bad, told
    while len(found) < count:
        reply = gets(False)
        if type(reply) not in _PLAIN:
            if reply is known.nothing:
                break
            if known.pushed is not None and isinstance(reply, known.pushed):
                told.append(reply)
                continue
            if isinstance(reply, Exception):
                _raise_lost(reply)
                bad = True
        found.append(reply)
    return bad, told


def _raise_lost(reply: Exception) -> None:
    from redis.exceptions import ConnectionError

    if isinstance(reply, ConnectionError):
        raise reply
