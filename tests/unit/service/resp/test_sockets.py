"""Sockets that native code reads: what is usual is done and answered, everything else is handed to
the connection, and no reply overtakes another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bloomery import BloomFilter, _native
from bloomery._native import Outcomes
from bloomery.service.resp import connection as resp_connection
from bloomery.service.resp import dispatch, table
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.connection import Reader, RespConnection
from bloomery.service.resp.sockets import Sockets
from bloomery.service.server import Server
from unit.service.inside import running
from unit.service.opened import slow_log
from waiting import PATIENCE, wait_until_async

LIMITS = (1 << 20, 64 << 20, 128 << 20)


class Pair:
    """A client's socket, and ours with its session."""

    def __init__(self) -> None:
        self.client, self.ours = socket.socketpair()
        self.ours.setblocking(False)
        self.client.setblocking(False)
        self.shelf = _native.Shelf()
        self.shelf.put(b"seen", BloomFilter(1000, 0.01), 1)
        self.session = _native.Session(self.shelf, *LIMITS)
        self.sockets = _native.Sockets()
        self.number = self.ours.fileno()
        self.sockets.add(self.number, self.session, self)

    def read(self, data: bytes = b"") -> tuple[list[object], list[object], list[object]]:
        """What is handed to Python after the client sent this."""
        if data:
            self.client.sendall(data)
        fed, held, ended = self.sockets.read([(self.number, 1)], 7.5)
        return list(fed), list(held), list(ended)

    def apply(self) -> tuple[list[object], list[object], list[object]]:
        """Apply the batch as if the log had it, and answer it."""
        self.sockets.start_batch()
        records, results = self.shelf.take_log(), list[Any]()
        assert self.shelf.apply(records, results, 60.0) is True
        left, again, unfinished = self.sockets.answer(Outcomes(results))
        return list(left), list(again), list(unfinished)

    def received(self) -> bytes:
        """What has come back to the client."""
        got = b""
        try:
            while some := self.client.recv(1 << 20):
                got += some
        except BlockingIOError:
            pass
        return got


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.sockets.remove(made.number)
    made.client.close()
    made.ours.close()


def test_reads_are_answered_at_the_end_of_the_tick(pair: Pair) -> None:
    """Native commands run when they are read, and `flush` sends their replies."""
    assert pair.read(b"BF.EXISTS seen b\r\nPING\r\n") == ([], [], [])
    assert pair.received() == b""
    assert pair.session.last == 7.5
    assert pair.sockets.flush() == []
    assert pair.received() == b":0\r\n+PONG\r\n"
    assert pair.sockets.flush() == []  # once
    assert pair.received() == b""
    assert pair.sockets.start_batch() == 0


def test_writes_are_answered_when_they_are_applied(pair: Pair) -> None:
    """Until then the client is held: what it sends is handed to its connection."""
    assert pair.read(b"BF.EXISTS seen a\r\nBF.ADD seen a\r\n") == ([], [], [])
    assert pair.session.writing
    assert pair.sockets.flush() == []
    assert pair.session.held
    assert pair.received() == b""
    assert pair.read(b"PING\r\n") == ([], [(pair, b"PING\r\n")], [])
    assert pair.sockets.start_batch() == 1
    assert pair.apply() == ([pair], [], [])  # its connection has the PING
    assert pair.received() == b":0\r\n:1\r\n"
    assert (pair.session.writing, pair.session.held) == (False, False)
    assert pair.read(b"BF.EXISTS seen a\r\n") == ([], [], [])
    pair.sockets.flush()
    assert pair.received() == b":1\r\n"


def test_refused_batch_is_answered_with_the_error(pair: Pair) -> None:
    """Nothing was applied, and the client continues."""
    assert pair.read(b"BF.ADD seen a\r\nBF.ADD seen b\r\n") == ([], [], [])
    pair.sockets.flush()
    pair.sockets.start_batch()
    pair.shelf.take_log()
    assert pair.sockets.fail(b"-MISCONF\r\n") == []
    assert pair.received() == b"-MISCONF\r\n" * 2
    assert not pair.session.held
    assert pair.shelf.contains(b"seen", [b"a", b"b"]) == b"\0\0"


