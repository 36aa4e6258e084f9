"""What is used of redis-py beyond its public API: no other module knows its private attributes.

redis-py reads reply by reply, through several calls each: of 10,000 short ones that is most of the
time, and on an event loop nearly all of it. Where its parser is hiredis's, what came with a reply
is taken from there. To take a connection from the pool of redis-py and to give it back was a third
of the processor time of a single `add`, so one is kept, and asked directly. Measured with redis-py
8.1, in processor time: by its public API alone a single `add` takes 69 µs instead of 40, and 10,000
keys on an event loop 24 ms instead of 12.

pyproject.toml bounds redis-py by the versions whose attributes are known to be these; with others,
or another parser, everything works by the public API, and takes longer.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from bloomery.integrations.redis.wire.failures import reply_failures, troubles

Replies: TypeAlias = "tuple[list[Any], bool]"  # and whether some are errors
_Gets: TypeAlias = "Callable[[bool], Any]"

# The private attributes of a connection that are used, all of them.
_parser_of = attrgetter("_parser")
_reader_of = attrgetter("_parser._reader")
_buffer_of = attrgetter("_parser._buffer")
_socket_of = attrgetter("_sock")

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


def buffered(connection: Any) -> _Gets | None:
    """Return what takes the next reply that has come already; None: redis-py is to read it."""
    known, reader = _hiredis(), _if_any(_reader_of, connection)
    if known is None or known.reader is not type(reader):
        return None
    if known.pushed is None and connection.protocol in (3, "3"):
        return None  # a message and a list cannot be told apart
    gets: _Gets = getattr(reader, "gets")  # noqa: B009  # of a type not known here
    return gets


def _if_any(attribute: Callable[[Any], Any], connection: Any) -> Any:
    """Return an attribute; None if this redis-py does not have it."""
    try:
        return attribute(connection)
    except AttributeError:
        return None


def _take(gets: _Gets, replies: list[Any], count: int) -> tuple[bool, list[Any]]:
    """Append replies that have come already, until there are so many. Return whether one of them
    is an error, and messages that came in between, which are redis-py's to handle.

    Raises what redis-py would: a server that is loading or wants a password ends the connection.
    """
    errors, pushed = False, list[Any]()
    known = _hiredis()
    assert known is not None, "there is something of its own to take from"
    while len(replies) < count:
        reply = gets(False)
        if type(reply) not in _PLAIN:
            if reply is known.nothing:
                break
            if known.pushed is not None and isinstance(reply, known.pushed):
                pushed.append(reply)
                continue
            if isinstance(reply, Exception):
                _raise_lost(reply)
                errors = True
        replies.append(reply)
    return errors, pushed


def _raise_lost(reply: Exception) -> None:
    from redis.exceptions import ConnectionError

    if isinstance(reply, ConnectionError):
        raise reply


class ReplyReader:
    """Reads replies from a connection that blocks, those that came together all at once."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._gets = connection, buffered(connection)
        # Waits until more has come: to let redis-py read a reply takes 20 µs more.
        self._receive: Callable[[], object] | None = None
        if self._gets is not None and not connection.health_check_interval:
            self._receive = _parser_of(connection).read_from_socket
        self._begun = False

    def read(self, count: int) -> Replies:
        """Return so many replies, errors of Redis among them as exceptions, and whether there are
        some. Raises if the connection is lost."""
        connection, gets, receive = self._connection, self._gets, self._receive
        refusal = reply_failures()[1]
        replies: list[Any] = []
        errors = False
        look_first, self._begun = self._begun, True  # more than the last replies may have come
        while len(replies) < count:
            try:
                if receive is None:
                    replies.append(connection.read_response(disable_decoding=True))
                elif not look_first:
                    receive()
                look_first = False
                if gets is not None:
                    refusals, pushed = _take(gets, replies, count)
                    errors |= refusals
                    for message in pushed:
                        _parser_of(connection).handle_push_response(message)
            except refusal as problem:
                replies.append(problem)
                errors = True
        return replies, errors


