"""One connection of HTTP: uvicorn's protocol, with limits.

    nothing ──first byte──> head ──> body ──> answering ──> nothing (kept alive)
            header seconds: the head is there    body seconds: something more of it came

A client without a request under way is a stranger: when there are too many connections the one that
has been so for longest is hung up on. That it had an answer before does not help: anybody gets one
from /healthz.

Requests that are sent ahead of their answers (pipelined) are answered in order. While enough of
them wait, what else has come is held back unparsed, and no more is read. An offer to upgrade the
protocol (`Upgrade: h2c`, by Java's client and curl --http2) is ignored, as RFC 9110 allows.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, cast

import httptools
from uvicorn import Config

from bloomery._native import Histogram
from bloomery.service.config.settings import Settings
from bloomery.service.http import problems, smuggling
from bloomery.service.http.limits import MAX_HEAD, MAX_PIPELINED
from bloomery.service.http.request_cycle import ReadFlow, RequestCycle
from bloomery.service.http.uvicorn_internals import HttpToolsProtocol, ServerState

_AT_ONCE = 8 << 10  # bytes that are parsed in one go: no more than 300 requests
_HEAD, _BODY, _NOTHING = "head", "body", ""
# uvicorn would warn of each client that sends something else than HTTP.
_QUIET = logging.Logger("bloomery.http", logging.CRITICAL + 1)


class Owner(Protocol):
    """What a connection uses of the server that accepted it."""

    settings: Settings
    config: Config
    state: ServerState
    loop: asyncio.AbstractEventLoop
    strangers: dict[HttpConnection, None]
    header_lines: bytes  # of every response
    latency: Histogram

    def welcome(self, connection: HttpConnection) -> None:
        """Make room for a new client, or turn it away."""

    def farewell(self, connection: HttpConnection) -> None:
        """Forget a client that is gone."""


class HttpConnection(HttpToolsProtocol):
    """A connection that keeps to the limits, or ends."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner.config, owner.state, {}, owner.loop)
        self.logger = _QUIET
        self.owner = owner
        self.waits = _HEAD  # for what
        self.since = 0.0  # the head began, or something of the body came
        self.head = 0  # bytes of it so far; then, those since the last of the body: trailers
        self.dropped = 0  # bytes of a body that nobody wants
        self.stuck: float | None = None  # since when the client takes no answers
        self._owed = 0  # answers
        self._unparsed = b""  # has come, and is held back
        self._offered = False  # this request offers an upgrade: the parser stops behind its head
        self._resumed = False  # it gets that head again, without the offer
        self._refused: tuple[int, str] | None = None
        self._last_response: bytes | None = None  # when all that is owed is answered

    # Who comes and goes.

    def connection_made(self, transport: Any) -> None:
        """Take in a client, if there is room."""
        super().connection_made(transport)
        self.flow = ReadFlow(transport, self._is_held_back)
        self.since = self.loop.time()
        self.owner.welcome(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.owner.farewell(self)
        self._unparsed = b""
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer what has begun, and end."""
        self._unparsed = b""
        super().shutdown()

    # What it sends.

    def _is_held_back(self) -> bool:
        """Whether there is more to parse, or nothing is to be parsed any more."""
        return bool(self._unparsed) or self._last_response is not None

    def data_received(self, data: bytes) -> None:
        """Take bytes: a little at a time, and not while too many requests wait."""
        if self._last_response is not None:
            return
        if self._unparsed or len(data) > _AT_ONCE or len(self.pipeline) >= MAX_PIPELINED:
            self._unparsed += data
            self._go_on()
        else:
            self._parse(data)

    def _go_on(self) -> None:
        """Parse what was held back, as far as requests may wait."""
        while self._unparsed and len(self.pipeline) < MAX_PIPELINED:
            if self.transport.is_closing():
                self._unparsed = b""
                return
            data, self._unparsed = self._unparsed[:_AT_ONCE], self._unparsed[_AT_ONCE:]
            self._parse(data)
        if self._unparsed:
            self.flow.pause_reading()
        elif self._owed == 0:  # else who is answered reads on, when it needs more
            self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Parse bytes, unless the head has become too long."""
        if self.waits is _NOTHING and self._owed == 0:
            # Not when the parser finds a beginning: it would skip empty lines without end.
            self.waits, self.since = _HEAD, self.loop.time()
        if self.waits is _BODY:
            self.since = self.loop.time()
        self._unset_keepalive_if_required()
        while True:
            self.head += len(data)
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as stopped:
                self._ignore_upgrade()
                data = data[stopped.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("")
                return
        waits = self.waits is not _NOTHING
        if waits and self.head > MAX_HEAD and not self.transport.is_closing():
            self.refuse(431, f"the head of a request may have {MAX_HEAD:,} bytes")

    def _ignore_upgrade(self) -> None:
        """Go on behind a head that offers an upgrade. httptools takes what follows for another
        protocol, so a new parser reads that head again: what it says of the body, and no more."""
        self._offered, self._resumed = False, True
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        framing = (header for header in self.headers if header[0] in smuggling.FRAMING)
        lines = b"".join(b"%b: %b\r\n" % header for header in framing)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % lines)

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
        if self._resumed:  # and was before: only its body was not
            self._resumed = False
        else:
            self._take_head()
            self._offered = self.parser.should_upgrade()
            self.owner.strangers.pop(self, None)
        self.head = 0
        self.waits = _BODY

    def _take_head(self) -> None:
        """Begin with a request, or let it wait; raises if one with this head cannot be read."""
        if self.head > MAX_HEAD:  # or all that came with it is: count
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEAD:
                self._refused = (431, f"the head of a request may have {MAX_HEAD:,} bytes")
                raise ValueError
        parser, scope = self.parser, cast("dict[str, Any]", self.scope)
        by_name = scope["headers_by_name"] = dict(self.headers)
        method, version = parser.get_method(), parser.get_http_version()
        self._refused = smuggling.refusal(method, version, by_name, self.headers)
        if self._refused is not None:
            raise ValueError
        url = httptools.parse_url(self.url)
        scope["method"] = method.decode("ascii")
        # Not decoded: a name may have any byte, a slash too.
        scope["path"], scope["raw_path"] = url.path.decode("ascii"), url.path
        scope["query_string"] = url.query or b""
        scope["http_version"] = version
        self.cycle = RequestCycle(
            self.owner.header_lines,
            self.owner.latency,
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if self._owed == 0:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        self._owed += 1

    def on_body(self, body: bytes) -> None:
        """Some of its body; what comes after the answer is dropped, and not without end."""
        self.head = 0
        if self.cycle.response_complete:
            self.dropped += len(body)
            if self.dropped > self.owner.settings.http_max_body_bytes:
                self.transport.abort()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request's body."""
        if self._offered:  # its body is yet to come
            return
        self.waits = _NOTHING
        self.head = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """One answer less is owed: the next request has its turn, if it is there."""
        self._owed -= 1
        super().on_response_complete()
        if self._unparsed:
            self._go_on()
        if self._owed == 0:
            self.owner.strangers[self] = None
            self._end()

    # Limits.

    def pause_writing(self) -> None:
        """The client does not take what it asked for."""
        self.stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on sending: the client reads again."""
        self.stuck = None
        super().resume_writing()

    def sweep(self, now: float) -> None:
        """End it if it is too slow."""
        settings = self.owner.settings
        if self.transport.is_closing():
            return
        if self.stuck is not None and now - self.stuck > settings.slow_client_seconds:
            self.transport.abort()
        elif self.waits is not _NOTHING and self.flow.read_paused:
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
        self._refused = (status, detail)
        self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, or is past the limits, once the requests before it are
        answered; and close."""
        if self.waits is _BODY:  # the one that is wrong is not only begun: it may have its answer
            cycle = self.cycle
            if cycle.response_complete:
                self.transport.close()
                return
            if cycle.response_started:
                self.transport.abort()
                return
            cycle.disconnected = True
            cycle.message_event.set()
            if self.pipeline:
                self.pipeline.popleft()
            self._owed -= 1
        self._unparsed = b""
        self._last_response = self._problem(*(self._refused or (400, "that is no request of HTTP")))
        self.flow.pause_reading()
        self._end()

    def _end(self) -> None:
        if self._last_response is not None and self._owed == 0 and not self.transport.is_closing():
            self.transport.write(self._last_response)
            self.transport.close()

    def _problem(self, status: int, detail: str) -> bytes:
        """A whole answer, after which the connection ends."""
        code = "server-unavailable" if status == 503 else "invalid-request"
        status, body = problems.document(code, detail, status)
        head = (
            f"HTTP/1.1 {status} {problems.phrase(status)}\r\ncontent-type: {problems.MEDIA}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
        )
        retry = f"retry-after: {problems.RETRY_SECONDS}\r\n" if status == 503 else ""
        return f"{head}{retry}".encode() + self.owner.header_lines + b"\r\n" + body
