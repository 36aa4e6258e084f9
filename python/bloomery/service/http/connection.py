"""One HTTP connection: httptools parses its requests, `RequestCycle` responds to them in order.

    NOTHING ──first byte──> HEAD ──header complete──> BODY ──body complete──> NOTHING
            http-header-seconds            http-body-seconds since its last part

A connection without a request in progress is idle. When there are too many connections, the server
disconnects the one that has been idle for longest. An earlier response does not protect it: every
client gets one from /healthz.

Clients may send requests ahead of the responses (pipelining). While MAX_PIPELINED of them wait, the
connection keeps the rest unparsed and reads no more. It ignores an offer to upgrade the protocol
(`Upgrade: h2c`, from Java's client and curl --http2), as RFC 9110 allows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import Any, Protocol, cast

import httptools

from bloomery._native import Histogram
from bloomery.service.config.settings import Settings
from bloomery.service.http import smuggling
from bloomery.service.http.limits import KEEP_ALIVE_SECONDS, MAX_HEAD, MAX_PIPELINED
from bloomery.service.http.request_cycle import Application, Flow, RequestCycle, closing_response

_MAX_PARSED = 8 << 10  # bytes that are parsed at once: at most 300 requests
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_TOO_LONG = (431, f"the head of a request may have {MAX_HEAD:,} bytes")


class Expected(Enum):
    """The part of a request that the connection waits for."""

    NOTHING = "nothing"
    HEAD = "head"
    BODY = "body"


_NOTHING, _HEAD, _BODY = Expected.NOTHING, Expected.HEAD, Expected.BODY


class Owner(Protocol):
    """The parts of the server that a connection uses."""

    settings: Settings
    loop: asyncio.AbstractEventLoop
    connections: set[HttpConnection]
    idle: dict[HttpConnection, None]
    tasks: set[asyncio.Task[None]]
    header_lines: bytes  # of every response
    latency: Histogram
    application: Application

    def welcome(self, connection: HttpConnection) -> None:
        """Make room for a new client, or turn it away."""


class HttpConnection(asyncio.Protocol):
    """One connection, within the limits."""

    transport: asyncio.Transport
    flow: Flow

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self._loop = owner.loop
        self._parser = self._new_parser()
        self._base: dict[str, Any] = {}  # the scope of every request
        # The request that is being received.
        self._expected = _HEAD
        self._since = 0.0  # the header started, the body was last received, or the response ended
        self._head = 0  # bytes of the header so far; then, those since the last of the body
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._offers_upgrade = False  # so the parser stops after its header
        self._resumed = False  # the parser gets that header again, without the offer
        self._dropped = 0  # bytes of a body after its response
        self._received: RequestCycle | None = None
        # Requests without a complete response: the first is running, the others wait.
        self._running: RequestCycle | None = None
        self._pipeline: deque[RequestCycle] = deque()
        self._unparsed = b""
        self._unread_since: float | None = None  # when the client stopped to read responses
        self._refused: tuple[int, str] | None = None
        self._last_response: bytes | None = None  # to write after those of the requests above

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Or the requests before `Connection: close` and what follows it would get no response.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a client, if there is room."""
        self.transport = cast("asyncio.Transport", transport)
        self.flow = Flow(self.transport, self._is_held_back)
        self._base = {
            "type": "http",
            "asgi": _ASGI,
            "server": _address(transport, "sockname"),
            "client": _address(transport, "peername"),
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
            "root_path": "",
        }
        self._since = self._loop.time()
        self.owner.connections.add(self)
        self.owner.welcome(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests in progress that their client has gone."""
        self.owner.connections.discard(self)
        self.owner.idle.pop(self, None)
        for cycle in (self._running, self._received):
            if cycle is not None:
                cycle.disconnect()
        self.flow.resume_writing()
        self._pipeline.clear()
        self._unparsed = b""
        self._running = self._received = None
        del self._parser  # which refers to this connection

    def data_received(self, data: bytes) -> None:
        """Parse bytes: a few at a time, and none while too many requests wait."""
        if self._last_response is not None:
            return
        if self._unparsed or len(data) > _MAX_PARSED or len(self._pipeline) >= MAX_PIPELINED:
            self._unparsed += data
            self._parse_rest()
        else:
            self._parse(data)

    def eof_received(self) -> bool:
        """Respond to the complete requests of a client that has closed its side, and close then.
        TLS has no half-closed connections."""
        is_complete = self._expected is _NOTHING and not self._unparsed
        if not is_complete or not self._is_responding() or self._base["scheme"] == "https":
            return False
        self.shutdown()
        return True

    def pause_writing(self) -> None:
        """Make responses wait: the client does not read them."""
        self._unread_since = self._loop.time()
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """Send again."""
        self._unread_since = None
        self.flow.resume_writing()

    # Bytes.

    def _is_held_back(self) -> bool:
        """Return whether bytes are still unparsed, or none are to be parsed any more."""
        return bool(self._unparsed) or self._last_response is not None

    def _parse_rest(self) -> None:
        """Parse what was held back, until enough requests wait."""
        while self._unparsed and len(self._pipeline) < MAX_PIPELINED:
            if self.transport.is_closing():
                self._unparsed = b""
                return
            data, self._unparsed = self._unparsed[:_MAX_PARSED], self._unparsed[_MAX_PARSED:]
            self._parse(data)
        if self._unparsed:
            self.flow.pause_reading()
        elif self._running is None:  # else the request reads on, when it needs more
            self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Parse bytes, unless the header has become too long."""
        if self._expected is _NOTHING and self._running is None:
            # Not when the parser finds a request: it would skip any number of empty lines.
            self._expected, self._since = _HEAD, self._loop.time()
        elif self._expected is _BODY:
            self._since = self._loop.time()
        while True:
            self._head += len(data)
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as stopped:
                self._ignore_upgrade()
                data = data[stopped.args[0] :]
            except httptools.HttpParserError:
                self.refuse(*(self._refused or (400, "that is no request of HTTP")))
                return
        is_long = self._head > MAX_HEAD and self._expected is not _NOTHING
        if is_long and not self.transport.is_closing():
            self.refuse(*_TOO_LONG)

    def _ignore_upgrade(self) -> None:
        """Continue after a header that offers an upgrade. httptools takes the rest for another
        protocol, so a new parser reads that header again: only what it says of the body."""
        self._offers_upgrade, self._resumed = False, True
        self._parser = self._new_parser()
        framing = (header for header in self._headers if header[0] in smuggling.FRAMING)
        lines = b"".join(b"%b: %b\r\n" % header for header in framing)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % lines)

    # The parser's calls.

    def on_message_begin(self) -> None:
        """Start a request."""
        if self._expected is _NOTHING:  # sent ahead of the response to the one before
            self._since = self._loop.time()
        self._expected = _HEAD
        self._dropped = 0
        if not self._resumed:
            self._url, self._headers, self._expects_continue = b"", [], False

    def on_url(self, url: bytes) -> None:
        """Take some of the request's target."""
        if not self._resumed:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers are dropped: no one uses them, and there may be any number."""
        if self._expected is _BODY or self._resumed:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start to respond."""
        if self._resumed:  # only the body is new
            self._resumed = False
        else:
            self._take_head()
            self._offers_upgrade = self._parser.should_upgrade()
            self.owner.idle.pop(self, None)
        self._head = 0
        self._expected = _BODY

    def _take_head(self) -> None:
        """Start a request, or make it wait for the one before; raises if its header is refused."""
        headers, url, parser, owner = self._headers, self._url, self._parser, self.owner
        if self._head > MAX_HEAD:  # with the bytes that came along: count
            size = len(url) + sum(len(name) + len(value) + 4 for name, value in headers)
            if size > MAX_HEAD:
                self._refused = _TOO_LONG
                raise ValueError
        by_name = dict(headers)
        method, version = parser.get_method(), parser.get_http_version()
        self._refused = smuggling.refusal(method, version, by_name, headers)
        if self._refused is not None:
            raise ValueError
        parsed = httptools.parse_url(url)
        # The path stays encoded: a filter's name may have any byte, also a slash.
        scope = {
            **self._base,
            "method": method.decode("ascii"),
            "path": parsed.path.decode("ascii"),
            "raw_path": parsed.path,
            "query_string": parsed.query or b"",
            "http_version": version,
            "headers": headers,
            "headers_by_name": by_name,
            "state": {},
        }
        cycle = self._received = RequestCycle(
            scope,
            self.transport,
            self.flow,
            header_lines=owner.header_lines,
            latency=owner.latency,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            expects_continue=self._expects_continue,
            on_response=self._responded,
        )
        if self._running is None:
            self._run(cycle)
        else:
            self.flow.pause_reading()
            self._pipeline.append(cycle)

    def _run(self, cycle: RequestCycle) -> None:
        self._running, tasks = cycle, self.owner.tasks
        task = self._loop.create_task(cycle.run(self.owner.application))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def on_body(self, body: bytes) -> None:
        """Take some of the body. After the response it is dropped, up to the longest body."""
        self._head = 0
        cycle = self._received
        if cycle is None or cycle.response_complete:
            self._dropped += len(body)
            if self._dropped > self.owner.settings.http_max_body_bytes:
                self.transport.abort()
            return
        cycle.feed(body)

    def on_message_complete(self) -> None:
        """Note the end of a request's body."""
        if self._offers_upgrade:  # its body follows
            return
        self._expected = _NOTHING
        self._head = 0
        if self._received is not None:
            self._received.end_body()

    # Responses.

    def _responded(self) -> None:
        """Run the next request, if it has been received."""
        self._running = None
        if self.transport.is_closing():
            self._pipeline.clear()
        else:
            self.flow.resume_reading()
            if self._pipeline:
                self._run(self._pipeline.popleft())
            elif self._expected is _NOTHING:
                self._since = self._loop.time()
        if self._unparsed:
            self._parse_rest()
        if not self._is_responding() and self in self.owner.connections:
            self.owner.idle[self] = None
            self._end()

    def _is_responding(self) -> bool:
        return self._running is not None

    def refuse(self, status: int, detail: str) -> None:
        """Respond with a problem after the responses to earlier requests, and close."""
        if self._expected is _BODY and self._received is not None:
            cycle = self._received  # the request that is wrong; it may have a response already
            if cycle.response_complete:
                self.transport.close()
                return
            if cycle.response_started:
                self.transport.abort()
                return
            cycle.disconnect()
            if self._pipeline:
                self._pipeline.pop()
            else:
                self._running = None
        self._unparsed = b""
        code = "server-unavailable" if status == 503 else "invalid-request"
        self._last_response = closing_response(code, detail, status, self.owner.header_lines)
        self.flow.pause_reading()
        self._end()

    def _end(self) -> None:
        """Write the last response and close, once no other is due."""
        waits = self._is_responding() or self.transport.is_closing()
        if self._last_response is not None and not waits:
            self.transport.write(self._last_response)
            self.transport.close()

    # Time.

    def sweep(self, now: float) -> None:
        """Close the connection if its client is too slow; called each second."""
        if self.transport.is_closing():
            return
        settings, expected, seconds = self.owner.settings, self._expected, now - self._since
        unread = 0.0 if self._unread_since is None else now - self._unread_since
        if unread > settings.slow_client_seconds:
            self.transport.abort()
        elif expected is _NOTHING:
            if self._running is None and seconds > KEEP_ALIVE_SECONDS:
                self.transport.close()
        elif self.flow.read_paused:
            self._since = now  # the client would send if the server read
        elif expected is _BODY and seconds > settings.http_body_seconds:
            limit = settings.http_body_seconds
            self.refuse(408, f"nothing more of the body came for {limit} seconds")
        elif expected is _HEAD and seconds > settings.http_header_seconds:
            if self._head:
                limit = settings.http_header_seconds
                self.refuse(408, f"the head of the request did not come within {limit} seconds")
            else:
                self.transport.close()

    def shutdown(self) -> None:
        """Close the connection after the responses to the requests that were received."""
        self._unparsed = b""
        if self._running is None:
            self.transport.close()
        else:
            (self._pipeline[-1] if self._pipeline else self._running).keep_alive = False


def _address(transport: asyncio.BaseTransport, which: str) -> tuple[str, int] | None:
    """Return the host and the port of one end of a connection."""
    address = transport.get_extra_info(which)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