class AsyncReplyReader:
    """The same for a connection of redis.asyncio."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._gets = connection, buffered(connection)

    async def read(self, count: int) -> Replies:
        """As that of `ReplyReader`; the first reply is read by redis-py, which minds the time."""
        connection, gets = self._connection, self._gets
        refusal = reply_failures()[1]
        replies: list[Any] = []
        errors = False
        while len(replies) < count:
            try:
                replies.append(await connection.read_response(disable_decoding=True))
                if gets is not None:
                    refusals, pushed = _take(gets, replies, count)
                    errors |= refusals
                    for message in pushed:
                        await _parser_of(connection).handle_push_response(message)
            except refusal as problem:
                replies.append(problem)
                errors = True
        return replies, errors


class KeptConnection:
    """A connection that blocks, taken from a pool and kept for the next round trip."""

    __slots__ = ("_poll", "_reader", "_sock", "connection", "direct", "pid", "pool")

    def __init__(self, pool: Any, connection: Any) -> None:
        self.pool, self.connection, self.pid = pool, connection, os.getpid()
        self._sock: Any = _if_any(_socket_of, connection)
        self._reader: Any = _if_any(_reader_of, connection)
        known = buffered(connection) is not None and self._sock is not None
        known = known and type(_if_any(_buffer_of, connection)) is bytearray
        self.direct = known and not connection.health_check_interval  # for `exchange`
        self._poll: Any = None
        plain = type(self._sock) is socket.socket and hasattr(self._reader, "has_data")
        if plain and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(self._sock, select.POLLIN)

    @property
    def polls(self) -> bool:
        """Whether `is_idle` asks the socket directly, and not by redis-py."""
        return self._poll is not None

    def is_idle(self) -> bool:
        """Whether it is open, and nothing came that nobody asked for: as the pool checks, which
        takes longer where it is hiredis's and not encrypted."""
        if self._poll is not None:
            if _socket_of(self.connection) is not self._sock:
                return False
            return not self._reader.has_data() and not self._poll.poll(0)
        try:
            return not self.connection.can_read()
        except troubles():
            return False

    def discard(self) -> None:
        """Let the pool have it, closed: with RESP3 the pool would hand it out again as it is, since
        what is there may be a message."""
        self.connection.disconnect()
        self.pool.release(self.connection)

    def exchange(self, data: bytes, count: int) -> Replies | None:
        """Send packed commands, and return so many replies; None if nothing was sent, since the
        connection has gone. Only where `direct`.

        This is what `send_packed_command` and `read_response` do, and raises what they do, in a
        sixth less of the time of a single `add`.
        """
        known, sock = _hiredis(), _socket_of(self.connection)
        reader: Any = _reader_of(self.connection)
        if known is None or reader is None or sock is None:
            return None
        gets, buffer = reader.gets, _buffer_of(self.connection)
        replies: list[Any] = []
        errors = False
        sock.sendall(data)
        while len(replies) < count:
            reply = gets(False)
            if type(reply) not in _PLAIN:
                if reply is known.nothing:
                    size = sock.recv_into(buffer)
                    if not size:
                        raise ConnectionResetError("the server closed the connection")
                    reader.feed(buffer, 0, size)
                    continue
                if known.pushed is not None and isinstance(reply, known.pushed):
                    _parser_of(self.connection).handle_push_response(reply)
                    continue
                if isinstance(reply, Exception):
                    _raise_lost(reply)
                    errors = True
            replies.append(reply)
        return replies, errors


class AsyncNodePool:
    """A node of a cluster, used as a pool of connections is: redis-py's own hands out connections
    that have ended, or are out of step."""

    def __init__(self, node: Any) -> None:
        self.node = node

    async def get_connection(self) -> Any:
        """Return a connection that is open, and has nothing left to be read."""
        connection = self.node.acquire_connection()
        try:
            if connection.is_connected and await _is_stale(connection):
                await connection.disconnect(nowait=True)
            if not connection.is_connected:
                await connection.connect()
        except BaseException:
            self.node.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        """Let the next one have it."""
        self.node.release(connection)


async def _is_stale(connection: Any) -> bool:
    try:
        return bool(await connection.can_read())
    except Exception:  # noqa: BLE001  # whatever it is, this one is not to be used
        return True
