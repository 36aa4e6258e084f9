"""A request and its response: uvicorn's cycle, but a response is written in one piece where it can
be, behind headers that were put together before.

uvicorn writes a head and a body each by itself, and looks at each header of each response: with the
security headers that all of them have, this here takes a tenth less of the server's time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from bloomery._native import Histogram
from bloomery.service.http.uvicorn_internals import FlowControl, RequestResponseCycle

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_NO_STORE = b"cache-control: no-store\r\n"
_CONTROL = re.compile(b"[\x00-\x08\x0a-\x1f\x7f]")  # what no header's value may have


class ReadFlow(FlowControl):
    """Reads on when the application wants more of a body, unless bytes that have come are still
    held back."""

    def __init__(self, transport: asyncio.Transport, is_held_back: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._is_held_back = is_held_back

    def resume_reading(self) -> None:
        """Read on, if nothing that has come is yet to be parsed."""
        if self.read_paused and not self._is_held_back():
            super().resume_reading()


class RequestCycle(RequestResponseCycle):
    """One request, from its head to the end of its response."""

    def __init__(self, header_lines: bytes, latency: Histogram, **of_uvicorn: Any) -> None:
        """`header_lines`: the headers that every response has, as they are written. `latency` is
        told how long it took until the response was written."""
        began, on_response = time.monotonic(), of_uvicorn["on_response"]

        def answered() -> None:
            latency.observe(time.monotonic() - began)
            on_response()

        of_uvicorn["on_response"] = answered
        super().__init__(
            **of_uvicorn,
            access_log=False,
            default_headers=[],  # they are lines already
            message_event=asyncio.Event(),
        )
        self._header_lines = header_lines
        self._head = b""  # what is not yet written of it

    async def send(self, message: Any) -> None:
        """Take a part of the response."""
        if self.response_started and not self._head:
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self.response_started = True
            self.waiting_for_100_continue = False
            self._head = self._heading(message["status"], message["headers"])
            return
        head, self._head = self._head, b""
        body = message.get("body", b"")
        if not self._is_whole(message, body):
            self.transport.write(head)
            await super().send(message)
            return
        self.transport.write(head + body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _is_whole(self, message: Any, body: bytes) -> bool:
        return (
            self.chunked_encoding is False
            and len(body) == self.expected_content_length
            and not message.get("more_body", False)
            and self.scope["method"] != "HEAD"
        )

    def _heading(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The head of the response, of headers in lower case."""
        parts = [_STATUS_LINES[status], self._header_lines]
        for name, value in headers:
            if _CONTROL.search(value):
                raise RuntimeError(f"a line's end in the header {name.decode()}")
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            elif name == b"cache-control":  # instead of that of all others
                parts[1] = self._header_lines.replace(_NO_STORE, b"")
            parts.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        if self.chunked_encoding is None and status not in (204, 304):
            self.chunked_encoding = self.scope["method"] != "HEAD"
            if self.chunked_encoding:
                parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)
