"""How long any request holds up the PING of another client: the largest that each command and each
route takes, one after the other, and a PING beside it all the while.

`CASES` names every command and every route; a test compares it with the server's own tables.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import schedstat
from benchmarks.service.wire import Word, packed

MIB = 1 << 20
LIMIT = 0.050  # seconds that a request may hold up others
_END = b"the-end-of-it"


@dataclass(frozen=True)
class Size:
    """How large what is asked about is."""

    filters: int = 2000  # small ones
    long_names: int = 200  # of 1,000 bytes each
    large_bytes: int = 64 * MIB  # of a filter
    arguments: int = 1 << 18  # of a command, as many as it may have
    flood: int = 300  # of one command, at once
    body: int = 16 * MIB  # of JSON
    stream: int = 16 * MIB  # of lines of JSON, and of Arrow: a message has no more


class Stage:
    """A server, and what the cases ask it about."""

    def __init__(self, pid: int, port: int, http_port: int, size: Size | None = None) -> None:
        self.pid, self.port, self.http_port = pid, port, http_port
        self.size = size or Size()

    def cpu_seconds(self) -> float:
        """Time on the processor until now, of all threads of the server."""
        return schedstat.cpu_seconds(self.pid)

    def loop_seconds(self) -> float:
        """The same of the thread that serves, which is the first."""
        with schedstat.opened(self.pid) as file:
            return schedstat.ran(file)

    def call(self, *commands: Sequence[Word]) -> bytes:
        """Do commands; their replies, raw."""
        return self.resp(b"".join(packed(command) for command in commands))

    def resp(self, data: bytes) -> bytes:
        """Send commands as they are on the wire; their replies, raw."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=600) as peer:
            return _exchange(peer, data + packed(["ECHO", _END]), lambda got: got.endswith(_TAIL))

    def http(
        self, method: str, path: str, body: bytes = b"", media: str = "application/json"
    ) -> bytes:
        """The answer to a request, raw."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self.http_port), timeout=600) as peer:
            return _exchange(peer, head.encode() + body, lambda got: False)


_TAIL = b"$%d\r\n%b\r\n" % (len(_END), _END)


def _exchange(peer: socket.socket, data: bytes, whole: Callable[[bytes], bool]) -> bytes:
    """Send, and read at the same time, until the answer is whole or the server hangs up."""

    def send() -> None:
        with contextlib.suppress(OSError):  # it may hang up before it has all
            peer.sendall(data)

    sending = threading.Thread(target=send)
    sending.start()
    parts, last = [], b""
    with contextlib.suppress(ConnectionError):
        while not whole(last) and (got := peer.recv(1 << 20)):
            parts.append(got)
            last = (last + got)[-64:]
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
    sending.join()
    return b"".join(parts)


@dataclass(frozen=True)
class Held:
    """How long others were held up by a request."""

    loop: float  # what the serving thread worked before it answered a PING, at most
    seconds: float  # the longest PING, less what other processes took of it
    wall: float  # the longest PING
    took: float  # the request itself
    answer: bytes  # the beginning of it


def measure(
    stage: Stage, request: Callable[[], bytes], pause: float = 0.0005, *, http: bool = False
) -> Held:
    """Do a request, and PING beside it, with so many seconds from a reply to the next one: as much
    less it may find. `http`: ask /healthz instead, for a request that closes connections."""
    port, ping = (stage.http_port, _ask_health) if http else (stage.port, _ping)
    answers: list[bytes] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(request())
        except BaseException as problem:  # noqa: BLE001  # told below
            failures.append(problem)

    with socket.create_connection(("127.0.0.1", port), timeout=600) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ping(peer)
        asking = threading.Thread(target=run)
        began = time.perf_counter()
        asking.start()
        loop = held = wall = 0.0
        while True:
            last = not asking.is_alive()  # one more after it: what it left to do counts too
            spent, own, start = stage.cpu_seconds(), stage.loop_seconds(), time.perf_counter()
            ping(peer)
            seconds = time.perf_counter() - start
            loop, wall = max(loop, stage.loop_seconds() - own), max(wall, seconds)
            # Where the machine ran others meanwhile, the server cannot have held anybody up.
            held = max(held, min(seconds, stage.cpu_seconds() - spent))
            if last:
                break
            time.sleep(pause)
        asking.join()
    if failures:
        raise failures[0]
    return Held(loop, held, wall, time.perf_counter() - began, answers[0][:200])


def _ping(peer: socket.socket) -> None:
    peer.sendall(b"PING\r\n")
    got = b""
    while not got.endswith(b"\r\n"):
        got += peer.recv(64)


def _ask_health(peer: socket.socket) -> None:
    peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    got = b""
    while b"\r\n\r\n" not in got:
        got += peer.recv(4096)
    head, _, body = got.partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length:")[2].split()[0]) - len(body)
    while left:
        left -= len(peer.recv(left))
