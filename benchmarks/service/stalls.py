"""How long any request holds up other clients: the largest that each command and each route takes,
one after the other. All the while, one client asks a worker, and another the control plane.

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

    loop: float  # what the control plane worked before it answered a command, at most
    seconds: float  # the longest question, less what other processes took of it
    wall: float  # the longest question
    took: float  # the request itself
    answer: bytes  # the beginning of it


class _Probe(threading.Thread):
    """Another client, which asks the same again and again until it is stopped: once more then, as
    the request may have left something to do."""

    def __init__(
        self, stage: Stage, port: int, ask: Callable[[socket.socket], None], pause: float
    ) -> None:
        super().__init__()
        self._stage, self._port, self._ask, self._pause = stage, port, ask, pause
        self.over = threading.Event()
        self._ready = threading.Event()
        self.loop = self.seconds = self.wall = 0.0
        self._failure: BaseException | None = None

    def __enter__(self) -> None:
        self.start()
        self._ready.wait()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=600) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._ask(peer)
                self._ready.set()
                last = False
                while not last:
                    last = self.over.is_set()
                    self._measure(peer)
                    time.sleep(self._pause)
        except BaseException as problem:  # noqa: BLE001  # raised where the probe ends
            self._failure = problem
        finally:
            self._ready.set()

    def _measure(self, peer: socket.socket) -> None:
        stage = self._stage
        spent, own, start = stage.cpu_seconds(), stage.loop_seconds(), time.perf_counter()
        self._ask(peer)
        seconds = time.perf_counter() - start
        self.loop = max(self.loop, stage.loop_seconds() - own)
        self.wall = max(self.wall, seconds)
        # Where the machine ran others meanwhile, the server cannot have held anybody up.
        self.seconds = max(self.seconds, min(seconds, stage.cpu_seconds() - spent))


def measure(
    stage: Stage, request: Callable[[], bytes], pause: float = 0.0005, *, http: bool = False
) -> Held:
    """Do a request, and ask beside it, with so many seconds from a reply to the next question: as
    much less it may find. Two clients ask: a worker answers the PING of one, and the control plane
    the BF.CARD of the other. `http`: ask /healthz instead, for a request that closes connections.
    """
    control = _Probe(stage, stage.port, _card, pause)
    worker = _Probe(stage, stage.port, _ping, pause)
    if http:
        control = worker = _Probe(stage, stage.http_port, _ask_health, pause)
    with contextlib.ExitStack() as ends:
        for probe in {control, worker}:
            ends.enter_context(probe)
        began = time.perf_counter()
        answer = request()
        took = time.perf_counter() - began
    seconds, wall = max(control.seconds, worker.seconds), max(control.wall, worker.wall)
    return Held(control.loop, seconds, wall, took, answer[:200])


def _ping(peer: socket.socket) -> None:
    _ask_line(peer, b"PING\r\n")


def _card(peer: socket.socket) -> None:
    _ask_line(peer, b"BF.CARD no-such\r\n")


def _ask_line(peer: socket.socket, command: bytes) -> None:
    peer.sendall(command)
    got = b""
    while not got.endswith(b"\r\n"):
        received = peer.recv(64)
        if not received:
            raise ConnectionResetError("the server closed the connection of a probe")
        got += received


def _ask_health(peer: socket.socket) -> None:
    peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    got = b""
    while b"\r\n\r\n" not in got:
        got += peer.recv(4096)
    head, _, body = got.partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length:")[2].split()[0]) - len(body)
    while left:
        left -= len(peer.recv(left))
