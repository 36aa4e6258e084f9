"""Listening sockets, and the number of connections that the system allows. `Acceptor` accepts plain
sockets for the workers of the Redis protocol, which do TLS themselves. `Listener` serves HTTP on
the event loop, with or without TLS.

A client that connects and does not continue the TLS handshake uses one file descriptor. The number
of unfinished handshakes is limited. For one more, the oldest client is disconnected. So a flood of
them does not keep other clients out, whose handshakes take milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from bloomery.service.config.settings import Settings

_BACKLOG = 4096
_MOST_HANDSHAKES = 1000
_ACCEPTED_AT_ONCE = 64  # connections, before the event loop does other work
_PAUSE_SECONDS = 0.1  # when the process can open no more files
_OTHER_FILES = 64  # for everything but connections: the log, the registry, snapshots
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

# Seconds to wait for close_notify, which many clients never send. Python 3.10 lacks the option.
_FAREWELL: dict[str, Any] = {"ssl_shutdown_timeout": 1.0} if sys.version_info >= (3, 11) else {}

Factory = Callable[[], asyncio.BaseProtocol]


async def listen(
    factory: Factory,
    addresses: list[str],
    port: int,
    context: ssl.SSLContext | None = None,
    handshake_seconds: float = 10,
) -> Listener:
    """Accept connections at these addresses. `factory` creates the protocol of each. Port 0 chooses
    a free port, the same for all addresses."""
    listener = Listener(factory, context, handshake_seconds)
    try:
        listener.bind(addresses, port)
        await listener.start()
    except BaseException:
        listener.close()
        raise
    return listener


class Bound:
    """Sockets that listen at one port."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def bind(self, addresses: list[str], port: int) -> None:
        """Listen at these addresses. Port 0 chooses a free port, the same for all addresses."""
        for address in addresses:
            self.sockets.append(_bound(address, port))
            port = self.port

    @property
    def port(self) -> int:
        """The port, the same for all addresses."""
        port: int = self.sockets[0].getsockname()[1]
        return port

    @property
    def address(self) -> str:
        """The first address and the port, as host:port."""
        host: str = self.sockets[0].getsockname()[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class Acceptor(Bound):
    """Accepts connections for the workers of the Redis protocol, as plain sockets."""

    def __init__(
        self, accepted: Callable[[socket.socket], None], make_room: Callable[[], None]
    ) -> None:
        """`make_room` closes a connection. It is called when the process can open no more files."""
        super().__init__()
        self._accepted, self._make_room = accepted, make_room
        self._loop = asyncio.get_running_loop()
        self._paused: list[asyncio.TimerHandle] = []

    def open(self, addresses: list[str], port: int) -> None:
        """Accept connections from now on."""
        try:
            self.bind(addresses, port)
        except BaseException:
            self.close()
            raise
        for listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno in _NO_ROOM:
                    self._make_room()
                    self._pause(listening)
                return
            try:
                self._accepted(connection)
            except Exception as problem:  # noqa: BLE001  # others connect, too
                connection.close()
                context = {"message": "a connection was not accepted", "exception": problem}
                self._loop.call_exception_handler(context)

    def _pause(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening.fileno())
        self._paused = [timer for timer in self._paused if timer.when() > self._loop.time()]
        self._paused.append(self._loop.call_later(_PAUSE_SECONDS, self._resume, listening))

    def _resume(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening.fileno(), self._accept, listening)

    def close(self) -> None:
        """Accept no more connections. Open connections stay open."""
        for timer in self._paused:
            timer.cancel()
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()


class Listener(Bound):
    """Accepts connections for asyncio protocols (HTTP). `listen` opens it."""

    def __init__(
        self, factory: Factory, context: ssl.SSLContext | None, handshake_seconds: float
    ) -> None:
        super().__init__()
        self._factory = factory
        self._context = context
        self._handshake_seconds = handshake_seconds
        self._servers: list[asyncio.Server] = []
        self._accepting: list[asyncio.Future[None]] = []
        self._greeting: dict[asyncio.Future[None], None] = {}  # oldest first

    async def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        for listener in self.sockets:
            if self._context is None:
                self._servers.append(
                    await loop.create_server(self._factory, sock=listener, backlog=_BACKLOG)
                )
            else:
                self._accepting.append(asyncio.ensure_future(self._accept(listener)))

    def close(self) -> None:
        """Accept no more connections. Open connections stay open."""
        for task in (*self._accepting, *self._greeting):
            task.cancel()
        for server in self._servers:
            server.close()
        for listener in self.sockets:
            listener.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as problem:
                if problem.errno in _NO_ROOM:
                    self._drop_oldest()
                    await asyncio.sleep(_PAUSE_SECONDS)
                continue
            task = asyncio.ensure_future(self._greet(connection))
            self._greeting[task] = None
            task.add_done_callback(self._greeted)
            if len(self._greeting) > _MOST_HANDSHAKES:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        if self._greeting:
            oldest = next(iter(self._greeting))
            del self._greeting[oldest]
            oldest.cancel()

    def _greeted(self, task: asyncio.Future[None]) -> None:
        self._greeting.pop(task, None)
        if not task.cancelled():
            task.result()  # raises an unexpected error, which the loop logs

    async def _greet(self, connection: socket.socket) -> None:
        """Complete the TLS handshake, or close the connection."""
        loop = asyncio.get_running_loop()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Plaintext, a client that disconnects, no common version or cipher, or a timeout.
        with contextlib.suppress(OSError, EOFError, asyncio.TimeoutError):
            await loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_seconds,
                **_FAREWELL,
            )


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        bound = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    except OSError as problem:
        why = os.strerror(problem.errno) if problem.errno else str(problem)
        where = f"[{address}]" if family == socket.AF_INET6 else address
        raise OSError(problem.errno, f"cannot serve at {where}:{port}: {why}") from None
    bound.setblocking(False)
    return bound


def allow_files(settings: Settings) -> int:
    """Raise the limit of open files to the connections that both protocols allow, if the system
    permits it. Many systems start a process with 1024 files. Return the number of connections that
    can be open."""
    handshakes = 2 * _MOST_HANDSHAKES if settings.tls_cert else 0
    wanted = settings.maxclients + settings.http_maxclients + handshakes + _OTHER_FILES
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return wanted - _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted - _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES
