"""The door: who is connected, and the turn: all that came in one round of the event loop is done,
logged in one commit, and only then answered."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from bloomery import _native, errors
from bloomery.service.resp import bf, cf, clients, info, keyspace, table, transactions
from bloomery.service.resp.client import Client
from bloomery.service.resp.connection import Connection
from bloomery.service.resp.failures import failure_of
from bloomery.service.resp.replies import Failure, encode

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["Door"]

HANDLERS = (bf, cf, clients, info, keyspace, transactions)  # imported for what they enter


class Door:
    """Every connection of the Redis protocol."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connections: dict[int, Connection] = {}
        self.tasks: set[asyncio.Future[Any]] = set()
        self.refused = 0  # connections turned away
        self.rare = 0  # commands that Python did
        self._numbers = itertools.count(1)
        self._turn: list[Connection] = []
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
        client = Client(next(self._numbers), server, session, peer, local)
        if len(self.connections) >= settings.maxclients:
            self.refused += 1
            session.reply(b"-ERR max number of clients reached\r\n")
            client.closing = True
            self._loop.call_soon(connection.send)
        self.connections[client.id] = connection
        return session, client

    def farewell(self, connection: Connection) -> None:
        """Forget one that is gone."""
        self.connections.pop(connection.client.id, None)

    def sweep(self) -> None:
        """Close those that were silent too long, or do not take their replies."""
        now, settings = time.monotonic(), self.server.settings
        for connection in list(self.connections.values()):
            idle = settings.timeout and now - connection.client.last > settings.timeout
            slow = connection.paused and now - connection.since > settings.slow_client_seconds
            if slow or (idle and not connection.busy):
                connection.transport.abort()

    # The turn.

    def begin(self, connection: Connection) -> None:
        """Count a connection into this turn."""
        turn = self._turn
        if not turn:
            self.server.engine.begin()
            self._loop.call_soon(self.end)
        turn.append(connection)

    def end(self) -> None:
        """Write the log, then answer."""
        turn, self._turn = self._turn, []
        try:
            self.server.engine.commit()
        except errors.LogUnavailable as problem:
            error = encode(failure_of(problem), 2)
            for connection in turn:
                connection.session.fail(error)
            self.server.say(f"the log cannot be written, writes are refused: {problem}")
        for connection in turn:
            connection.send()

    # Commands.

    def execute(self, client: Client, words: list[bytes]) -> Awaitable[None] | None:
        """Do a command and reply, or return what is to be waited for, which replies."""
        self.rare += 1
        client.last = time.monotonic()
        write = False
        try:
            command = table.find(words)
            client.command = command.name.lower()
            if client.queue is not None and command.name not in transactions.AT_ONCE:
                client.queue.append(words)
                value: Any = "QUEUED"
            else:
                write = command.write
                value = command.handler(client, words[1:])
        except Failure as failure:
            value = failure
            client.spoiled = client.queue is not None
        except (errors.BloomeryError, MemoryError) as problem:
            value = failure_of(problem)
        if isinstance(value, Awaitable):
            return self._later(client, value, write)
        client.session.reply(encode(value, client.session.protocol), write)
        return None

    async def _later(self, client: Client, value: Awaitable[Any], write: bool) -> None:
        try:
            reply = await value
        except Failure as failure:
            reply = failure
        except (errors.BloomeryError, MemoryError) as problem:
            reply = failure_of(problem)
        client.session.reply(encode(reply, client.session.protocol), write)

    def perform(self, client: Client, words: list[bytes]) -> Any:
        """Do a command of a transaction; its value, or its failure."""
        try:
            command = table.find(words)
            value = command.handler(client, words[1:])
        except Failure as failure:
            return failure
        except (errors.BloomeryError, MemoryError) as problem:
            return failure_of(problem)
        if isinstance(value, Awaitable):
            getattr(value, "close", lambda: None)()
            return Failure("ERR Command not allowed inside a transaction")
        return value


def _shown(connection: Connection, which: str) -> str:
    found = connection.transport.get_extra_info(which)
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else str(found or "")
