"""The ASGI middleware around a real framework's responses, and messages it does not know."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cachetools import LRUCache

from bloomery import RotatingBloomFilter
from bloomery.apps import AsgiCacheMiddleware, AsyncAdmissionCache
from bloomery.apps.caching import ANONYMOUS_HEADERS
from conftest import require

require("fastapi")
require("httpx")

import httpx  # noqa: E402
from fastapi import FastAPI, Response  # noqa: E402
from fastapi.responses import FileResponse, StreamingResponse  # noqa: E402

FRESH = {"Cache-Control": "max-age=60"}


def site(folder: Path) -> tuple[FastAPI, list[str]]:
    """Routes of each kind of response, and which were asked."""
    app, calls = FastAPI(), list[str]()
    (folder / "file.txt").write_text("a file")

    @app.get("/json")
    def as_json(response: Response) -> dict[str, int]:
        calls.append("json")
        response.headers.update(FRESH)
        return {"n": len(calls)}

    @app.get("/stream")
    def stream() -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            calls.append("stream")
            for number in range(3):
                yield f"{number} "

        return StreamingResponse(pieces(), headers=FRESH)

    @app.get("/file")
    def file() -> FileResponse:
        calls.append("file")
        return FileResponse(folder / "file.txt", headers=FRESH)

    @app.get("/broken")
    def broken() -> None:
        calls.append("broken")
        raise ZeroDivisionError

    return app, calls


def cached(app: Any) -> AsgiCacheMiddleware:
    store: LRUCache[str, bytes] = LRUCache(100_000, getsizeof=len)
    filter = RotatingBloomFilter(100, window=None)
    return AsgiCacheMiddleware(app, AsyncAdmissionCache(store, filter))


def test_a_framework(tmp_path: Path) -> None:
    """JSON and a file are cached, a stream passes, an error is raised and leaves nothing."""
    app, calls = site(tmp_path)
    middleware = cached(app)

    async def main() -> None:
        transport = httpx.ASGITransport(middleware)
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
            for path, made in (("/json", 2), ("/file", 2), ("/stream", 4)):
                answers = [await client.get(path) for _ in range(4)]
                assert {answer.status_code for answer in answers} == {200}
                assert calls.count(path[1:]) == made, path
                assert answers[3].content == answers[2].content
            with pytest.raises(ZeroDivisionError):
                await client.get("/broken")
            head = await client.head("/json")
            assert (head.status_code, head.content) == (200, b"")

    asyncio.run(main())
    assert middleware.info()["under_way"] == 0


def run(app: Any, scope: dict[str, Any]) -> list[Any]:
    """The messages that come back."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    asyncio.run(app(scope, receive, send))
    return sent


def test_messages_that_are_not_understood_pass() -> None:
    """A file that the server is to send, and trailers, go through and are not kept."""
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    start = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"cache-control", b"max-age=9")],
    }
    body = {"type": "http.response.body", "body": b"x"}
    for messages in (
        [start, {"type": "http.response.pathsend", "path": "/x"}],
        [{**start, "trailers": True}, body, {"type": "http.response.trailers", "headers": []}],
    ):

        async def app(scope: Any, receive: Any, send: Any, messages: Any = messages) -> None:
            for message in messages:
                await send(message)

        middleware = cached(app)
        for _ in range(4):
            assert run(middleware, scope) == messages
        assert middleware.info()["kept"] == 0


def test_a_body_in_one_message_is_whole() -> None:
    """It needs no Content-Length; and an authenticated user, as Starlette has it, gets no cached
    response."""

    class User:
        is_authenticated = True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    middleware = cached(app)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    for _ in range(3):
        assert run(middleware, scope)[1]["body"] == b"x"
    run(middleware, {**scope, "user": User()})
    counts = middleware.info()
    assert (counts["hits"], counts["kept"], counts["bypassed"]) == (1, 1, 1)


def test_other_protocols_pass() -> None:
    """WebSockets and lifespan go straight to the application."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": scope["type"]})

    for kind in ("websocket", "lifespan"):
        assert run(cached(app), {"type": kind}) == [{"type": kind}]


class Anonymous:
    """A user as Starlette and Django have it for requests without one."""

    is_authenticated = False


@pytest.mark.parametrize(
    ("known", "cached_hits"),
    [
        ({"user": "ada"}, 0),
        ({"user": {"id": 5}}, 0),
        ({"user": Anonymous()}, 2),
        ({"extensions": {"tls": {"client_cert_name": "CN=ada"}}}, 0),
        ({"extensions": {"tls": {"client_cert_chain": ["-----BEGIN"]}}}, 0),
        ({"extensions": {"tls": {"client_cert_chain": []}}}, 2),
        ({"headers": [(b"X-Auth-Request-User", b"ada")]}, 0),
        ({"headers": [(b"x-amzn-oidc-identity", b"ada")]}, 0),
        ({"headers": [(b"x-colour", b"red")]}, 0),
    ],
)
def test_users_whom_the_server_or_a_proxy_knows(known: dict[str, Any], cached_hits: int) -> None:
    """By middleware outside, a client certificate or a header: their pages are not kept."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    middleware = cached(app)
    for _ in range(4):
        run(middleware, {"type": "http", "method": "GET", "path": "/", "headers": [], **known})
    counts = middleware.info()
    assert (counts["hits"], counts["kept"]) == (cached_hits, min(cached_hits, 1))


def test_vary_by_content_type_and_lists_of_headers() -> None:
    """The value is part of the key; a header that an application knows can be let in."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"cache-control", b"max-age=60"), (b"vary", b"Content-Type")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": dict(scope["headers"])[b"content-type"]})

    middleware = AsgiCacheMiddleware(
        app,
        AsyncAdmissionCache({}, RotatingBloomFilter(100, window=None)),
        identity_headers=["x-staff"],
        anonymous_headers=[*ANONYMOUS_HEADERS, "x-colour"],
    )
    for _ in range(3):
        for kind in (b"application/json", b"application/xml"):
            headers = [(b"content-type", kind), (b"x-colour", b"red")]
            scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
            assert run(middleware, scope)[1]["body"] == kind
    assert middleware.info()["hits"] == 2
    run(middleware, {**scope, "headers": [*headers, (b"X-Staff", b"ada")]})
    assert middleware.info()["bypassed"] == 1
