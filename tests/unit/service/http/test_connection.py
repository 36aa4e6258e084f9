"""HTTP connections over real sockets: keep-alive, failing applications, clients that leave."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bloomery.service.config.settings import Settings
from bloomery.service.http.limits import KEEP_ALIVE_SECONDS
from bloomery.service.http.server import HttpServer
from waiting import wait_until_async

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
Application = Callable[[Any, Any, Any], Awaitable[None]]
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def start(status: int = 200, **headers: str) -> dict[str, Any]:
    """Return the first message of a response."""
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": lines}


def body(data: bytes, more: bool = False) -> dict[str, Any]:
    """Return a message with a part of a body."""
    return {"type": "http.response.body", "body": data, "more_body": more}


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Respond with five bytes."""
    await send(start(content_length="5"))
    await send(body(b"hello"))


def run(
    application: Application | None, test: Callable[[HttpServer, Client], Awaitable[None]]
) -> list[str]:
    """Run a test with a server of an application, and a client; return what the server logged."""
    logged: list[str] = []

    def say(text: str, level: str = "info", **fields: Any) -> None:
        logged.append(text)

    async def main() -> None:
        server = HttpServer(Settings(), say, None, lambda writes: "")
        if application is not None:
            server.serve(application)
        listener = await server.open(["127.0.0.1"], 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        try:
            await asyncio.wait_for(test(server, (reader, writer)), 60)
        finally:
            writer.close()
            listener.close()
            assert await wait_until_async(lambda: not server.connections)
            assert not server.idle

    asyncio.run(main())
    return logged


async def response_to(client: Client, request: bytes = GET) -> tuple[int, dict[str, str], bytes]:
    """Send a request; return the status, the headers and the body of the response."""
    client[1].write(request)
    head = (await client[0].readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    data = await client[0].readexactly(int(headers.get("content-length", 0)))
    return int(status.split()[1]), headers, data


def test_idle_connection_is_closed_after_its_time() -> None:
    """A connection between two requests is closed after KEEP_ALIVE_SECONDS, and not before."""

    async def test(server: HttpServer, client: Client) -> None:
        assert (await response_to(client))[2] == b"hello"
        (connection,) = server.connections
        now = server.loop.time()
        connection.sweep(now + KEEP_ALIVE_SECONDS - 1)
        assert (await response_to(client))[2] == b"hello"
        connection.sweep(server.loop.time() + KEEP_ALIVE_SECONDS + 1)
        assert await client[0].read() == b""

    run(hello, test)


def test_request_in_progress_is_not_idle() -> None:
    """A response may take longer than an idle connection is kept."""
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await hello(scope, receive, send)

    async def test(server: HttpServer, client: Client) -> None:
        client[1].write(GET)
        assert await wait_until_async(lambda: server.tasks)
        (connection,) = server.connections
        connection.sweep(server.loop.time() + 10 * KEEP_ALIVE_SECONDS)
        go_on.set()
        assert (await client[0].read(15)).startswith(b"HTTP/1.1 200 OK")

    run(slow, test)


@pytest.mark.parametrize("messages", [0, 1])
def test_failing_application_is_a_500(messages: int) -> None:
    """As long as nothing of a response was written, a failure is a problem of the server."""

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        if messages:
            await send(start(content_length="5"))
        raise LookupError

    async def test(server: HttpServer, client: Client) -> None:
        status, headers, data = await response_to(client)
        assert (status, json.loads(data)["code"]) == (500, "error")
        assert headers["connection"] == "close"
        assert await client[0].read() == b""

    assert run(failing, test) == ["a request failed"]


@pytest.mark.parametrize("data", [b"four", b"sixsix"], ids=["short", "long"])
def test_body_of_another_length_ends_the_connection(data: bytes) -> None:
    """A client never takes the next response for a part of one with a wrong Content-Length."""

    async def wrong(scope: Any, receive: Any, send: Any) -> None:
        await send(start(content_length="5"))
        await send(body(data[:1], more=True))
        await send(body(data[1:]))

    async def test(server: HttpServer, client: Client) -> None:
        client[1].write(GET + GET)
        try:
            answer = await client[0].read()
        except ConnectionResetError:
            return
        assert answer.count(b"HTTP/1.1") == 1

    assert run(wrong, test) == ["a request failed"]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
def test_response_without_a_body_may_announce_its_length(method: str, status: int) -> None:
    """HEAD and 304 have the Content-Length of the body that they leave out."""

    async def described(scope: Any, receive: Any, send: Any) -> None:
        await send(start(status, content_length="5"))
        await send(body(b"hello" if method == "HEAD" else b""))

    async def test(server: HttpServer, client: Client) -> None:
        request = GET.replace(b"GET", method.encode())
        client[1].write(request + request)
        for _ in range(2):
            head = await client[0].readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b"content-length: 5" in head

    assert run(described, test) == []


def test_client_that_leaves_is_forgotten() -> None:
    """A client that sent requests ahead and reset its connection is not kept among the idle ones,
    and the request in progress learns that no one waits."""
    disconnected = asyncio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        disconnected.set()
        await hello(scope, receive, send)

    async def test(server: HttpServer, client: Client) -> None:
        client[1].write(GET * 3)
        assert await wait_until_async(lambda: server.tasks)
        linger = struct.pack("ii", 1, 0)
        client[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client[1].transport.abort()
        await disconnected.wait()
        assert await wait_until_async(lambda: not server.tasks)
        assert not server.connections

    run(waiting, test)


@pytest.mark.parametrize("ahead", [1, 3])
def test_half_closed_client_gets_its_responses(ahead: int) -> None:
    """A client may close its side after its requests (`nc -N` does) and still read, however long
    the responses take; then the connection is closed."""
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await hello(scope, receive, send)

    async def test(server: HttpServer, client: Client) -> None:
        client[1].write(GET * ahead)
        client[1].write_eof()
        assert await wait_until_async(lambda: server.tasks)
        reader, writer = await asyncio.open_connection(*client[1].get_extra_info("peername"))
        assert (await response_to((reader, writer), GET.replace(b"/ ", b"/healthz ")))[0] == 200
        writer.close()
        go_on.set()
        assert (await client[0].read()).count(b"hello") == ahead

    run(slow, test)


def test_half_closed_client_within_a_request_is_disconnected() -> None:
    """Nothing more can come of a body, so the application learns that the client has gone."""
    received: list[str] = []

    async def reading(scope: Any, receive: Any, send: Any) -> None:
        while not received or received[-1] != "http.disconnect":
            received.append((await receive())["type"])

    async def test(server: HttpServer, client: Client) -> None:
        client[1].write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhel")
        assert await wait_until_async(lambda: received)
        client[1].write_eof()
        assert await client[0].read() == b""
        assert await wait_until_async(lambda: received == ["http.request", "http.disconnect"])

    run(reading, test)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_body_of_unknown_length(version: str) -> None:
    """It comes in chunks; to HTTP/1.0, which has none, it ends with the connection."""

    async def parts(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(body(b"hel", more=True))
        await send(body(b"lo"))

    async def test(server: HttpServer, client: Client) -> None:
        client[1].write(GET.replace(b"1.1\r\n", f"{version}\r\nConnection: close\r\n".encode()))
        head, _, data = (await client[0].read()).partition(b"\r\n\r\n")
        chunked = b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
        assert data == (chunked if version == "1.1" else b"hello")
        assert (b"transfer-encoding: chunked" in head) == (version == "1.1")

    assert run(parts, test) == []


def test_requests_wait_for_the_application() -> None:
    """While filters are loaded the server refuses requests with a 503; then they wait until the
    application is imported. Its health is there all the time."""

    async def test(server: HttpServer, client: Client) -> None:
        assert (await response_to(client))[0] == 503
        server.hold()
        client[1].write(GET)
        assert await wait_until_async(lambda: server.tasks)
        reader, writer = await asyncio.open_connection(*client[1].get_extra_info("peername"))
        assert (await response_to((reader, writer), GET.replace(b"/ ", b"/healthz ")))[0] == 200
        writer.close()
        assert len(server.tasks) == 1
        server.serve(hello)
        assert (await response_to(client, b""))[2] == b"hello"

    run(None, test)