def test_client_of_the_next_batch_is_not_answered_by_this(pair: Pair) -> None:
    """It wrote after the batch was started."""
    assert pair.sockets.start_batch() == 0
    pair.shelf.take_log()
    assert pair.read(b"BF.ADD seen a\r\n") == ([], [], [])
    pair.sockets.flush()
    assert pair.sockets.answer(Outcomes([])) == ([], [], [])
    assert pair.received() == b""
    assert pair.apply() == ([], [], [])
    assert pair.received() == b":1\r\n"


def test_conflicts_and_unfinished_records_are_for_python(pair: Pair) -> None:
    """Another filter has the name by then: the commands are returned. A thread still applies the
    record: the connection is."""
    assert pair.read(b"BF.ADD seen a\r\nBF.ADD seen b\r\n") == ([], [], [])
    pair.sockets.flush()
    pair.shelf.put(b"seen", BloomFilter(1000, 0.01), 2)
    commands = [[b"BF.ADD", b"seen", b"a"], [b"BF.ADD", b"seen", b"b"]]
    assert pair.apply() == ([], [(pair, commands)], [])
    assert (pair.session.held, pair.received()) == (True, b"")
    assert pair.session.answer(Outcomes([None]), [b":7\r\n", b":8\r\n"]) == []
    pair.session.held = False
    assert pair.sockets.send(pair.number)
    assert pair.received() == b":7\r\n:8\r\n"
    assert pair.read(b"BF.ADD seen c\r\n") == ([], [], [])
    pair.sockets.flush()
    pair.sockets.start_batch()
    pair.shelf.take_log()
    assert pair.sockets.answer(Outcomes([object()])) == ([], [], [pair])
    assert (pair.session.held, pair.received()) == (True, b"")


def test_a_connection_with_more_input_is_for_python(pair: Pair) -> None:
    """What waited behind the writes is processed after they are answered."""
    assert pair.read(b"BF.ADD seen a\r\nBF.EXISTS seen a\r\n") == ([(pair, None, 0, 33)], [], [])
    pair.sockets.flush()
    # Python continues this one, so it is not of the native clients that wait for the batch.
    assert pair.sockets.start_batch() == 0
    records, results = pair.shelf.take_log(), list[Any]()
    pair.shelf.apply(records, results, 60.0)
    assert pair.session.answer(Outcomes(results)) == []
    assert pair.session.feed(b"") is None
    assert pair.session.take() == b":1\r\n:1\r\n"


def test_what_is_not_usual_is_handed_out(pair: Pair) -> None:
    """A command for Python comes with what had waited before and what came; so does the beginning
    of one that is not whole, and its end."""
    assert pair.read(b"BF.EXISTS seen a\r\nINFO x\r\nPING\r\n") == (
        [(pair, [b"INFO", b"x"], 0, 32)],
        [],
        [],
    )
    assert pair.session.feed(b"") is None
    assert pair.read(b"BF.EXISTS se") == ([(pair, None, 0, 12)], [], [])
    assert pair.read(b"en b\r\n") == ([(pair, None, 12, 6)], [], [])
    assert pair.read(b"*x\r\n")[0] != []
    assert pair.sockets.flush() == []  # they are the connection's to send
    assert pair.received() == b""
    assert pair.session.take().startswith(b":0\r\n+PONG\r\n:0\r\n")


def test_what_comes_for_one_that_is_held_is_handed_out(pair: Pair) -> None:
    """While a session is held its commands are not done."""
    pair.session.held = True
    assert pair.read(b"BF.ADD seen a\r\n") == ([], [(pair, b"BF.ADD seen a\r\n")], [])
    assert pair.session.pending == 0
    pair.session.held = False
    assert pair.read(b"BF.ADD seen a\r\n") == ([], [], [])
    assert pair.session.writing


