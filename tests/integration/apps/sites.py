"""A small web site that counts its requests, served by wsgiref or by uvicorn."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn
from cachetools import LRUCache

from bloomery import RotatingBloomFilter
from bloomery.apps import (
    AdmissionCache,
    AsgiCacheMiddleware,
    AsyncAdmissionCache,
    WsgiCacheMiddleware,
)
from unit.clocks import Clock
from waiting import wait_until


@dataclass
class Page:
    """What the site answers at a path. `lengths` says whether Content-Length is sent; `wait` is
    called before the answer begins."""

    body: bytes = b"page"
    headers: dict[str, str] = field(default_factory=lambda: {"Cache-Control": "max-age=60"})
    status: int = 200
    pieces: int = 1
    lengths: bool = True
    more: list[tuple[str, str]] = field(default_factory=list)  # headers, again
    wait: Callable[[], object] = lambda: None


class Site:
    """Pages by path; a page's body begins with how often it was made."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: Counter[tuple[str, str]] = Counter()

    def answer(self, method: str, path: str) -> tuple[Page, list[tuple[str, str]], list[bytes]]:
        self.asked[method, path] += 1
        page = self.pages.get(path, Page(status=404))
        page.wait()
        body = b"%d:%s" % (self.asked[method, path], page.body)
        headers = [*page.headers.items(), *page.more]
        if page.lengths:
            headers.append(("Content-Length", str(len(body))))
        step = max(1, -(-len(body) // page.pieces))
        pieces = [body[at : at + step] for at in range(0, len(body), step)]
        return page, headers, [] if method == "HEAD" else pieces

    def wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        page, headers, pieces = self.answer(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        start_response(f"{page.status} Said", headers)
        return pieces if page.pieces == 1 else iter(pieces)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        answer = asyncio.to_thread(self.answer, scope["method"], scope["path"])
        page, headers, pieces = await answer
        pairs = [(name.encode(), text.encode("latin-1")) for name, text in headers]
        await send({"type": "http.response.start", "status": page.status, "headers": pairs})
        for number, piece in enumerate(pieces or [b""], 1):
            more = number < len(pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


class Served:
    """A site behind the middleware, on a port."""

    url: str
    site: Site
    clock: Clock
    store: LRUCache[str, bytes]
    middleware: Any

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def begin(self) -> None:
        """Serve a new site, with an empty cache, from now on."""
        self.site, self.clock = Site(), Clock(1_700_000_000.0)
        self.store = LRUCache(100_000, getsizeof=len)
        filter = RotatingBloomFilter(1000, 1e-9, window=None)
        options: dict[str, Any] = {"max_body": 10_000, "clock": self.clock}
        if self._kind == "wsgi":
            cache = AdmissionCache(self.store, filter)
            self.middleware = WsgiCacheMiddleware(self.site.wsgi, cache, **options)
        else:
            waiting = AsyncAdmissionCache(self.store, filter)
            self.middleware = AsgiCacheMiddleware(self.site.asgi, waiting, **options)

    def wsgi(self, environ: Any, start_response: Any) -> Any:
        return self.middleware(environ, start_response)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        await self.middleware(scope, receive, send)


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(kind: str) -> Iterator[Served]:
    """A server on a port of its own, until the end of the block."""
    running = Served(kind)
    if kind == "wsgi":
        made = make_server("127.0.0.1", 0, running.wsgi, _Threads, _Quiet)
        running.url = f"http://127.0.0.1:{made.server_port}"
        thread = threading.Thread(target=made.serve_forever, args=[0.01])
        thread.start()
        try:
            yield running
        finally:
            made.shutdown()
            made.server_close()
            thread.join()
        return
    config = uvicorn.Config(running.asgi, port=0, log_level="critical", interface="asgi3")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        running.url = f"http://127.0.0.1:{port}"
        yield running
    finally:
        server.should_exit = True
        thread.join()
