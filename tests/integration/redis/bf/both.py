"""A door to two real servers, as one: Redis for strings, `bloomery serve` for BF.*.

Together they answer as a Redis with RedisBloom does: each command goes to the one that has the key,
as it came, and the reply goes back as it is.
"""

import socketserver
import threading
from types import TracebackType

from integration.resp.wire import Wire, request

# Commands of any key, and what the names of filters have.
_ANY = b"COPY DEL EXISTS PERSIST PEXPIRE PTTL RENAME RENAMENX TTL UNLINK".split()
_FILTERS = (b":bits", b":push:", b":copy:", b":clear:")


class _Talk(socketserver.StreamRequestHandler):
    """One client, with a connection of its own to each server."""

    server: "Both"

    def handle(self) -> None:
        """Pass commands and replies on until somebody hangs up."""
        with Wire(self.server.ports[0]) as redis, Wire(self.server.ports[1]) as filters:
            while words := self._words():
                name = words[0].upper()
                key = words[1] if len(words) > 1 else b""
                data = request(*words)
                if name == b"HELLO":
                    filters.send(data)
                    filters.reply()
                own = name in _ANY and any(part in key for part in _FILTERS)
                to = filters if own or name.startswith(b"BF.") else redis
                to.send(data)
                self.wfile.write(to.reply())

    def _words(self) -> list[bytes]:
        head = self.rfile.readline()
        words = []
        for _ in range(int(head[1:-2] or 0)):
            size = int(self.rfile.readline()[1:-2])
            words.append(self.rfile.read(size + 2)[:-2])
        return words


class Both(socketserver.ThreadingTCPServer):
    """The door, open while it is a context."""

    daemon_threads = False  # so that closing waits for them
    allow_reuse_address = True

    def __init__(self, redis_port: int, filters_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Talk)
        self.ports = redis_port, filters_port
        self.port = int(self.server_address[1])
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> "Both":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
