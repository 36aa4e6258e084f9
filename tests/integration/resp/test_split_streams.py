"""The stream of a client may be split anywhere, in plaintext and inside TLS records, also in the
handshake: the replies are those to the undivided stream.

Splitting happens in the test, next to the socket. A piece is sent when a worker has read the piece
before it: a worker that has since replied to two PINGs has looked at all of its sockets.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import effort
from integration.resp.wire import Word, request
from integration.servers import PATIENCE, BloomeryServer, Serve, wait_until
from unit.service.certificates import Pairs

WORKERS = 2
PONG = b"+PONG\r\n"


def script(number: int) -> bytes:
    """Return commands for workers and for the control plane, transactions and errors; the last one
    closes the connection. `number` has four digits."""
    bits, cells = f"b{number}", f"c{number}"
    commands: list[tuple[Word, ...]] = [
        ("BF.RESERVE", bits, "1e-6", 100),
        ("BF.ADD", bits, "a"),
        ("BF.MADD", bits, "a", b"\r\n\0", ""),
        ("BF.MEXISTS", bits, b"\r\n\0", "z"),
        ("BF.ADD", bits),
        ("MISSING", "x"),
        ("CF.ADD", cells, "x"),
        ("BF.ADD", cells, "x"),
        ("MULTI",),
        ("BF.ADD", bits, "d"),
        ("ECHO", ""),
        ("BF.RESERVE", bits, 0.1, 9),
        ("CF.DEL", cells, "x"),
        ("EXEC",),
        ("MULTI",),
        ("CF.ADD", cells),
        ("EXEC",),
        ("EXPIRE", bits, 1000),
        ("BF.EXISTS", bits, "d"),
        ("DEL", bits, cells),
    ]
    return b"ping\r\n" + b"".join(request(*words) for words in commands) + b"*1\r\n$x\r\n"


class Session:
    """A connection that splits what it sends."""

    def __init__(
        self,
        port: int,
        tls: ssl.SSLContext | None,
        is_cut: Callable[[int], bool] = lambda position: False,
        on_cut: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_cut`: whether the stream is split before the byte at a position."""
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0
        self._is_cut, self._on_cut = is_cut, on_cut
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if tls is not None:
            pipes = self._incoming, self._outgoing
            self._tls = tls.wrap_bio(*pipes, server_hostname="localhost")

    def close(self) -> None:
        self.socket.close()

    @property
    def address(self) -> bytes:
        return b"addr=127.0.0.1:%d " % self.socket.getsockname()[1]

    def ask(self, *words: Word) -> bytes:
        """Send a command; return the start of the reply."""
        self.send(request(*words))
        return self.receive()

    def send(self, data: bytes) -> None:
        if self._tls is None:
            self._carry(data)
        else:
            self._shake_hands(self._tls)
            self._tls.write(data)
            self._carry(self._outgoing.read())

    def receive(self) -> bytes:
        """Return some bytes, or b"" at the end."""
        if self._tls is None:
            return self.socket.recv(1 << 16)
        while True:
            try:
                return self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                self._fill()
            except ssl.SSLZeroReturnError:
                return b""

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        while True:
            try:
                tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._carry(self._outgoing.read())
                self._fill()

    def _fill(self) -> None:
        data = self.socket.recv(1 << 16)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _carry(self, data: bytes) -> None:
        start = 0
        for end in range(1, len(data)):
            if self._is_cut(self.sent + end):
                self.socket.sendall(data[start:end])
                self._on_cut()
                start = end
        self.socket.sendall(data[start:])
        self.sent += len(data)


class Splitter:
    """Sends the script in pieces. Has a connection to each worker: workers get connections in
    rotation."""

    def __init__(self, server: BloomeryServer, tls: ssl.SSLContext | None) -> None:
        self._port, self._tls = server.resp_port, tls
        self._workers = [Session(self._port, tls) for _ in range(WORKERS)]
        for worker in self._workers:
            assert worker.ask("PING") == PONG

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def run(self, number: int, is_cut: Callable[[int], bool]) -> tuple[bytes, int]:
        """Return the replies to the script, and the bytes that were sent."""
        session = Session(self._port, self._tls, is_cut, self._settle)
        try:
            assert wait_until(lambda: session.address in self._workers[0].ask("CLIENT", "LIST"))
            session.send(script(number))
            replies = b"".join(iter(session.receive, b""))
        finally:
            session.close()
        return replies.replace(b"%d" % number, b"N"), session.sent

    def _settle(self) -> None:
        """Return when all workers have read what was sent."""
        for worker in self._workers * 2:
            assert worker.ask("PING") == PONG


@pytest.fixture(params=["plaintext", "tls"])
def splitters(
    request: pytest.FixtureRequest, serve: Serve, tmp_path: Path
) -> Iterator[list[Splitter]]:
    """Two splitters of one server, for two threads."""
    options, tls = ["--set", f"threads={WORKERS}"], None
    if request.param == "tls":
        certificates = Pairs(tmp_path)
        cert, key = certificates.make("server")
        options += ["--tls-cert", cert, "--tls-key", key]
        tls = certificates.client()
    server = serve(*options)
    made = [Splitter(server, tls) for _ in range(2)]
    yield made
    for splitter in made:
        splitter.close()


def test_replies_do_not_depend_on_pieces(splitters: list[Splitter]) -> None:
    """The script is sent undivided, in single bytes, and in two pieces. The soak profile splits at
    each position, `make test` at every third."""
    expected, length = splitters[0].run(1000, lambda position: False)
    assert expected.startswith(b"+PONG\r\n+OK\r\n:1\r\n*3\r\n:0\r\n:1\r\n:1\r\n*2\r\n:1\r\n:0\r\n")
    assert expected.count(b"+QUEUED") == 4
    assert b"-EXECABORT" in expected
    assert b"-ERR Protocol error: invalid bulk length" in expected
    replies, _ = splitters[0].run(1001, lambda position: True)
    assert replies == expected, "in single bytes"
    step = effort(7, 3, 1)

    def split(part: int) -> None:
        for number, at in enumerate(range(1 + part * step, length, len(splitters) * step)):
            replies, _ = splitters[part].run(2000 + 4000 * part + number, at.__eq__)
            assert replies == expected, f"split at {at}"

    with ThreadPoolExecutor(len(splitters)) as pool:
        list(pool.map(split, range(len(splitters))))
