"""The door: who is connected, and the turn: all that came in one round of the event loop is done,
logged in one commit, and only then answered."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from bloomery import _native, errors
from bloomery.service.resp import authorize, table
from bloomery.service.resp.client import Client
from bloomery.service.resp.connection import Connection
from bloomery.service.resp.failures import failure_of
from bloomery.service.resp.handlers import (
    bf,
    bf_lookup,
    bf_maintenance,
    bf_reserve,
    cf,
    config,
    info,
    introspection,
    keyspace,
    replication,
    restore,
    session,
    transactions,
)
from bloomery.service.resp.replies import Failure, encode
from bloomery.service.resp.table import Command

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["Door"]

_LOG_SECONDS = 5.0  # for what was written to be in the log, when the server ends

HANDLERS = (
    bf,
    bf_lookup,
    bf_reserve,
    bf_maintenance,
    introspection,
    cf,
    session,
    config,
    info,
    keyspace,
    replication,
    restore,
    transactions,
)  # they enter themselves


class Door:
    """Every connection of the Redis protocol."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connections: dict[int, Connection] = {}
        self.strangers: dict[int, Connection] = {}  # those who have yet to log in, oldest first
        self.tasks: set[asyncio.Future[Any]] = set()
        self.received = 0  # connections, ever
        self.refused = 0  # those that were turned away
        self.rare = 0  # commands that Python did
        self.draining = False  # nothing more is read
        self._forgotten = (0, 0, 0, 0)
        self._loop = asyncio.get_running_loop()

    # Who is here.

    def welcome(self, connection: Connection) -> tuple[_native.Session, Client]:
        """Take in a new client."""
        server, settings = self.server, self.server.settings
        session = _native.Session(
            server.engine.shelf,
            settings.max_arguments,
            settings.proto_max_bulk_len,
            settings.max_request_bytes,
        )
        peer, local = (_shown(connection, which) for which in ("peername", "sockname"))
        self.received += 1
        client = Client(self.received, server, session, peer, local)
        if len(self.connections) >= settings.maxclients and not self._make_room():
            self.refused += 1
            session.reply(b"-ERR max number of clients reached\r\n")
            client.closing = True
            self._loop.call_soon(connection.send)
        self.connections[client.id] = connection
        if client.user is None:
            self.strangers[client.id] = connection
        return session, client

    def _make_room(self) -> bool:
        """Hang up on the one that has been here longest without logging in, if there is one: those
        who only connect must not keep users out."""
        stranger = next(iter(self.strangers), None)
        if stranger is None:
            return False
        self.strangers.pop(stranger).transport.abort()
        return True

    def farewell(self, connection: Connection) -> None:
        """Forget one that is gone."""
        self.connections.pop(connection.client.id, None)
        self.strangers.pop(connection.client.id, None)

    def figures(self) -> tuple[int, ...]:
        """Connections received and refused, commands done natively and by Python, since the server
        started or CONFIG RESETSTAT."""
        return tuple(now - then for now, then in zip(self._all(), self._forgotten, strict=True))

    def forget_figures(self) -> None:
        """Count from 0."""
        self._forgotten = self._all()

    def _all(self) -> tuple[int, int, int, int]:
        return self.received, self.refused, self.server.engine.shelf.commands, self.rare

    def sweep(self) -> None:
        """Close those that were silent too long, do not take their replies or do not log in."""
        now, settings = time.monotonic(), self.server.settings
        for connection in list(self.connections.values()):
            idle = settings.timeout and now - connection.client.last > settings.timeout
            slow = connection.paused and now - connection.since > settings.slow_client_seconds
            stalls = connection.stalls(now, settings.request_seconds)
            late = stalls or self._over(connection.client, now)
            if slow or late or (idle and not connection.busy):
                connection.transport.abort()

    def _over(self, client: Client, now: float) -> bool:
        """Whether one has taken too long to log in, or its token's time is over."""
        if client.user is None:
            return now - client.unknown_since > self.server.settings.login_seconds
        return client.login is not None and client.login.over()

    def follow_users(self) -> None:
        """Let a change of the users hold for who is connected."""
        for connection in list(self.connections.values()):
            if not connection.client.still_welcome():
                connection.transport.abort()

    async def drain(self, until: float) -> None:
        """Let commands that have begun end, and their replies go out; not past a time."""
        while self.tasks and time.monotonic() < until:
            await asyncio.sleep(0.01)
        self.draining = True
        for connection in list(self.connections.values()):
            if not connection.transport.is_closing():
                connection.transport.pause_reading()
        # What was written is answered once it is in the log, which a thread may be busy with.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.server.turns.close(), _LOG_SECONDS)
        for connection in list(self.connections.values()):
            connection.transport.close()
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.connections.values()):
            connection.transport.abort()

    # The turn.

    def begin(self, connection: Connection) -> None:
        """Count a connection into this turn."""
        connection.client.last = time.monotonic()
        if not connection.joined:
            connection.joined = True
            self.server.turns.join(connection)

    # Commands.

    def execute(self, client: Client, words: list[bytes]) -> Awaitable[None] | None:
        """Do a command and reply, or return what is to be waited for, which replies."""
        self.rare += 1
        write, command = False, None
        value: Any = None
        try:
            command = table.find(words)
            client.command = command.full_name
            authorize.check(client, command, words)
            if client.queue is not None and command.name not in transactions.AT_ONCE:
                value = transactions.enqueue(client, command, words)
            else:
                write = command.write
                names = self._names(client, command, words)
                if self.server.aside.holds(names):
                    value = self._when_free(names, client, command, words)
                else:
                    value = self._do(client, command, words)
        except Exception as problem:  # noqa: BLE001  # a client must not end the others' server
            value = self._failed(problem)
            refused = isinstance(value, Failure) and value.text.startswith(("NOAUTH", "NOPERM"))
            client.spoiled |= client.queue is not None and (command is None or refused)
        if isinstance(value, Awaitable):
            assert command is not None
            return self._later(client, command, words, value)
        client.session.reply(encode(value, client.session.protocol), write)
        return None

    def _names(self, client: Client, command: Command, words: list[bytes]) -> list[bytes]:
        """The names of filters that a command is about; of EXEC, those of its commands."""
        if command.name != "EXEC" or client.queue is None:
            return command.names(words)
        return [name for one in client.queue for name in table.find(one).names(one)]

    async def _when_free(
        self, names: list[bytes], client: Client, command: Command, words: list[bytes]
    ) -> Any:
        """Do a command when nobody works on its filters."""
        await self.server.aside.free(*names)
        self.server.turns.join()
        value = self._do(client, command, words)
        return await value if isinstance(value, Awaitable) else value

    def _do(self, client: Client, command: Command, words: list[bytes], now: bool = False) -> Any:
        """Do a command; what is administrative is noted, at once or when it is done. `now`: what
        takes long is not begun."""
        try:
            names, rest = command.names(words), words[command.words :]
            value = self.server.aside.do(names, lambda: command.handler(client, rest), now)
        except Exception:
            authorize.note(client, command, words, "failed")
            raise
        if not isinstance(value, Awaitable):
            authorize.note(client, command, words, "done")
        return value

    async def _later(
        self, client: Client, command: Command, words: list[bytes], value: Awaitable[Any]
    ) -> None:
        try:
            reply = await value
            authorize.note(client, command, words, "done")
        except Exception as problem:  # noqa: BLE001  # as above
            reply = self._failed(problem)
            authorize.note(client, command, words, "failed")
        client.session.reply(encode(reply, client.session.protocol), command.write)

    def _failed(self, problem: Exception) -> Failure:
        """Return the error reply; what nobody expected goes to the operator too."""
        if isinstance(problem, Failure):
            # Some are raised again and again: with each time they would keep one more call's frames
            # and arguments.
            return problem.with_traceback(None)
        if isinstance(problem, (errors.BloomeryError, MemoryError)):
            return failure_of(problem.with_traceback(None))
        self.server.say("a command failed in a way of its own", level="error", problem=problem)
        return Failure(f"ERR internal error: {type(problem).__name__}; the server has printed more")

    def perform(self, client: Client, words: list[bytes]) -> Any:
        """Do a command of a transaction; its value, or its failure."""
        try:
            command = table.find(words)
            authorize.check(client, command, words)  # again: what one may can change before EXEC
            value = self._do(client, command, words, now=True)
        except Exception as problem:  # noqa: BLE001  # as above
            return self._failed(problem)
        if isinstance(value, Awaitable):
            authorize.note(client, command, words, "failed")
            getattr(value, "close", lambda: None)()
            return Failure("ERR Command not allowed inside a transaction: it takes long")
        return value


def _shown(connection: Connection, which: str) -> str:
    found = connection.transport.get_extra_info(which)
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else str(found or "")
