"""What strangers can make the server keep: requests that are begun and not ended."""

import io
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from conftest import require
from integration.conftest import open_folder, started
from integration.http.asking import Http
from integration.resp.wire import Wire, request
from integration.servers import BloomeryServer, wait_until

MIB = 1 << 20
SENT = 20 * MIB  # by each
PEERS = 30
# Beside the budget: what the system's allocator keeps, and what each connection has to itself.
BOUND = 64 * MIB + 96 * MIB


@pytest.fixture
def server() -> Iterator[BloomeryServer]:
    """A server without users, as it comes."""
    with open_folder() as folder, started(BloomeryServer(folder), kill=True) as server:
        with Http(server) as http:
            http.create("seen")
        yield server


def resident(server: BloomeryServer) -> int:
    """Bytes that the server has in memory."""
    with open(f"/proc/{server.pid}/status") as file:
        (line,) = [line for line in file if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


def bulk(name: str) -> bytes:
    """A command whose one argument is long; of many, each of which is short."""
    return b"*3\r\n$6\r\nBF.ADD\r\n$4\r\nseen\r\n$%d\r\n" % (15 * MIB) + b"x" * (15 * MIB - 1)


def many(name: str) -> bytes:
    """A command of many arguments, of which the last is missing."""
    count = 200_000
    return (
        b"*%d\r\n$7\r\nBF.MADD\r\n$4\r\nseen\r\n" % (count + 3)
        + (b"$100\r\n" + b"y" * 100 + b"\r\n") * count
    )


def queued(name: str) -> bytes:
    """A transaction that is not executed."""
    return b"MULTI\r\n" + (b"*2\r\n$4\r\nECHO\r\n$1000\r\n" + b"z" * 1000 + b"\r\n") * 15_000


def _head(media: str, length: int = SENT + 1, accept: str = "") -> bytes:
    return (
        f"POST /filters/seen/contains HTTP/1.1\r\nHost: x\r\nContent-Type: {media}\r\n"
        f"{accept}Content-Length: {length}\r\n\r\n"
    ).encode()


def body(name: str) -> bytes:
    """A body of JSON whose last byte is missing."""
    return _head("application/json", 16 * MIB) + b'{"key":"' + b"x" * (16 * MIB - 20)


def line(name: str) -> bytes:
    """A line of JSON that does not end."""
    return _head("application/x-ndjson") + b'"' + b"x" * (4 * MIB - 10)


def answers(name: str) -> bytes:
    """Short lines, whose answers are wanted at the end, which does not come."""
    accept = "Accept: application/x-ndjson\r\n"
    return _head("application/x-ndjson", 1 << 40, accept) + b"1\n" * (SENT // 2)


def arrow(name: str) -> bytes:
    """A message of Arrow whose last bytes are missing."""
    pyarrow = require("pyarrow")
    out = io.BytesIO()
    batch = pyarrow.record_batch([pyarrow.array(range(SENT // 8))], ["key"])
    with pyarrow.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return _head("application/vnd.apache.arrow.stream") + out.getvalue()[:-1000]


@contextmanager
def begun(server: BloomeryServer, data: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent so much, as far as it was taken, and send no more."""
    port = server.http_port if data.startswith(b"POST") else server.resp_port
    with ExitStack() as ends:
        peers = []
        for _ in range(PEERS):
            peer = ends.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            peers.append(peer)
            try:
                peer.sendall(data)
            except OSError:  # refused, or not taken
                continue
        yield peers


@pytest.mark.slow
@pytest.mark.parametrize("make", [bulk, many, queued, body, line, answers, arrow])
def test_what_is_begun_holds_no_more_than_the_budget(
    server: BloomeryServer, make: Callable[[str], bytes]
) -> None:
    """30 clients send 20 MiB each of a request and do not end it: the server keeps 64 MiB, small
    requests of others are served, and all is given back."""
    with Http(server) as http:
        http.keys("seen", "contains", "warm")
    before = resident(server)
    with begun(server, make("")):
        assert resident(server) - before < BOUND
        with Wire(server.resp_port) as wire:
            assert wire.ask("BF.ADD", "seen", "a") in (b":1\r\n", b":0\r\n")
        with Http(server) as http:
            assert http.keys("seen", "contains", "a") == [True]
        assert resident(server) - before < BOUND
    with Http(server) as http:  # there is room again
        large = "x" * (3 * MIB)
        assert wait_until(
            lambda: http.client.post("/filters/seen/add", json={"key": large}).status_code == 200
        )


def test_who_would_pass_the_budget_is_told(server: BloomeryServer) -> None:
    """The error names the setting; the connection stays usable, and a request that fits is
    taken."""
    with Wire(server.resp_port) as wire:
        assert wire.ask("CONFIG", "SET", "max-input-bytes", MIB) == b"+OK\r\n"

        with Wire(server.resp_port) as other:
            for _ in range(2):  # the connection stays usable
                reply = other.ask("BF.ADD", "seen", b"x" * (8 * MIB))
                assert reply.startswith(b"-ERR too many large requests at once (max-input")
            assert other.ask("BF.EXISTS", "seen", b"x" * (8 * MIB // 16)) == b":0\r\n"
        assert wire.ask("BF.ADD", "seen", b"x" * (MIB // 2)) == b":1\r\n"
    with Http(server) as http:
        body = {"key": "x" * (3 * MIB)}
        told = http.ask("POST", "/filters/seen/add", body, 503)
        assert "max-input-bytes" in told["detail"]


def test_a_command_that_does_not_end_is_ended(server: BloomeryServer) -> None:
    """Who has begun a command and drips, or sends nothing more, is hung up on; who is idle, or
    sends whole commands, is not."""
    with ExitStack() as ends:
        silent, dripping, idle = (ends.enter_context(Wire(server.resp_port)) for _ in range(3))
        assert idle.ask("CONFIG", "SET", "request-seconds", 1) == b"+OK\r\n"
        silent.send(b"*2\r\n$4\r\nECHO\r\n$10\r\nabc")
        dripping.send(b"*2\r\n$4\r\nECHO\r\n$1000000\r\nabc")
        dripping.socket.settimeout(0.2)
        until = time.monotonic() + 60
        ended = False
        while not ended and time.monotonic() < until:
            try:
                dripping.send(b"x")
                ended = dripping.closed()
            except OSError:
                ended = True
        assert ended
        assert silent.closed()
        assert idle.ask("PING") == b"+PONG\r\n"


@pytest.mark.slow
def test_a_command_on_an_old_connection_has_its_time(server: BloomeryServer) -> None:
    """The time for a command counts from its first bytes, not from the connection's."""
    with Wire(server.resp_port) as wire, Wire(server.resp_port) as other:
        assert other.ask("CONFIG", "SET", "request-seconds", 5) == b"+OK\r\n"
        begun = time.monotonic()
        assert wire.ask("PING") == b"+PONG\r\n"
        assert wait_until(lambda: time.monotonic() > begun + 6)
        whole = request("BF.ADD", "old", "x" * 1000)
        wire.send(whole[:500])
        sent = time.monotonic()
        assert wait_until(lambda: time.monotonic() > sent + 2)  # who is late is ended each second
        wire.send(whole[500:])
        assert wire.reply() == b":1\r\n"
