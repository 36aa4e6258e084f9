"""A server with workers: they answer native commands, Python runs all others, and no reply
overtakes another. `crates/server/tests/workers.rs` tests the workers alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bloomery.service.resp import dispatch, table
from bloomery.service.resp import server as resp_server
from bloomery.service.resp.client import ClientState
from bloomery.service.server import Server
from unit.service.inside import running
from unit.service.opened import busy_threads, slow_log
from waiting import PATIENCE, wait_until_async

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def port(server: Server) -> int:
    return int(server.parts.resp_address.rpartition(":")[2])


@contextlib.asynccontextmanager
async def connected(server: Server, count: int = 1) -> AsyncIterator[list[Streams]]:
    """Connect clients; the server has a state of each."""
    opened: list[Streams] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
            opened.append((reader, writer))
            writer.write(b"PING\r\n")
            assert await reader.readexactly(7) == b"+PONG\r\n"
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


def states(server: Server) -> list[ClientState]:
    """The clients of a server, in the order in which they connected."""
    return list(server.resp.clients.connections.values())


async def end(reader: asyncio.StreamReader) -> bytes:
    """Return what the server sends until it closes the connection."""
    return await asyncio.wait_for(reader.read(), PATIENCE)


def test_server_answers_native_commands_and_those_of_python(tmp_path: Path) -> None:
    """The idle time is known, and a client that closes its side gets its replies."""

    async def main() -> None:
        async with running(tmp_path) as server, connected(server) as [(reader, writer)]:
            (one,) = states(server)
            writer.write(b"BF.ADD seen a\r\n")
            assert await reader.readexactly(4) == b":1\r\n"
            before, since = one.session.idle, time.monotonic()
            assert await wait_until_async(lambda: one.session.idle > before)
            writer.write(b"BF.EXISTS seen a\r\nBF.CARD seen\r\n")
            assert await reader.readexactly(8) == b":1\r\n:1\r\n"
            assert one.session.idle <= time.monotonic() - since
            native, python = server.resp.clients.figures()[2:4]
            assert (native, python) == (2, 2)  # PING and BF.EXISTS; BF.ADD made the filter
            writer.write(b"BF.EXISTS seen a\r\nBF.EXI")
            writer.write_eof()
            assert await end(reader) == b":1\r\n"
            assert await wait_until_async(lambda: not server.resp.clients.connections)

    asyncio.run(main())


def test_half_closed_client_gets_the_replies_to_all_commands(tmp_path: Path) -> None:
    """Users send commands with `nc` like that."""

    async def main() -> None:
        async with running(tmp_path) as server, connected(server) as [(reader, writer)]:
            writer.write(b"BF.ADD seen a\r\nECHO a\r\nECHO b\r\nBF.EXISTS seen a\r\n")
            writer.write(b"".join(b"BF.RESERVE f%d 0.01 100\r\n" % n for n in range(100)))
            writer.write_eof()
            expected = b":1\r\n$1\r\na\r\n$1\r\nb\r\n:1\r\n" + b"+OK\r\n" * 100
            assert await end(reader) == expected
            assert len(server.parts.engine.state.names) == 101

    asyncio.run(main())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_replies_stay_in_order(tmp_path: Path, fsync: str, threads: int) -> None:
    """A client that reads late gets all replies, native ones and Python's, in order."""

    async def main() -> None:
        async with (
            running(tmp_path, fsync=fsync, threads=threads) as server,
            connected(server) as [(reader, writer)],
        ):
            long = b"x" * 5000
            one = b"BF.ADD seen %d\r\nECHO %b\r\nBF.EXISTS seen %d\r\n"
            for at in range(2000):
                writer.write(one % (at, long, at))
                if at % 50 == 0:
                    await asyncio.sleep(0)  # in chunks, and in several ticks
            echoed = b"$5000\r\n" + long + b"\r\n"
            for at in range(2000):
                added = await reader.readexactly(4)
                assert added in (b":1\r\n", b":0\r\n"), at
                assert await reader.readexactly(len(echoed) + 4) == echoed + b":1\r\n", at

    asyncio.run(main())


