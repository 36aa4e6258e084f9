"""HTTP, for now only for those who watch the server: is it alive, is it ready?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["HttpDoor"]

_SECONDS = 5  # that a request may take to come
_MOST_BYTES = 16 << 10


class HttpDoor:
    """GET /healthz: 200 while the server lives. GET /readyz: 200 while it serves, else 503."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def protocol(self) -> asyncio.StreamReaderProtocol:
        """Take a connection."""
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self.serve)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SECONDS)
            status, body = self._answer(head[:_MOST_BYTES].split(b" ", 2))
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
            )
            await asyncio.wait_for(writer.drain(), _SECONDS)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # it went away, or is no client of HTTP
        finally:
            writer.close()

    def _answer(self, words: list[bytes]) -> tuple[str, str]:
        method, path = words[0], words[1] if len(words) > 1 else b""
        if path not in (b"/healthz", b"/readyz"):
            return "404 Not Found", "there is /healthz and /readyz\n"
        if method not in (b"GET", b"HEAD"):
            return "405 Method Not Allowed", "only GET\n"
        if path == b"/readyz" and not self.server.ready:
            return "503 Service Unavailable", "not ready\n"
        return "200 OK", "ok\n"
