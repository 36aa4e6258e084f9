"""ASGI middleware that caches responses at their second request (FastAPI, Starlette, Django)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from bloomery.apps.caching.aioadmission import AsyncAdmissionCache
from bloomery.apps.caching.aioresponses import AsyncResponseCache
from bloomery.apps.caching.http_rules import CacheRequest, Exchange
from bloomery.apps.caching.request_headers import ANONYMOUS_HEADERS, IDENTITY_HEADERS, HeaderRules

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
_SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")


class AsgiCacheMiddleware:
    """An ASGI application whose responses are cached, from their second request on.

        cache = AsyncAdmissionCache(LRUCache(64 << 20, len), RotatingBloomFilter(100_000))
        app = AsgiCacheMiddleware(app, cache)

    Which responses are kept is as in `WsgiCacheMiddleware`. WebSockets and lifespan pass.
    """

    def __init__(
        self,
        app: Application,
        cache: AsyncAdmissionCache,
        *,
        max_body: int = 1 << 20,
        identity_headers: Collection[str] = IDENTITY_HEADERS,
        anonymous_headers: Collection[str] = ANONYMOUS_HEADERS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app, self._responses = app, AsyncResponseCache(cache, max_body, clock)
        self._clock = clock
        self._rules = HeaderRules(identity_headers, anonymous_headers)

    def info(self) -> dict[str, Any]:
        """Figures: hits, misses, bypassed, kept, forgotten, and the cache's own."""
        return self._responses.info()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _request(scope, self._rules)
        if not request.may_use_cache:
            self._responses.count("bypassed")
            await self._app(scope, receive, self._forgetting(request, send))
            return
        response = await self._responses.find(request)
        if response is not None:
            age = str(int(response.age_at(self._clock())))
            headers = [*response.headers, ("Age", age), ("Cache-Status", "bloomery; hit")]
            encoded = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers]
            await send({"type": "http.response.start", "status": 200, "headers": encoded})
            body = b"" if request.method == "HEAD" else response.body
            await send({"type": "http.response.body", "body": body})
            return
        exchange = self._responses.begin(request)
        try:
            await self._app(scope, receive, _AsgiRecording(self._responses, exchange, send).send)
        finally:
            self._responses.end(exchange)

    def _forgetting(self, request: CacheRequest, send: Send) -> Send:
        """`send`, which forgets the resource when it was changed."""
        if request.method in _SAFE:
            return send

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and 200 <= message["status"] < 400:
                await self._responses.forget(request)
            await send(message)

        return sending


class _AsgiRecording:
    """A response on its way: passed on message by message, and kept when it was whole."""

    def __init__(self, responses: AsyncResponseCache, exchange: Exchange, send: Send) -> None:
        self._responses, self._exchange, self._send = responses, exchange, send
        self._wanted = self._streams = False
        self._pieces: list[bytes] = []
        self._length = 0

    async def send(self, message: Message) -> None:
        """The application's `send`."""
        kind = message["type"]
        if kind == "http.response.start":
            pairs = message.get("headers", ())
            headers = [(name.decode("latin-1"), text.decode("latin-1")) for name, text in pairs]
            wanted = self._responses.wants(self._exchange, message["status"], headers)
            self._wanted = wanted and not message.get("trailers")
            self._streams = all(name.lower() != "content-length" for name, _ in headers)
        elif kind == "http.response.body":
            await self._note(message.get("body", b""), bool(message.get("more_body")))
        else:  # a file that the server sends, trailers: not seen here
            self._wanted = False
        await self._send(message)

    async def _note(self, piece: bytes, more: bool) -> None:
        self._length += len(piece)
        # A stream that does not say how long it is passes.
        if self._length > self._responses.max_body or (more and self._streams):
            self._wanted = False
        if not self._wanted:
            self._pieces.clear()
            return
        self._pieces.append(bytes(piece))
        if not more:
            self._wanted = False  # kept once, whatever is sent behind the end
            await self._responses.keep(self._exchange, b"".join(self._pieces))


def _request(scope: Message, rules: HeaderRules) -> CacheRequest:
    headers = [
        (name.decode("latin-1").lower(), text.decode("latin-1")) for name, text in scope["headers"]
    ]
    server = scope.get("server") or ("", "")
    target = [scope.get("scheme", "http"), *map(str, server), scope.get("root_path", "")]
    target += [scope["path"], *_text(scope, "raw_path"), *_text(scope, "query_string")]
    return CacheRequest(scope["method"], target, headers, _is_authenticated(scope), rules)


def _is_authenticated(scope: Message) -> bool:
    """Whether the server, or middleware outside, knows the user or has a client certificate."""
    user = scope.get("user")
    if user is not None and getattr(user, "is_authenticated", True):
        return True
    tls = (scope.get("extensions") or {}).get("tls") or {}
    return bool(tls.get("client_cert_chain") or tls.get("client_cert_name"))


def _text(scope: Message, name: str) -> list[str]:
    return [(scope.get(name) or b"").decode("latin-1")]