def test_read_sees_no_filter_that_has_expired(tmp_path: Path) -> None:
    """Time passes for clients that only read, too: the filter expires, and the log has it."""

    async def main() -> None:
        async with running(tmp_path) as server, connected(server) as [(reader, writer)]:
            writer.write(b"BF.ADD seen a\r\nPEXPIRE seen 50\r\nBF.EXISTS seen a\r\n")
            assert await reader.readexactly(12) == b":1\r\n:1\r\n:1\r\n"
            answer, until = b":1\r\n", time.monotonic() + PATIENCE
            while answer == b":1\r\n" and time.monotonic() < until:
                writer.write(b"BF.EXISTS seen a\r\n")
                answer = await reader.readexactly(4)
            assert answer == b":0\r\n"
        async with running(tmp_path) as server:
            assert b"seen" not in server.parts.engine.state.names

    asyncio.run(main())


def test_aborted_client_is_not_read(tmp_path: Path) -> None:
    """Commands that a client sends after the server closed its connection are not done."""

    async def main() -> None:
        async with running(tmp_path) as server, connected(server) as [(reader, writer)]:
            (one,) = states(server)
            one.abort()
            writer.write(b"BF.ADD seen a\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert await end(reader) == b""
            assert one.session.left
            assert not server.resp.clients.connections
            assert b"seen" not in server.parts.engine.state.names

    asyncio.run(main())


def test_client_that_sends_while_its_write_is_logged_is_answered_in_order(
    tmp_path: Path,
) -> None:
    """Each write is answered when the log has it, and by the batch that has it."""

    async def main() -> None:
        async with (
            running(tmp_path, fsync="always") as server,
            connected(server) as [(reader, writer)],
        ):
            writer.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            (one,) = states(server)
            batches = server.parts.file_log
            assert batches is not None
            with slow_log(server.parts.engine.log) as log:
                writer.write(b"BF.ADD seen 1\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                writer.write(b"BF.ADD seen 2\r\n")
                # The first is logged, and the third arrives, before the loop hears of either.
                after = threading.Event()
                called = batches.call(after.set)
                log.gate.release()
                assert after.wait(PATIENCE)
                writer.write(b"BF.ADD seen 3\r\n")
                assert await reader.readexactly(4) == b":1\r\n"
                assert await wait_until_async(lambda: log.started == 2)
                writer.write(b"BF.ADD seen 4\r\nBF.EXISTS seen 4\r\n")
                await called
                assert (one.session.writing, one.session.pending) == (True, 0)
                log.gate.release(10)
                assert await reader.readexactly(16) == b":1\r\n" * 4

    asyncio.run(main())


def test_command_of_python_waits_for_the_writes_before_it(tmp_path: Path) -> None:
    """It follows a native write in a pipeline: it runs when that is applied, and its reply follows
    the answer."""

    async def main() -> None:
        async with (
            running(tmp_path, fsync="always") as server,
            connected(server) as [(reader, writer)],
        ):
            writer.write(b"BF.RESERVE seen 0.01 1000\r\nBF.RESERVE other 0.01 1000\r\n")
            assert await reader.readexactly(10) == b"+OK\r\n" * 2
            (one,) = states(server)
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

    asyncio.run(main())


def test_command_in_conflict_runs_again(tmp_path: Path) -> None:
    """A native write is noted for a filter, and another client's RENAME, which is before it in the
    log, gives the name to another filter: the key is added to that one."""

    async def main() -> None:
        async with running(tmp_path, fsync="always") as server, connected(server, 3) as clients:
            (reader, writer), (other_reader, other), (third_reader, third) = clients
            writer.write(b"BF.RESERVE seen 0.01 1000\r\nBF.RESERVE new 0.01 2000\r\n")
            assert await reader.readexactly(10) == b"+OK\r\n" * 2
            writer.write(b"BF.ADD seen x\r\n")
            assert await reader.readexactly(4) == b":1\r\n"
            *_, last = states(server)
            with slow_log(server.parts.engine.log) as log:
                writer.write(b"BF.ADD seen first\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                other.write(b"RENAME new seen\r\n")
                sequencer = server.parts.sequencer
                assert await wait_until_async(lambda: len(sequencer._expected) == 1)
                third.write(b"BF.ADD seen a\r\nBF.MADD seen b c\r\nBF.EXISTS seen x\r\n")
                assert await wait_until_async(lambda: last.session.writing)
                log.gate.release(100)
                assert await other_reader.readexactly(5) == b"+OK\r\n"
                expected = b":1\r\n*2\r\n:1\r\n:1\r\n:0\r\n"
                assert await third_reader.readexactly(len(expected)) == expected
            names = server.parts.engine.state.names
            assert names[b"seen"].filter.capacity == 2000
            assert all(server.parts.commands.contains(b"seen", [b"a", b"b", b"c"]))

    asyncio.run(main())


def test_write_that_a_thread_applies_is_answered_later(tmp_path: Path) -> None:
    """Other clients of the batch are answered before. The client waits, and then continues."""

    async def main() -> None:
        async with running(tmp_path, fsync="always") as server, connected(server, 3) as clients:
            (reader, writer), (other_reader, other), (third_reader, third) = clients
            commands, sequencer = server.parts.commands, server.parts.sequencer
            await commands.create(b"large", "bloom", capacity=8_000_000, error_rate=0.01)
            await commands.create(b"seen", "bloom", capacity=100)
            first, _, last = states(server)
            async with busy_threads() as go:
                with slow_log(server.parts.engine.log) as log:
                    other.write(b"BF.ADD seen a\r\n")
                    assert await wait_until_async(lambda: log.started == 1)
                    # One batch: its name is not locked before it is applied.
                    clearing = asyncio.ensure_future(commands.clear(b"large"))
                    assert await wait_until_async(lambda: len(sequencer._expected) == 1)
                    writer.write(b"BF.ADD large a\r\nBF.EXISTS large a\r\n")
                    assert await wait_until_async(lambda: first.session.writing)
                    third.write(b"BF.ADD seen b\r\n")
                    assert await wait_until_async(lambda: last.session.writing)
                    log.gate.release(100)
                    assert await other_reader.readexactly(4) == b":1\r\n"
                    assert await third_reader.readexactly(4) == b":1\r\n"
                    assert server.parts.engine.locks.is_locked([b"large"])
                    other.write(b"BF.ADD seen c\r\n")
                    assert await other_reader.readexactly(4) == b":1\r\n"
                assert not clearing.done()
                assert (first.session.writing, first.session.pending) == (True, 0)
                go.set()
                await clearing
                assert await reader.readexactly(8) == b":1\r\n:1\r\n"

    asyncio.run(main())


def test_idle_client_is_disconnected_unless_it_waits_for_the_log(tmp_path: Path) -> None:
    """A client is not silent while the server has yet to answer it."""

    async def main() -> None:
        async with (
            running(tmp_path, fsync="always", timeout=1) as server,
            connected(server) as [(reader, writer)],
        ):
            writer.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            with slow_log(server.parts.engine.log) as log:
                writer.write(b"BF.ADD seen 1\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                async with connected(server) as [(idle, _)]:
                    assert await end(idle) == b""
                assert len(states(server)) == 1
            assert await end(reader) == b":1\r\n"

    asyncio.run(main())


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_client_that_leaves_while_a_command_waits_is_deleted(tmp_path: Path, ended: str) -> None:
    """Its connection is not read in that time. Neither it nor its task may stay."""

    async def main() -> None:
        async with running(tmp_path) as server, connected(server) as [(_, writer)]:
            clients = server.resp.clients
            (one,) = states(server)
            writer.write(b"WAIT 1 0\r\n")
            assert await wait_until_async(lambda: one.busy)
            if ended == "closed":
                writer.close()
            else:
                one.abort()
            assert await wait_until_async(lambda: not clients.connections and not clients.tasks)

    asyncio.run(main())


def test_command_that_fails_ends_only_its_own_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the clients of a batch, one continues with a command that fails: the others are answered
    too, and that one is disconnected."""

    async def failing(client: ClientState, words: list[bytes]) -> None:
        if words[0] == b"ECHO":
            raise RuntimeError("broken")
        await dispatch.dispatch(client, words)

    async def main() -> None:
        problems: list[str] = []
        async with running(tmp_path, fsync="always") as server, connected(server, 3) as clients:
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: problems.append(str(context["exception"]))
            )
            (first_reader, first), (reader, failed), (other, writer) = clients
            failed.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            _, one, last = states(server)
            monkeypatch.setattr(resp_server, "dispatch", failing)
            with slow_log(server.parts.engine.log) as log:
                first.write(b"BF.ADD seen 1\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                failed.write(b"BF.ADD seen 2\r\nECHO x\r\n")
                assert await wait_until_async(lambda: one.session.writing)
                writer.write(b"BF.ADD seen 3\r\n")
                assert await wait_until_async(lambda: last.session.writing)
                log.gate.release(2)
                assert await wait_until_async(lambda: problems)
            assert await first_reader.readexactly(4) == b":1\r\n"
            assert await other.readexactly(4) == b":1\r\n"
            assert await end(reader) in (b":1\r\n", b"")  # it is closed at once
            assert problems == ["broken"]
            assert len(states(server)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("waits", [False, True])
def test_value_that_is_not_a_reply_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The client is answered, and its next command runs."""

    async def wrong(client: ClientState, words: list[bytes]) -> object:
        if waits:
            await asyncio.sleep(0)
        return object()

    async def main() -> None:
        async with running(tmp_path) as server, connected(server) as [(reader, writer)]:
            writer.write(b"ECHO x\r\nPING\r\n")
            reply = await asyncio.wait_for(reader.readline(), PATIENCE)
            assert reply.startswith(b"-ERR internal error: TypeError")
            assert await reader.readexactly(7) == b"+PONG\r\n"

    broken = replace(table.COMMANDS[b"ECHO"], handler=wrong)
    monkeypatch.setitem(table.COMMANDS, b"ECHO", broken)
    asyncio.run(main())


def test_server_that_stops_answers_the_writes_on_their_way(tmp_path: Path) -> None:
    """Then it closes the connections."""

    async def main() -> None:
        async with (
            running(tmp_path, fsync="always") as server,
            connected(server, 2) as [(reader, writer), (idle, _)],
        ):
            writer.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            with slow_log(server.parts.engine.log) as log:
                writer.write(b"BF.ADD seen 1\r\n")
                assert await wait_until_async(lambda: log.started == 1)
                stopping = asyncio.ensure_future(server.resp.drain(time.monotonic() + PATIENCE))
                await asyncio.sleep(0)
                assert not stopping.done()
                log.gate.release()
                assert await end(reader) == b":1\r\n"
                assert await end(idle) == b""
                await stopping
            assert server.parts.commands.contains(b"seen", [b"1"]) == b"\1"

    asyncio.run(main())


def test_batch_that_a_worker_cannot_finish_is_handed_over(tmp_path: Path) -> None:
    """A worker writes the batch. The filter is large and must grow, so Python applies the rest and
    the client is answered."""

    async def main() -> None:
        async with running(tmp_path) as server, connected(server) as [(reader, writer)]:
            adopted: list[int] = []
            assert server.parts.file_log is not None
            take_over = server.parts.file_log.take_over

            def noted(*batch: Any) -> None:
                adopted.append(len(batch[0]))
                take_over(*batch)

            server.parts.file_log.take_over = noted  # type: ignore[assignment, method-assign]
            writer.write(b"BF.RESERVE seen 0.01 300000\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            size = server.parts.engine.state.names[b"seen"].filter.nbytes
            for start in range(0, 2_000_000, 1000):
                keys = b" ".join(b"%d" % key for key in range(start, start + 1000))
                writer.write(b"BF.MADD seen " + keys + b"\r\n")
                replies = await asyncio.wait_for(reader.readexactly(7 + 4 * 1000), PATIENCE)
                assert replies.startswith(b"*1000\r\n")
                if adopted:
                    break
            assert adopted == [1]
            assert server.parts.engine.state.names[b"seen"].filter.nbytes > size
            writer.write(b"BF.MEXISTS seen " + keys + b"\r\n")
            answers = await asyncio.wait_for(reader.readexactly(7 + 4 * 1000), PATIENCE)
            assert answers == b"*1000\r\n" + b":1\r\n" * 1000

    asyncio.run(main())
