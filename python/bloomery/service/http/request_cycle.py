"""One HTTP request and its response, as ASGI sees them: `receive` returns the body in parts, `send`
takes the response.

The response's header goes out with the first part of its body, in one write. The lines that every
response has are joined once per second and not once per response.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from http import HTTPStatus
from typing import Any

from bloomery._native import Histogram
from bloomery.service.http import problems

Application = Callable[[Any, Any, Any], Awaitable[None]]  # of ASGI: scope, receive, send

# Bytes of a body that wait for the application before the connection reads no more.
MAX_WAITING_BODY = 64 << 10
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_WITHOUT_BODY = frozenset({204, 304})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_STORE = b"cache-control: no-store\r\n"
_CONTROL = re.compile(b"[\x00-\x08\x0a-\x1f\x7f]")  # not allowed in the value of a header
_DISCONNECT = {"type": "http.disconnect"}


class ClientDisconnected(Exception):
    """The client has gone, so no one waits for the response."""


class Framing(Enum):
    """How a client finds the end of a response's body."""

    LENGTH = "Content-Length, or there is none"
    CHUNKS = "Transfer-Encoding: chunked"
    CLOSE = "the connection is closed"


class Flow:
    """Back-pressure of one connection, in both directions."""

    def __init__(self, transport: asyncio.Transport, is_held_back: Callable[[], bool]) -> None:
        """`is_held_back`: whether received bytes are still unparsed, so that no more are read."""
        self.read_paused = self.write_paused = False
        self._transport = transport
        self._is_held_back = is_held_back
        self._writable = asyncio.Event()

    def pause_reading(self) -> None:
        """Read no more from the client for now."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless received bytes are still unparsed."""
        if self.read_paused and not self._is_held_back():
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Make responses wait: the client does not read them."""
        self.write_paused = True
        self._writable.clear()

    def resume_writing(self) -> None:
        """Write again."""
        self.write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        """Return when the client reads again, or has disconnected."""
        await self._writable.wait()


class RequestCycle:
    """One request, from its header to the end of its response."""

    def __init__(
        self,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        flow: Flow,
        *,
        header_lines: bytes,
        latency: Histogram,
        keep_alive: bool,
        expects_continue: bool,
        on_response: Callable[[], None],
    ) -> None:
        """`header_lines`: the headers of every response, as they are written. `latency` gets the
        seconds from here until the response is written."""
        self.scope = scope
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_started = self.response_complete = False
        self._transport, self._flow = transport, flow
        self._header_lines, self._latency, self._on_response = header_lines, latency, on_response
        self._expects_continue = expects_continue
        self._started = time.monotonic()
        # The request's body.
        self._parts: list[bytes] = []  # received, and not yet taken by the application
        self._waiting = 0  # bytes of them
        self._more_body = True
        self._changed = asyncio.Event()
        # The response.
        self._head = b""  # not yet written
        self._framing = Framing.LENGTH
        self._left = 0  # bytes that Content-Length still announces

    # From the connection.

    async def run(self, application: Application) -> None:
        """Let the application respond. Where it fails to, the client gets a 500 or is cut off."""
        try:
            await application(self.scope, self.receive, self.send)
        finally:
            if not self.response_complete and not self.disconnected:
                self._fail()

    def feed(self, body: bytes) -> None:
        """Take some of the request's body."""
        self._parts.append(body)
        self._waiting += len(body)
        if self._waiting > MAX_WAITING_BODY:
            self._flow.pause_reading()
        self._changed.set()

    def end_body(self) -> None:
        """Note that the request's body is complete."""
        self._more_body = False
        self._changed.set()

    def disconnect(self) -> None:
        """Tell the application that no client waits for this response any more."""
        self.disconnected = True
        self._changed.set()

    # From the application.

    async def receive(self) -> dict[str, Any]:
        """Return the next part of the body, as soon as there is one."""
        if self._expects_continue and not self._transport.is_closing():
            self._expects_continue = False
            self._transport.write(_CONTINUE)
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self._changed.wait()
            self._changed.clear()
        if self.disconnected or self.response_complete:
            return _DISCONNECT.copy()
        parts, self._parts, self._waiting = self._parts, [], 0
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return {"type": "http.request", "body": body, "more_body": self._more_body}

    async def send(self, message: Any) -> None:
        """Take the response's status and headers, or a part of its body."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._head = self._heading(message["status"], message.get("headers", ()))
            self.response_started = True
            self._expects_continue = False
            return
        if self.response_complete:
            raise RuntimeError("the response is complete already")
        body, more = message.get("body", b""), message.get("more_body", False)
        data, self._head = self._head + self._framed(body, more), b""
        if data:
            self._transport.write(data)
        if not more:
            if self._left:
                raise RuntimeError("the response is shorter than its Content-Length")
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self._changed.set()
        if not self.keep_alive:
            self._transport.close()
        self._latency.observe(time.monotonic() - self._started)
        self._on_response()

    def _fail(self) -> None:
        """End a response that the application did not end."""
        if self.response_started and not self._head:  # the client has a part of it
            self._transport.abort()
            return
        self.response_started, self._head, self.keep_alive = True, b"", False
        detail = "an error of the server, which has printed more"
        self._transport.write(closing_response("error", detail, 500, self._header_lines))
        self._complete()

    def _framed(self, body: bytes, more: bool) -> bytes:
        """Return a part of the body as it is written."""
        if self._framing is Framing.CHUNKS:
            frame = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return frame if more else frame + b"0\r\n\r\n"
        if self._framing is Framing.CLOSE:
            return body
        if self.scope["method"] == "HEAD":
            self._left = 0
            return b""
        self._left -= len(body)
        if self._left < 0:
            raise RuntimeError("the response is longer than its Content-Length")
        return body

    def _heading(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the header of the response; the names of `headers` are in lower case."""
        parts = [_STATUS_LINES[status], self._header_lines]
        is_framed = status in _WITHOUT_BODY
        for name, value in headers:
            if _CONTROL.search(value):
                raise RuntimeError(f"a control character in the header {name.decode()}")
            if name == b"content-length" and not is_framed:
                self._left, is_framed = int(value), True
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            elif name == b"cache-control":  # replaces the one of all other responses
                parts[1] = self._header_lines.replace(_NO_STORE, b"")
            parts.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        if not is_framed and self.scope["method"] != "HEAD":
            if self.scope["http_version"] == "1.0":  # which is never kept alive
                self._framing = Framing.CLOSE
            else:
                self._framing = Framing.CHUNKS
                parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)


def closing_response(code: str, detail: str, status: int, header_lines: bytes) -> bytes:
    """Return a complete response that describes a problem, after which the connection is closed."""
    number, body = problems.document(code, detail, status)
    retry = b"retry-after: %b\r\n" % problems.RETRY_SECONDS.encode() if number == 503 else b""
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n%b%b\r\n%b" % (
        *(_STATUS_LINES[number], problems.MEDIA.encode(), len(body), retry, header_lines, body),
    )
