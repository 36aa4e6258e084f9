"""The server of HTTP: it listens on the service's own loop, makes room among its connections, and
drains when the service ends."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from uvicorn import Config

from bloomery import errors
from bloomery._native import Histogram
from bloomery.service.access.permissions import User
from bloomery.service.access.sessions import Sessions
from bloomery.service.config.settings import Settings
from bloomery.service.http import app, origin, problems
from bloomery.service.http.body.bodies import ClientDisconnected
from bloomery.service.http.connection import HttpConnection
from bloomery.service.http.endpoints import health, keys
from bloomery.service.http.pages.board import Board
from bloomery.service.http.uvicorn_internals import ServerState
from bloomery.service.network.listening import Listener, allow_files, listen
from bloomery.service.network.tls import Tls
from bloomery.service.observe.logs import Say
from bloomery.service.observe.metrics import ServerFigures
from bloomery.service.parts import Parts

_KEEP_ALIVE = 75  # seconds that a connection may be idle between requests


class HttpServer:
    """Serves clients of HTTP: only its health until the filters are loaded, then everything."""

    def __init__(
        self,
        settings: Settings,
        say: Say,
        certificate: Tls | None,
        not_ready: Callable[[bool], str],
    ) -> None:
        """`not_ready` tells why clients may not use the server, for writes too or only to read; "":
        they may."""
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.strangers: dict[HttpConnection, None] = {}  # without a request, longest first
        self.received = 0  # connections, ever
        self.refused = 0  # those that were turned away
        self.latency = Histogram()  # of requests, from the head until the response is written
        # Whatever comes here, clients of the Redis protocol and the log need files too.
        self._max_connections = allow_files(settings) // 2
        self._say = say
        self._certificate = certificate
        self._loaded = False
        self.state = ServerState()
        self._headers = origin.security_headers(certificate is not None)
        self._app = app.make(not_ready)
        self._app.state.sessions = Sessions(settings)
        self.config = Config(
            self._serve,
            interface="asgi3",
            http=HttpConnection,
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

    async def open(self, hosts: list[str], port: int) -> Listener:
        """Accept connections from now on."""
        tls: ssl.SSLContext | None = self._certificate.context if self._certificate else None
        seconds = self.settings.tls_handshake_seconds
        return await listen(lambda: HttpConnection(self), hosts, port, tls, seconds)

    def serve(
        self,
        context: Parts,
        metrics: Callable[[User], bytes],
        server_figures: Callable[[], ServerFigures],
    ) -> None:
        """Answer all requests from now on: the filters are loaded. `metrics` are those that a user
        may see, as Prometheus reads them; `server_figures` those of the server itself."""
        self._app.state.context, self._app.state.metrics = context, metrics
        self._app.state.board, self._app.state.server_figures = Board(context), server_figures
        self._loaded = True

    # Connections.

    @property
    def connections(self) -> set[HttpConnection]:
        """The connections that are open."""
        connections: Any = self.state.connections
        return connections  # type: ignore[no-any-return]

    def welcome(self, connection: HttpConnection) -> None:
        """Make room for a new client, or turn it away."""
        self.received += 1
        if len(self.connections) > min(self.settings.http_maxclients, self._max_connections):
            self.refused += 1
            stranger = next(iter(self.strangers), None)
            if stranger is None:
                connection.refuse(503, "too many connections (http-maxclients)")
                return
            del self.strangers[stranger]
            stranger.transport.abort()
        self.strangers[connection] = None

    def farewell(self, connection: HttpConnection) -> None:
        """Forget a client that is gone."""
        self.strangers.pop(connection, None)

    def sweep(self) -> None:
        """Each second: write the date into the headers, and end connections that are too slow."""
        now = self.loop.time()
        headers = [(b"date", formatdate(time.time(), usegmt=True).encode()), *self._headers]
        # Those of every response.
        self.header_lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        for connection in list(self.connections):
            connection.sweep(now)

    # Requests.

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await problems.response(refusal)(scope, receive, send)
            return
        endpoint = keys.find(scope)
        try:
            if endpoint is None:
                await self._app(scope, receive, send)
            else:
                await self._serve_keys(endpoint, scope, receive, send)
        except ClientDisconnected:
            pass
        except Exception as problem:  # noqa: BLE001  # it was answered with a 500
            self._say("a request failed", level="error", problem=problem)

    def _refusal(self, scope: Any) -> errors.BloomeryError | None:
        """Return why a request is refused before it is read; None if it is not."""
        certified = () if self._certificate is None else self._certificate.names
        refusal = origin.refusal(scope, self.settings, certified)
        if refusal is None and not self._loaded and scope["path"] not in health.ALWAYS:
            return errors.ServerUnavailable("the server is loading its filters: try again soon")
        return refusal

    async def _serve_keys(self, endpoint: Any, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = self._app
        try:
            await endpoint(scope, receive, send)
        except ClientDisconnected:
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
        for connection in list(self.connections):  # of clients that do not read
            connection.transport.abort()