def test_the_end_and_errors_are_somebody_elses(pair: Pair) -> None:
    """Where nothing is there to be read nothing is said; at the end the connection is named."""
    assert pair.read() == ([], [], [])
    pair.client.shutdown(socket.SHUT_WR)
    assert pair.read() == ([], [], [pair])
    pair.sockets.remove(pair.number)
    assert pair.read() == ([], [], [])


def test_no_reply_overtakes_one_that_the_socket_did_not_take(pair: Pair) -> None:
    """What a full socket did not take is the connection's, and so is all that comes behind it,
    until it has sent everything."""
    long = b"$1000000\r\n" + b"0123456789" * 100_000 + b"\r\n"
    pair.session.reply(long)
    assert pair.read(b"PING\r\n") == ([], [], [])
    assert pair.sockets.flush() == [pair]
    got = pair.received()
    rest = pair.session.take()
    assert 0 < len(rest) < len(long)
    assert pair.read(b"BF.EXISTS seen a\r\n") == ([], [], [])
    assert pair.sockets.flush() == [pair]  # though there is room by now
    assert pair.received() == b""
    assert got + rest == long + b"+PONG\r\n"
    assert pair.sockets.send(pair.number)  # the connection says that there is nothing before it
    assert pair.received() == b":0\r\n"
    assert pair.read(b"BF.ADD seen a\r\n") == ([], [], [])
    assert pair.sockets.flush() == []
    assert pair.apply() == ([], [], [])
    assert pair.received() == b":1\r\n"


# In a server.


def _port(server: Server) -> int:
    return int(server.parts.resp_address.rpartition(":")[2])


