"""A web server over a folder, with ETags, that can be told to misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Site:
    """What is served, what was asked for, and what is to go wrong."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}/feed/"
        self.asked: list[tuple[str, int]] = []
        self.cut: dict[str, int] = {}  # by the end of a name: send so many bytes and hang up
        self.added: dict[str, bytes] = {}  # the same: send these behind the file
        self.slow: str | None = None  # the same: send a byte now and then
        self.redirect: str | None = None
        self.always_304 = False

    def matching(self, table: dict[str, object], name: str) -> object:
        """What a table has for a name."""
        return next((value for end, value in table.items() if name.endswith(end)), None)


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A folder, served until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/feed/")
            path = served.folder / name
            if served.redirect is not None:
                self._head(302, {"Location": served.redirect, "Content-Length": "0"})
                return
            if not path.is_file() or "/" in name:
                self._head(404, {"Content-Length": "0"})
                return
            data = path.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
            if served.always_304 or self.headers.get("If-None-Match") == etag:
                self._head(304, {"ETag": etag})
                return
            extra = served.matching(dict(served.added), name)
            data += extra if isinstance(extra, bytes) else b""
            self._head(200, {"ETag": etag, "Content-Length": str(len(data))})
            cut = served.matching(dict(served.cut), name)
            if served.slow is not None and name.endswith(served.slow):
                with contextlib.suppress(OSError):
                    for at in range(len(data)):
                        self.wfile.write(data[at : at + 1])
                        time.sleep(0.02)
            else:
                self.wfile.write(data[:cut] if isinstance(cut, int) else data)
            self.close_connection = True

        def _head(self, code: int, headers: dict[str, str]) -> None:
            served.asked.append((self.path.removeprefix("/feed/"), code))
            self.send_response(code)
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not into the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Site(folder, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
