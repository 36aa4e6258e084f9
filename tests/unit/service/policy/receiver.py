"""A webhook's other side, which takes deliveries well or badly, as a test says."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from waiting import wait_until


@dataclass(frozen=True)
class Request:
    """What came."""

    body: bytes
    headers: dict[str, str]
    path: str

    @property
    def alert(self) -> dict[str, Any]:
        """The body read."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class Receiver:
    """An HTTP server on a free port. `behave` is given each request and says what to answer: a
    status, or "hang", "drip", "flood", "redirect", "nowhere"."""

    def __init__(
        self,
        behave: Callable[[Request], int | str] = lambda request: 204,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.behave = behave
        self.requests: list[Request] = []
        self.ending = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                request = Request(self.rfile.read(length), dict(self.headers), self.path)
                receiver.requests.append(request)
                with contextlib.suppress(OSError):
                    receiver.answer(self.connection, receiver.behave(request))
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that does not like our certificate

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def answer(self, connection: socket.socket, how: int | str) -> None:
        """Answer, one way or another."""
        if how == "hang":
            self.ending.wait()
        elif how == "drip":
            for byte in b"HTTP/1.1 200 OK\r\nA: " + b"a" * 10_000:
                connection.sendall(bytes([byte]))
                if self.ending.wait(0.05):
                    return
        elif how == "flood":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
            while not self.ending.is_set():
                connection.sendall(b"x" * 65536)
        elif how in ("redirect", "nowhere"):
            place = "no:place" if how == "nowhere" else f"http://127.0.0.1:{self.port}/elsewhere"
            connection.sendall(
                f"HTTP/1.1 307 x\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
            )
        else:
            connection.sendall(f"HTTP/1.1 {how} x\r\nContent-Length: 0\r\n\r\n".encode())

    def wait(self, count: int, seconds: float = 60.0) -> bool:
        """Whether so many requests came."""
        return wait_until(lambda: len(self.requests) >= count, seconds)

    def close(self) -> None:
        """End it, and all that hang on it."""
        self.ending.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