async def _client(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PING\r\n")
    assert await reader.readexactly(7) == b"+PONG\r\n"
    return reader, writer


def test_a_server_reads_a_connection_directly_from_its_second_chunk_on(tmp_path: Path) -> None:
    """Native code reads, Python's commands still work, the idle time is known, and a transport is
    back when the client ends its side."""

    async def main() -> None:
        async with running(tmp_path) as server:
            reader, writer = await _client(_port(server))
            (one,) = server.resp.clients.connections.values()
            assert isinstance(one, RespConnection)
            assert one.reader is Reader.NATIVE
            assert not one.transport.is_reading()
            before = one.session.last
            writer.write(b"BF.ADD seen a\r\n")
            assert await reader.readexactly(4) == b":1\r\n"
            writer.write(b"BF.EXISTS seen a\r\nBF.CARD seen\r\n")
            assert await reader.readexactly(8) == b":1\r\n:1\r\n"
            assert before < one.session.last <= time.monotonic()
            writer.write(b"BF.EXISTS seen a\r\nBF.EXI")
            writer.write_eof()
            assert await reader.read() == b":1\r\n"
            writer.close()
            assert await wait_until_async(lambda: not server.resp.clients.connections)

    asyncio.run(main())


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_replies_stay_in_order_whoever_sends_them(tmp_path: Path, fsync: str) -> None:
    """A client that reads late gets all replies, native ones and Python's, in order."""

    async def main() -> None:
        async with running(tmp_path, fsync=fsync) as server:
            reader, writer = await _client(_port(server))
            long = b"x" * 5000
            one = b"BF.ADD seen %d\r\nECHO %b\r\nBF.EXISTS seen %d\r\n"
            for at in range(2000):
                writer.write(one % (at, long, at))
                if at % 50 == 0:
                    await asyncio.sleep(0)  # in chunks, and in several turns
            echoed = b"$5000\r\n" + long + b"\r\n"
            for at in range(2000):
                added = await reader.readexactly(4)
                assert added in (b":1\r\n", b":0\r\n"), at
                assert await reader.readexactly(len(echoed) + 4) == echoed + b":1\r\n", at
            writer.close()

    asyncio.run(main())


def test_a_read_sees_no_filter_whose_time_is_over(tmp_path: Path) -> None:
    """For who only asks time passes too: what expired is gone, and logged so."""

    async def main() -> None:
        async with running(tmp_path) as server:
            reader, writer = await _client(_port(server))
            writer.write(b"BF.ADD seen a\r\nPEXPIRE seen 50\r\nBF.EXISTS seen a\r\n")
            assert await reader.readexactly(12) == b":1\r\n:1\r\n:1\r\n"
            answer, until = b":1\r\n", time.monotonic() + 30
            while answer == b":1\r\n" and time.monotonic() < until:
                writer.write(b"BF.EXISTS seen a\r\n")
                answer = await reader.readexactly(4)
            assert answer == b":0\r\n"
            writer.close()
        async with running(tmp_path) as server:
            assert b"seen" not in server.parts.engine.state.names

    asyncio.run(main())


def test_a_client_that_is_ended_is_not_read(tmp_path: Path) -> None:
    """What a client sent and the server has not read when it ends the connection is not done."""

    async def main() -> None:
        async with running(tmp_path) as server:
            reader, writer = await _client(_port(server))
            (one,) = server.resp.clients.connections.values()
            writer.write(b"BF.ADD seen a\r\n")
            one.abort()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            assert await wait_until_async(lambda: not server.resp.clients.connections)
            assert b"seen" not in server.parts.engine.state.names

    asyncio.run(main())


def test_a_client_that_sends_while_its_write_is_logged_is_answered_in_order(
    tmp_path: Path,
) -> None:
    """Each write is answered when the log has it, and by the batch that has it: not by the batch
    before, though the connection is read in that tick too."""

    async def main() -> None:
        async with running(tmp_path, fsync="always") as server:
            reader, writer = await _client(_port(server))
            writer.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            (one,) = server.resp.clients.connections.values()
            assert isinstance(one, RespConnection)
            batches = server.parts.file_log
            assert batches is not None
            with slow_log(server.parts.engine.log) as log:
                writer.write(b"BF.ADD seen 1\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                writer.write(b"BF.ADD seen 2\r\n")
                assert await wait_until_async(lambda: bool(one.backlog))
                # The first is logged, and the third comes, before the loop hears of either.
                behind = threading.Event()
                called = batches.call(behind.set)
                log.gate.release()
                assert behind.wait(PATIENCE)
                writer.write(b"BF.ADD seen 3\r\n")
                assert await reader.readexactly(4) == b":1\r\n"
                assert await wait_until_async(lambda: log.started == 2)
                writer.write(b"BF.ADD seen 4\r\nBF.EXISTS seen 4\r\n")
                assert await wait_until_async(lambda: bool(one.backlog))
                assert one.session.pending == 0
                await called
                log.gate.release(10)
                assert await reader.readexactly(16) == b":1\r\n" * 4
            writer.close()

    asyncio.run(main())


def test_a_command_of_python_waits_for_the_writes_before_it(tmp_path: Path) -> None:
    """It follows a native write in a pipeline: it runs when that is applied, and its reply follows
    the answer."""

    async def main() -> None:
        async with running(tmp_path, fsync="always") as server:
            reader, writer = await _client(_port(server))
            writer.write(b"BF.RESERVE seen 0.01 1000\r\nBF.RESERVE other 0.01 1000\r\n")
            assert await reader.readexactly(10) == b"+OK\r\n" * 2
            (one,) = server.resp.clients.connections.values()
            assert isinstance(one, RespConnection)
            locks = server.parts.engine.locks
            with slow_log(server.parts.engine.log) as log:
                locks.lock([b"other"])
                writer.write(b"BF.ADD seen 1\r\nBF.CLEAR other\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                assert (one.busy, one.session.pending) == (False, 0)
                log.gate.release()
                assert await reader.readexactly(4) == b":1\r\n"
                assert await wait_until_async(lambda: one.busy)
                locks.unlock([b"other"])
                assert await wait_until_async(lambda: log.started == 2)
                assert one.session.pending == 0
                log.gate.release()
                assert await reader.readexactly(5) == b"+OK\r\n"
            writer.write(b"BF.EXISTS seen 1\r\n")
            assert await reader.readexactly(4) == b":1\r\n"
            writer.close()

    asyncio.run(main())


def test_a_command_in_conflict_runs_again(tmp_path: Path) -> None:
    """A native write is noted for a filter, and another client's RENAME, which is before it in the
    log, gives the name to another filter: the key is added to that one."""

    async def main() -> None:
        async with running(tmp_path, fsync="always") as server:
            reader, writer = await _client(_port(server))
            other_reader, other = await _client(_port(server))
            writer.write(b"BF.RESERVE seen 0.01 1000\r\nBF.RESERVE new 0.01 2000\r\n")
            assert await reader.readexactly(10) == b"+OK\r\n" * 2
            writer.write(b"BF.ADD seen x\r\n")
            assert await reader.readexactly(4) == b":1\r\n"
            with slow_log(server.parts.engine.log) as log:
                writer.write(b"BF.ADD seen first\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                other.write(b"RENAME new seen\r\n")
                expected = server.parts.sequencer._expected
                assert await wait_until_async(lambda: len(expected) == 1)
                reading, third = await _client(_port(server))
                third.write(b"BF.ADD seen a\r\nBF.MADD seen b c\r\nBF.EXISTS seen x\r\n")
                connections = list(server.resp.clients.connections.values())
                last = cast("RespConnection", connections[-1])
                assert await wait_until_async(lambda: last.session.held or last.session.waiting)
                log.gate.release(100)
                assert await other_reader.readexactly(5) == b"+OK\r\n"
                assert await reading.readexactly(4 + 12 + 4) == (b":1\r\n*2\r\n:1\r\n:1\r\n:0\r\n")
            names = server.parts.engine.state.names
            assert names[b"seen"].filter.capacity == 2000
            assert all(server.parts.commands.contains(b"seen", [b"a", b"b", b"c"]))
            for each in (writer, other, third):
                each.close()

    asyncio.run(main())


def test_a_write_that_a_thread_applies_is_answered_later(tmp_path: Path) -> None:
    """Other clients of the batch are answered before. The client waits, and then continues."""

    async def main() -> None:
        async with running(tmp_path) as server:
            commands, loop = server.parts.commands, asyncio.get_running_loop()
            await commands.create(b"large", "bloom", capacity=8_000_000, error_rate=0.01)
            await commands.create(b"seen", "bloom", capacity=100)
            reader, writer = await _client(_port(server))
            other_reader, other = await _client(_port(server))
            go = threading.Event()
            loop.set_default_executor(ThreadPoolExecutor(1))
            blocked = loop.run_in_executor(None, go.wait, PATIENCE)
            clearing = asyncio.ensure_future(commands.clear(b"large"))
            # Noted in the tick of the CLEAR, before its name is locked.
            first, *_ = server.resp.clients.connections.values()
            assert isinstance(first, RespConnection)
            await asyncio.sleep(0)
            first.data_received(b"BF.ADD large a\r\nBF.EXISTS large a\r\n")
            assert await wait_until_async(lambda: server.parts.engine.locks.is_locked([b"large"]))
            other.write(b"BF.ADD seen a\r\n")
            assert await other_reader.readexactly(4) == b":1\r\n"
            assert not clearing.done()
            assert first.session.pending == 0
            go.set()
            await asyncio.gather(clearing, blocked)
            assert await reader.readexactly(8) == b":1\r\n:1\r\n"
            for each in (writer, other):
                each.close()

    asyncio.run(main())


def test_who_waits_for_the_log_is_not_idle(tmp_path: Path) -> None:
    """A connection is not ended for silence while it is the server that has yet to answer."""

    async def main() -> None:
        async with running(tmp_path, fsync="always", timeout=1000) as server:
            reader, writer = await _client(_port(server))
            writer.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            (one,) = server.resp.clients.connections.values()
            with slow_log(server.parts.engine.log) as log:
                writer.write(b"BF.ADD seen 1\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                one.sweep(time.monotonic() + 2000)
                assert not one.transport.is_closing()
            assert await reader.readexactly(4) == b":1\r\n"
            one.sweep(time.monotonic() + 2000)
            assert one.transport.is_closing()
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_a_client_that_goes_while_a_command_waits_is_let_go(tmp_path: Path, ended: str) -> None:
    """Nobody reads meanwhile: a connection that waited without end was kept for ever, and a task of
    one that was killed."""

    async def main() -> None:
        async with running(tmp_path) as server:
            clients = server.resp.clients
            _, writer = await _client(_port(server))
            (one,) = clients.connections.values()
            writer.write(b"WAIT 1 0\r\n")
            assert await wait_until_async(lambda: one.busy)
            if ended == "closed":
                writer.close()
            else:
                one.abort()
            assert await wait_until_async(lambda: not clients.connections and not clients.tasks)
            writer.close()

    asyncio.run(main())


def test_one_that_fails_keeps_no_other_from_its_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that a commit releases, one goes on with a command that fails: the others are
    released too, and that one is ended."""

    async def failing(client: ClientState, words: list[bytes]) -> None:
        if words[0] == b"ECHO":
            raise RuntimeError("broken")
        await dispatch.dispatch(client, words)

    async def main() -> None:
        problems: list[str] = []
        async with running(tmp_path, fsync="always") as server:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(
                lambda _, context: problems.append(str(context["exception"]))
            )
            (_, first), (reader, failed), (other, writer) = [
                await _client(_port(server)) for _ in range(3)
            ]
            failed.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            _, one, last = (
                cast("RespConnection", each) for each in server.resp.clients.connections.values()
            )
            monkeypatch.setattr(resp_connection, "dispatch", failing)
            with slow_log(server.parts.engine.log) as log:
                first.write(b"BF.ADD seen 1\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                failed.write(b"BF.ADD seen 2\r\n")
                assert await wait_until_async(lambda: one.session.held)
                failed.write(b"ECHO x\r\n")
                assert await wait_until_async(lambda: one.backlog)
                writer.write(b"BF.ADD seen 3\r\n")
                assert await wait_until_async(lambda: last.session.held)
                log.gate.release(2)
                assert await wait_until_async(lambda: problems)
                assert not last.session.held
            assert await other.readexactly(4) == b":1\r\n"
            assert await reader.read() == b":1\r\n"
            assert problems == ["broken"]
            for each in (first, failed, writer):
                each.close()

    asyncio.run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_a_value_that_is_no_reply_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Of a command that waited, the connection was never answered, nor read, again."""

    async def wrong(client: ClientState, words: list[bytes]) -> object:
        if waits:
            await asyncio.sleep(0)
        return object()

    async def main() -> None:
        async with running(tmp_path) as server:
            reader, writer = await _client(_port(server))
            writer.write(b"ECHO x\r\nPING\r\n")
            told = await asyncio.wait_for(reader.readline(), PATIENCE)
            assert told.startswith(b"-ERR internal error: TypeError")
            assert await reader.readexactly(7) == b"+PONG\r\n"
            writer.close()

    broken = replace(table.COMMANDS[b"ECHO"], handler=wrong)
    monkeypatch.setitem(table.COMMANDS, b"ECHO", broken)
    asyncio.run(main())


class Waiting(Pair):
    """A connection whose commands wait, and that notes what came meanwhile."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.session.held = True
        self.socket, self.broken, self.came = self.number, broken, b""

    def data_received(self, data: bytes) -> None:
        if self.broken:
            raise RuntimeError("broken")
        self.came += data

    def abort(self) -> None:
        self.broken = False


def test_one_that_fails_keeps_no_other_from_its_turn() -> None:
    """What came for the others of a round is not lost, and the one that failed is ended."""

    async def main() -> None:
        problems: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context["message"]))
        sockets = Sockets(
            cast("Any", SimpleNamespace(join=lambda *_: None, add_group=lambda _: None))
        )
        connections = [Waiting(broken=True), Waiting(), Waiting(broken=True), Waiting()]
        for connection in connections:
            sockets.add(cast("Any", connection))
            connection.client.sendall(b"PING\r\n")
        try:
            await wait_until_async(lambda: all(c.came for c in connections[1::2]))
        finally:
            for connection in connections:
                sockets.remove(cast("Any", connection))
            sockets.close()
        assert not any(connection.broken for connection in connections)
        assert problems == ["a connection has failed"] * 2

    asyncio.run(main())
