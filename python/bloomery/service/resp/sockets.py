"""Connections in the clear that native code reads and answers: all that sent something are one call
of it, and all replies of a turn another.

    epoll of these sockets ──readable──> the loop: join the turn ──> read: parsed, done
                                                                      └──> Python, what is not usual
                     the end of the turn: logged, if anything was written ──> write: answered

Without a pipeline each request is a wake-up; as a call of its own for each connection, from the
loop through its transport and back, a request took a third more time. All replies of a turn go out
together: sent as soon as they were there, 50 clients got 87,000 answers a second instead of 107,000
(one run of six rounds). What the socket does not take, the end and errors are for the transport,
and so is TLS.
"""

from __future__ import annotations

import asyncio
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from bloomery import _native
from bloomery.service.group_commit import CommitWaiter, Turns

FeedResult: TypeAlias = list[bytes] | str | bool | None  # of `Session.feed`


class DirectConnection(CommitWaiter, Protocol):
    """A connection whose socket native code reads."""

    socket: int
    session: _native.Session

    def resume(self, command: FeedResult, before: int, came: int) -> None:
        """Go on with what was read: so many bytes had waited, and so many came."""

    def data_received(self, data: bytes) -> None:
        """Take what came while its commands wait."""

    def hand_back_reading(self) -> None:
        """Have the transport read from now on."""

    def abort(self) -> None:
        """End it at once."""


class Sockets:
    """The sockets that native code reads, of one server."""

    def __init__(self, turns: Turns) -> None:
        assert sys.platform == "linux"
        self._turns = turns
        self._native = _native.Sockets()
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._round)

    def close(self) -> None:
        """Read no more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def add(self, connection: DirectConnection) -> None:
        """Read this connection's socket, which stays open until it is removed."""
        self._native.add(connection.socket, connection.session, connection)
        self.watch(connection, True)

    def remove(self, connection: DirectConnection) -> None:
        """Read it no more."""
        self.watch(connection, False)
        self._native.remove(connection.socket)

    def watch(self, connection: DirectConnection, wanted: bool) -> None:
        """Read what comes, or let it wait at the client's."""
        number = connection.socket
        if wanted and number not in self._watched:
            self._watched.add(number)
            self._epoll.register(number, select.EPOLLIN)
        elif not wanted and number in self._watched:
            self._watched.remove(number)
            self._epoll.unregister(number)

    def _round(self) -> None:
        """Do what came, as a part of this turn."""
        ready = self._epoll.poll(0)
        self._turns.join(self)
        fed, held, ended = self._native.read(ready, time.monotonic())
        for connection, *what in fed:
            self._step(connection, partial(connection.resume, *what))
        for connection, data in held:
            self._step(connection, partial(connection.data_received, data))
        for connection in ended:
            self._step(connection, connection.hand_back_reading)

    def _step(self, connection: DirectConnection, step: Callable[[], None]) -> None:
        """Let a connection go on; if that fails, end it, and let the others have their turn."""
        try:
            step()
        except Exception as problem:  # noqa: BLE001
            self._loop.call_exception_handler(
                {"message": "a connection has failed", "exception": problem}
            )
            connection.abort()

    # As a member of a turn.

    def take_waiters(self) -> list[CommitWaiter]:
        """The connections that were read in this turn, each to be answered by itself: `send` will
        not."""
        return self._native.take()

    def send(self) -> None:
        """Let the replies of this turn go out."""
        for connection in self._native.write():
            connection.send()

    def flush(self, connection: DirectConnection) -> bool:
        """Let the replies of one connection go out; False if some are left."""
        return self._native.send(connection.socket)
