"""The door: uvicorn's protocol on the server's own loop; who is connected, and for how long."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from uvicorn.config import Config
from uvicorn.server import ServerState

from bloomery import errors
from bloomery.service.http import app, origin, problems
from bloomery.service.http.body.bodies import Bodies, Gone
from bloomery.service.http.endpoints import health, keys
from bloomery.service.http.protocol import Connection
from bloomery.service.network.listening import Listener, allow_files, listen

if TYPE_CHECKING:
    import ssl

    from bloomery.service.server import Server

__all__ = ["HttpDoor"]

_KEEP_ALIVE = 75  # seconds that a connection may be idle between requests


class HttpDoor:
    """Every connection of HTTP."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.bodies = Bodies(server)
        self.strangers: dict[Connection, None] = {}  # without a request, longest first
        self.exports: WeakSet[Any] = WeakSet()  # files that are sent; each goes with its request
        self.received = 0  # connections, ever
        self.refused = 0  # those that were turned away
        # Whatever comes here, the other door and the log have files too.
        self._most = allow_files(server.settings) // 2
        self.state = ServerState()
        self._headers = origin.security_headers(server.tls is not None)
        self._app = app.make(server)
        self.config = Config(
            self._serve,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
        )
        self.config.load()
        self.sweep()

    async def open(
        self, hosts: list[str], port: int, tls: ssl.SSLContext | None = None
    ) -> Listener:
        """Take connections from now on."""
        seconds = self.server.settings.tls_handshake_seconds
        return await listen(lambda: Connection(self), hosts, port, tls, seconds)

    # Who is here.

    @property
    def connections(self) -> set[Connection]:
        """All of them."""
        found: Any = self.state.connections
        return found  # type: ignore[no-any-return]

    def welcome(self, connection: Connection) -> None:
        """Make room for a new client, or turn it away."""
        self.received += 1
        if len(self.connections) > min(self.server.settings.http_maxclients, self._most):
            self.refused += 1
            stranger = next(iter(self.strangers), None)
            if stranger is None:
                connection.refuse(503, "too many connections (http-maxclients)")
                return
            del self.strangers[stranger]
            stranger.transport.abort()
        self.strangers[connection] = None

    def farewell(self, connection: Connection) -> None:
        """Forget one that is gone."""
        self.strangers.pop(connection, None)

    def sweep(self) -> None:
        """Each second: tell the time, and end those that are too slow."""
        now = self.loop.time()
        headers = [(b"date", formatdate(time.time(), usegmt=True).encode()), *self._headers]
        self.lines = b"".join(b"%b: %b\r\n" % one for one in headers)  # of every answer's head
        for connection in list(self.connections):
            connection.sweep(now)

    # Requests.

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await problems.answer(refusal)(scope, receive, send)
            return
        answer = keys.find(scope)
        try:
            if answer is None:
                await self._app(scope, receive, send)
            else:
                await self._serve_keys(answer, scope, receive, send)
        except Gone:
            pass
        except Exception as problem:  # noqa: BLE001  # it was answered with a 500
            self.server.say("a request failed", level="error", problem=problem)

    def _refusal(self, scope: Any) -> errors.BloomeryError | None:
        """Why a request is not even looked at; None if it is."""
        refusal = origin.refusal(self.server, scope)
        if refusal is None and not self.server.loaded and scope["path"] not in health.ALWAYS:
            return errors.ServerUnavailable("the server is loading its filters: try again soon")
        return refusal

    async def _serve_keys(self, answer: Any, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = self._app
        try:
            await answer(scope, receive, send)
        except Gone:
            raise
        except Exception as problem:
            await app.failure(problem)(scope, receive, send)
            if not isinstance(problem, (errors.BloomeryError, MemoryError)):
                raise

    # The end.

    async def drain(self, until: float) -> None:
        """Let requests that have begun end, and then all connections; not past a time."""
        for connection in list(self.connections):
            connection.shutdown()
        while self.state.tasks and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.close()
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
