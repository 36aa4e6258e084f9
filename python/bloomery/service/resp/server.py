"""The server of the Redis protocol: it listens, ends the connections of slow clients, and drains
when the server ends."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import time

from bloomery.service.network.listening import Listener, listen
from bloomery.service.parts import Parts
from bloomery.service.resp.client import Clients
from bloomery.service.resp.connection import RespConnection
from bloomery.service.resp.sockets import Sockets

_LOG_SECONDS = 5.0  # for what was written to be in the log, when the server ends


class RespServer:
    """Serves clients of the Redis protocol."""

    def __init__(self, context: Parts) -> None:
        self.context = context
        self.clients = Clients(context)

    async def open(self, hosts: list[str], port: int, tls: ssl.SSLContext | None) -> Listener:
        """Accept connections from now on."""
        if sys.platform == "linux" and tls is None:
            self.clients.sockets = Sockets(self.context.sequencer)
        seconds = self.context.settings.tls_handshake_seconds
        return await listen(lambda: RespConnection(self.clients), hosts, port, tls, seconds)

    def sweep(self) -> None:
        """Each second: end those that were silent too long, do not take their replies or do not
        log in."""
        now = time.monotonic()
        for connection in list(self.clients.connections.values()):
            connection.sweep(now)

    def follow_users(self) -> None:
        """Let a change of the users hold for who is connected."""
        for connection in list(self.clients.connections.values()):
            if not connection.client.follow_users():
                connection.abort()

    async def drain(self, until: float) -> None:
        """Let commands that have begun end, and their replies go out; not past a time."""
        clients = self.clients
        while clients.tasks and time.monotonic() < until:
            await asyncio.sleep(0.01)
        clients.draining = True
        for connection in list(clients.connections.values()):
            connection.stop_reading()
        # What was written is answered once it is in the log, which a thread may be busy with.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.context.sequencer.close(), _LOG_SECONDS)
        for connection in list(clients.connections.values()):
            connection.transport.close()
        while clients.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(clients.connections.values()):
            connection.abort()
        if clients.sockets is not None:
            clients.sockets.close()
