"""The HTTP server: listens on the service's event loop, limits its connections, and drains them at
shutdown.

    origin ──> /healthz, /readyz (`health`) ──> loading: 503 ──> the application (`app`)

The application is imported after the filters are loaded. Until it is there, requests wait.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from bloomery import errors
from bloomery._native import Histogram
from bloomery.service.config.settings import Settings
from bloomery.service.http import health, origin
from bloomery.service.http.connection import HttpConnection
from bloomery.service.http.request_cycle import Application, ClientDisconnected
from bloomery.service.network.listening import Listener, allow_files, listen
from bloomery.service.network.tls import Tls
from bloomery.service.observe.logs import Say


class HttpServer:
    """Serves HTTP clients: only its health until the filters are loaded, then everything."""

    def __init__(
        self,
        settings: Settings,
        say: Say,
        certificate: Tls | None,
        not_ready: Callable[[bool], str],
        broken: Callable[[], str] = str,
    ) -> None:
        """`not_ready` returns why clients may not use the server, to write (True) or to read; "" if
        they may. `broken` returns why only a restart can help; "" if that is not so."""
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.connections: set[HttpConnection] = set()
        self.idle: dict[HttpConnection, None] = {}  # without a request, longest first
        self.tasks: set[asyncio.Task[None]] = set()  # of requests
        self.received = 0  # connections, ever
        self.refused = 0  # connections that were turned away
        self.latency = Histogram()  # of requests, from the header until the response is written
        self.application: Application = self._serve
        # RESP clients and the log need files too.
        self._max_connections = allow_files(settings) // 2
        self._say = say
        self._certificate = certificate
        self._not_ready, self._broken = not_ready, broken
        self._loaded = False
        self._application: Application | None = None
        self._opened = asyncio.Event()  # there is an application
        self._headers = origin.security_headers(certificate is not None)
        self.sweep()

    async def open(self, hosts: list[str], port: int) -> Listener:
        """Accept connections from now on."""
        tls: ssl.SSLContext | None = self._certificate.context if self._certificate else None
        seconds = self.settings.tls_handshake_seconds
        return await listen(lambda: HttpConnection(self), hosts, port, tls, seconds)

    def hold(self) -> None:
        """Let requests wait for the application from now on: the filters are loaded."""
        self._loaded = True

    def serve(self, application: Application) -> None:
        """Answer all requests from now on, also those that wait."""
        self._loaded, self._application = True, application
        self._opened.set()

    # Connections.

    def welcome(self, connection: HttpConnection) -> None:
        """Make room for a new client, or turn it away."""
        self.received += 1
        if len(self.connections) > min(self.settings.http_maxclients, self._max_connections):
            self.refused += 1
            oldest = next(iter(self.idle), None)
            if oldest is None:
                connection.refuse(503, "too many connections (http-maxclients)")
                return
            del self.idle[oldest]
            oldest.transport.abort()
        self.idle[connection] = None

    def sweep(self) -> None:
        """Each second: write the date into the headers, and close connections that are too slow."""
        now = self.loop.time()
        headers = [(b"date", formatdate(time.time(), usegmt=True).encode()), *self._headers]
        self.header_lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        for connection in list(self.connections):
            connection.sweep(now)

    # Requests.

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        certified = () if self._certificate is None else self._certificate.names
        refusal: errors.BloomeryError | None = origin.refusal(scope, self.settings, certified)
        if refusal is None and health.is_about_health(scope):
            await health.respond(scope, send, self._not_ready, self._broken)
            return
        if refusal is None and not self._loaded:
            refusal = errors.ServerUnavailable("the server is loading its filters: try again soon")
        if refusal is not None:
            await health.send_problem(refusal, send)
            return
        if self._application is None:
            await self._opened.wait()
        assert self._application is not None
        try:
            await self._application(scope, receive, send)
        except ClientDisconnected:
            pass
        except Exception as problem:  # noqa: BLE001  # the client has a 500
            self._say("a request failed", level="error", problem=problem)

    # Shutdown.

    async def drain(self, until: float) -> None:
        """Finish the requests in progress and close all connections, at the latest at a time."""
        for connection in list(self.connections):
            connection.shutdown()
        while self.tasks and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.close()
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):  # of clients that do not read
            connection.transport.abort()
