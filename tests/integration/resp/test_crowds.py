"""Many clients, slow ones, silent ones, and those that ask for very much at once."""

import resource
import select
import time
from collections.abc import Iterator

import pytest

from conftest import require
from integration.resp.wire import Wire, request, told
from integration.servers import BloomeryServer, Serve, wait_until

psutil = require("psutil")
MIB = 1 << 20


@pytest.fixture
def few_files() -> Iterator[None]:
    """Let a server that is started here be allowed 256 files until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections_at_once(few_files: None, serve: Serve) -> None:
    """A thousand clients connect, add and ask at the same time, and each gets its own answers,
    however few files a process may open at first."""
    server = serve()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    wires = [Wire(server.resp_port) for _ in range(1000)]
    try:
        for number, wire in enumerate(wires):
            wire.send(request("BF.ADD", f"filter {number % 10}", number) + request("ECHO", number))
        for number, wire in enumerate(wires):
            assert wire.reply() in (b":1\r\n", b":0\r\n")
            assert told(wire.reply()) == f'"{number}"'
        for number, wire in enumerate(wires):
            wire.send(request("BF.EXISTS", f"filter {number % 10}", number))
        assert {wire.reply() for wire in wires} == {b":1\r\n"}
        listed = wires[0].ask("CLIENT", "LIST")
        assert listed.count(b"id=") >= 1000
    finally:
        for wire in wires:
            wire.close()


def test_one_client_too_many_is_told_so(serve: Serve) -> None:
    """Beyond maxclients a connection gets an error and its end; when one has left, the next is
    taken."""
    server = serve("--set", "maxclients=3")
    wires = [Wire(server.resp_port) for _ in range(3)]
    try:
        for wire in wires:
            assert told(wire.ask("PING")) == "+PONG"
        with Wire(server.resp_port) as refused:
            assert told(refused.reply()) == "-ERR max number of clients reached"
            assert refused.reply() == b""
        assert "rejected_connections:1\r\n" in told(wires[0].ask("INFO", "stats"))
        wires.pop().close()

        def taken() -> bool:
            with Wire(server.resp_port) as wire:
                try:
                    return wire.ask("PING") == b"+PONG\r\n"
                except ConnectionError:
                    return False

        assert wait_until(taken)
    finally:
        for wire in wires:
            wire.close()


@pytest.mark.slow
def test_a_silent_client_is_closed(serve: Serve) -> None:
    """After `timeout` seconds without a word a connection is closed; one that asks stays, even if
    only native code sees it."""
    server = serve("--set", "timeout=3")
    with Wire(server.resp_port) as silent, Wire(server.resp_port) as busy:
        assert told(silent.ask("PING")) == "+PONG"
        while not select.select([silent.socket], [], [], 0.2)[0]:
            assert told(busy.ask("BF.EXISTS", "a", "x")) == ":0"
        assert silent.closed()
        assert told(busy.ask("PING")) == "+PONG"


@pytest.mark.parametrize(
    "command",
    [("BF.ADD", "a", "x"), ("BF.MEXISTS", "a", "x", "y"), ("ECHO", "hello"), ("TTL", "missing")],
    ids=lambda command: str(command[0]),
)
def test_a_pipeline_of_a_hundred_thousand(empty: BloomeryServer, command: tuple[str, ...]) -> None:
    """As many commands as one likes can be sent before the first reply is read."""
    number = 100_000
    with Wire(empty.resp_port) as wire:
        first = wire.ask(*command)
        again = wire.ask(*command)
        assert first[:1] != b"-"
        wire.socket.setblocking(False)
        sent, data = 0, memoryview(request(*command) * number)
        received = 0
        until = time.monotonic() + 100
        while received < len(again) * number:
            assert time.monotonic() < until, (sent, received)
            moved = False
            if sent < len(data):
                try:
                    sent += wire.socket.send(data[sent : sent + 4 * MIB])
                    moved = True
                except BlockingIOError:
                    pass
            try:
                received += len(wire.socket.recv(MIB))
                moved = True
            except BlockingIOError:
                pass
            if not moved:
                time.sleep(0.001)
        assert received == len(again) * number


def test_a_hundred_thousand_keys_in_one_request(empty: BloomeryServer, protocol: int) -> None:
    """One request can be very long."""
    keys = [b"key %d" % number for number in range(100_000)]
    with Wire(empty.resp_port, protocol) as wire:
        assert told(wire.ask("BF.RESERVE", "a", "0.001", 100_000)) == "+OK"
        added = wire.ask("BF.MADD", "a", *keys)
        yes = b":1\r\n" if protocol == 2 else b"#t\r\n"
        assert added.startswith(b"*100000\r\n")
        assert added.count(yes) > 99_500
        assert wire.ask("BF.MEXISTS", "a", *keys) == b"*100000\r\n" + yes * 100_000


@pytest.mark.slow
def test_a_client_that_does_not_read(serve: Serve) -> None:
    """Who asks for gigabytes and takes none of it does not fill the server's memory, keeps nobody
    waiting, and is closed in the end."""
    server = serve("--set", "slow-client-seconds=2")
    with Wire(server.resp_port) as wire, Wire(server.resp_port) as greedy:
        assert told(wire.ask("BF.RESERVE", "large", "0.001", 20_000_000, "NONSCALING")) == "+OK"
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        greedy.send(request("BF.SCANDUMP", "large", 1) * 200)  # 16 MiB each
        most, until = 0, time.monotonic() + 1
        while time.monotonic() < until:
            began = time.monotonic()
            assert told(wire.ask("BF.EXISTS", "large", "x")) == ":0"
            assert time.monotonic() - began < 5
            most = max(most, process.memory_info().rss)
        assert most - before < 160 * MIB
        connected = "connected_clients:1\r\n"
        assert wait_until(lambda: connected in told(wire.ask("INFO", "clients")))


@pytest.mark.slow
def test_a_transaction_cannot_collect_without_bound(serve: Serve) -> None:
    """A transaction that grows past the limit of a request is spoiled; one whose replies do is done
    and its client closed."""
    server = serve("--set", "max-request-bytes=1mb", "--set", "client-output-limit=1mb")
    with Wire(server.resp_port) as wire:
        assert told(wire.ask("MULTI")) == "+OK"
        replies = [told(wire.ask("ECHO", b"x" * 100_000)) for _ in range(12)]
        assert replies[0] == "+QUEUED"
        assert replies[-1].startswith("-ERR a transaction of more than")
        assert told(wire.ask("EXEC")).startswith("-EXECABORT")
        assert told(wire.ask("BF.RESERVE", "a", "0.001", 1_000_000, "NONSCALING")) == "+OK"
        assert told(wire.ask("MULTI")) == "+OK"
        for _ in range(5):  # 256 KiB each
            assert told(wire.ask("BF.SCANDUMP", "a", 1)) == "+QUEUED"
        assert told(wire.ask("BF.ADD", "a", "x")) == "+QUEUED"
        assert told(wire.ask("EXEC")).startswith("-ERR the replies are longer than")
        assert wire.closed()
    with Wire(server.resp_port) as wire:
        assert told(wire.ask("BF.EXISTS", "a", "x")) == ":1"
