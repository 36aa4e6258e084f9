"""One connection of HTTP: uvicorn's, with limits.

    nothing ──first byte──> head ──> body ──> answering ──> nothing (kept alive)
            header seconds: the head is there    body seconds: something more of it came

Who has no request under way is a stranger: when there are too many connections the one that has
been so for longest makes room. That an answer was had before does not help: anybody has one from
/healthz.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bloomery.service.http import problems

if TYPE_CHECKING:
    from bloomery.service.http.door import HttpDoor

__all__ = ["Connection"]

MOST_HEAD = 16 << 10
_MOST_WAITING = 1000  # requests sent ahead of their answers
_HEAD, _BODY, _NOTHING = "head", "body", ""
# uvicorn would warn of each client that sends something else than HTTP.
_QUIET = logging.Logger("bloomery.http", logging.CRITICAL + 1)


class Connection(HttpToolsProtocol):
    """A connection that keeps to the limits, or ends."""

    def __init__(self, door: HttpDoor) -> None:
        super().__init__(door.config, door.state, {}, door.loop)
        self.logger = _QUIET
        self.door = door
        self.waits = _HEAD  # for what
        self.since = 0.0  # the head began, or something of the body came
        self.head = 0  # bytes of it so far; then, those since the last of the body: trailers
        self.dropped = 0  # bytes of a body that nobody wants
        self.stuck: float | None = None  # since when the client takes no answers
        self._refused: tuple[int, str] | None = None

    # Who comes and goes.

    def connection_made(self, transport: Any) -> None:
        """Take in a client, if there is room."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self.door.welcome(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.door.farewell(self)
        super().connection_lost(exc)

    # What it sends.

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the head has become too long."""
        if self.waits is _NOTHING and self.cycle.response_complete:
            # Not when the parser finds a beginning: it would skip empty lines without end.
            self.waits, self.since = _HEAD, self.loop.time()
        if self.waits is _BODY:
            self.since = self.loop.time()
        self.head += len(data)
        super().data_received(data)
        waits = self.waits is not _NOTHING
        if waits and self.head > MOST_HEAD and not self.transport.is_closing():
            self.refuse(431, f"the head of a request may have {MOST_HEAD:,} bytes")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self.waits is _NOTHING:  # sent ahead of the answer to the one before
            self.since = self.loop.time()
        self.waits = _HEAD
        self.dropped = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; a trailer is not kept: nobody asks for it, and there may be no end of them."""
        if self.waits is not _BODY:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is there."""
        if self.head > MOST_HEAD:  # or all that came with it is: count
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MOST_HEAD:
                self._refused = (431, f"the head of a request may have {MOST_HEAD:,} bytes")
                raise ValueError
        self.head = 0
        self.waits = _BODY
        self.door.strangers.pop(self, None)
        if len(self.pipeline) >= _MOST_WAITING:
            self.transport.abort()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of its body; what comes after the answer is dropped, and not without end."""
        self.head = 0
        if self.cycle.response_complete:
            self.dropped += len(body)
            if self.dropped > self.door.server.settings.http_max_body_bytes:
                self.transport.abort()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self.waits = _NOTHING
        self.head = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Nothing is owed to it now, unless it has sent the next request already."""
        if not self.pipeline:
            self.door.strangers[self] = None
        super().on_response_complete()

    # Limits.

    def pause_writing(self) -> None:
        """The client does not take what it asked for."""
        self.stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self.stuck = None
        super().resume_writing()

    def sweep(self, now: float) -> None:
        """End it if it is too slow."""
        settings = self.door.server.settings
        if self.transport.is_closing():
            return
        if self.stuck is not None and now - self.stuck > settings.slow_client_seconds:
            self.transport.abort()
        elif self.waits is _BODY and self.flow.read_paused:
            self.since = now  # the client would send if we took it
        elif self.waits is _BODY and now - self.since > settings.http_body_seconds:
            seconds = settings.http_body_seconds
            self.refuse(408, f"nothing more of the body came for {seconds} seconds")
        elif self.waits is _HEAD and now - self.since > settings.http_header_seconds:
            if self.head:
                seconds = settings.http_header_seconds
                self.refuse(408, f"the head of the request did not come within {seconds} seconds")
            else:
                self.transport.close()

    def refuse(self, status: int, detail: str) -> None:
        """Say what is wrong, where an answer is due, and end."""
        cycle: Any = self.cycle  # None before the first request
        running = cycle is not None and not cycle.response_complete
        started = running and cycle.response_started
        if started or self.pipeline or (running and self.waits is not _BODY):
            self.transport.abort()
            return
        self._refused = (status, detail)
        self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Answer by ourselves what is no request, or one past the limits; and end."""
        status, detail = self._refused or (400, "that is no request of HTTP")
        code = "server-unavailable" if status == 503 else "invalid-request"
        status, body = problems.document(code, detail, status)
        head = (
            f"HTTP/1.1 {status} {problems.phrase(status)}\r\ncontent-type: {problems.MEDIA}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
        )
        retry = f"retry-after: {problems.RETRY_SECONDS}\r\n" if status == 503 else ""
        self.transport.write(f"{head}{retry}\r\n".encode() + body)
        self.transport.close()
