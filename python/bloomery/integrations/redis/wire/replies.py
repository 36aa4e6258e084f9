"""Replies that a connection has received already, taken all at once.

redis-py reads reply by reply, through several calls each: of 10,000 short ones that is most of the
time, and on an event loop nearly all of it. Where its parser is hiredis's, what came with a reply
is taken from there; with any other parser, or another redis-py, replies come one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

__all__ = ["can_exchange", "exchanged", "filled_by", "parsed_by", "taken"]

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


Gets: TypeAlias = "Callable[[bool], Any]"


def parsed_by(connection: Any) -> Gets | None:
    """Return what takes the next reply that is there; None: redis-py is to read it."""
    known = _hiredis()
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    if known is None or known.reader is not type(reader):
        return None
    if known.pushed is None and connection.protocol in (3, "3"):
        return None  # a message and a list cannot be told apart
    gets: Gets = getattr(reader, "gets")  # noqa: B009  # of a type not known here
    return gets


def filled_by(connection: Any) -> Callable[[], object]:
    """Return what waits until more is there, for a connection that blocks; to let redis-py read a
    reply takes 20 µs more."""
    fill: Callable[[], object] = connection._parser.read_from_socket
    return fill


def taken(gets: Gets, found: list[Any], count: int) -> tuple[bool, list[Any]]:
    """Append replies that are there, until there are so many. Return whether one of them is an
    error, and messages that came in between, which are redis-py's to handle.

    Raises what redis-py would: a server that is loading or wants a password ends the connection.
    """
    bad, told = False, list[Any]()
    known = _hiredis()
    assert known is not None, "there is something of its own to take from"
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


def can_exchange(connection: Any) -> bool:
    """Whether `exchanged` knows how this connection, which blocks, works."""
    buffer = getattr(getattr(connection, "_parser", None), "_buffer", None)
    known = parsed_by(connection) is not None and hasattr(connection, "_sock")
    return known and type(buffer) is bytearray and not connection.health_check_interval


def exchanged(connection: Any, data: bytes, count: int) -> tuple[list[Any], bool] | None:
    """Send commands, and return so many replies, and whether some are errors; None if nothing was
    sent, since the connection has gone.

    This is what `send_packed_command` and `read_response` do, and raises what they do, in a sixth
    less of the time of a single `add`.
    """
    known, parser, sock = _hiredis(), connection._parser, connection._sock
    reader: Any = parser._reader
    if known is None or reader is None or sock is None:
        return None
    gets, buffer = reader.gets, parser._buffer
    found: list[Any] = []
    bad = False
    sock.sendall(data)
    while len(found) < count:
        reply = gets(False)
        if type(reply) not in _PLAIN:
            if reply is known.nothing:
                size = sock.recv_into(buffer)
                if not size:
                    raise ConnectionResetError("the server closed the connection")
                reader.feed(buffer, 0, size)
                continue
            if known.pushed is not None and isinstance(reply, known.pushed):
                parser.handle_push_response(reply)
                continue
            if isinstance(reply, Exception):
                _raise_lost(reply)
                bad = True
        found.append(reply)
    return found, bad


def _raise_lost(reply: Exception) -> None:
    from redis.exceptions import ConnectionError

    if isinstance(reply, ConnectionError):
        raise reply
