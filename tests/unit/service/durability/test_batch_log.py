"""The log of a single server: a batch is written, then applied, then answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.filters import creation
from bloomery.service.clock import Clock
from bloomery.service.commands import Commands
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.durability import batch_log
from unit.service.durability.serving import SETTINGS
from unit.service.follower import SOON
from unit.service.opened import (
    Opened,
    assert_replay_is_same,
    busy_threads,
    opened,
    slow_log,
)
from waiting import PATIENCE, wait_until_async

LARGE = {"capacity": 8_000_000, "error_rate": 0.01}  # more than `operations.LARGE` bytes


def failing(served: Opened) -> Callable[[bool], None]:
    """Return a switch that makes the log refuse what is written."""
    write, fails = served.log.write, False

    def refuse(rows: Any) -> None:
        if fails:
            raise errors.LogUnavailable("the disk is full")
        write(rows)

    def switch(on: bool) -> None:
        nonlocal fails
        fails = on

    served.log.write = refuse  # type: ignore[method-assign]
    return switch


# Refused batches.

WRITES: dict[str, Callable[[Commands], Any]] = {
    "create": lambda commands: commands.create(b"new", "bloom", capacity=100),
    "add": lambda commands: commands.add(b"seen", ["b"]),
    "remove": lambda commands: commands.remove(b"seen", ["a"]),
    "clear": lambda commands: commands.clear(b"seen"),
    "rename": lambda commands: commands.rename(b"seen", b"other"),
    "copy": lambda commands: commands.copy(b"seen", b"other", replace=True),
    "merge": lambda commands: commands.merge(b"seen", b"other"),
    "expire": lambda commands: commands.expire(b"seen", 4e9),
    "adjust": lambda commands: commands.adjust(b"seen", on_full="alert"),
    "drop": lambda commands: commands.drop(b"seen"),
}


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("operation", WRITES)
def test_refused_batch_changes_nothing(tmp_path: Path, operation: str, thread: bool) -> None:
    """Each client gets the error, memory does not change, and after a retry writes succeed. It is
    the same if the thread of the log writes."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            for name in (b"seen", b"other"):
                await commands.create(name, "counting", capacity=100, error_rate=0.01)
                await commands.add(name, ["a", name])
            served.batches.snapshot(thread)
            switch = failing(served)
            state = served.state
            before = {name: (e.id, e.filter.to_bytes()) for name, e in state.names.items()}
            figures = served.engine.shelf.figures(b"seen")
            switch(True)
            outcomes = await asyncio.gather(
                WRITES[operation](commands),
                commands.add(b"other", ["z"]),
                return_exceptions=True,
            )
            assert [str(outcome) for outcome in outcomes] == ["the disk is full"] * 2
            assert [str(problem) for problem in served.refusals] == ["the disk is full"]
            state = served.state
            after = {name: (e.id, e.filter.to_bytes()) for name, e in state.names.items()}
            assert after == before
            assert served.engine.shelf.figures(b"seen") == figures
            assert commands.contains(b"seen", ["a"]) == b"\1"  # reads continue
            with pytest.raises(errors.LogUnavailable):  # until a retry succeeds
                await commands.add(b"other", ["z"])
            switch(False)
            assert await served.batches.retry()
            await WRITES[operation](commands)
            assert await commands.add(b"other", ["y"]) == (b"\1", None)
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_any_error_of_a_write_is_a_refusal(tmp_path: Path) -> None:
    """The log raised what it should not: nothing was written, and the server continues."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            write, broken = served.log.write, True

            def raising(rows: Any) -> None:
                if broken:
                    raise ValueError("unexpected")
                write(rows)

            served.log.write = raising  # type: ignore[method-assign]
            with pytest.raises(errors.LogUnavailable, match="ValueError: unexpected"):
                await served.commands.create(b"seen", "bloom", capacity=100)
            broken = False
            assert await served.batches.retry()
            await served.commands.create(b"seen", "bloom", capacity=100)

    asyncio.run(main())


def test_write_is_in_the_log_before_its_answer(tmp_path: Path) -> None:
    """While the log writes, nothing is applied or answered, and reads continue. Writes of that time
    are the next batch."""

    async def main() -> State:
        async with opened(tmp_path, fsync="always") as served:
            commands = served.commands
            await commands.create(b"seen", "bloom", capacity=100)
            with slow_log(served.log) as log:
                first = asyncio.ensure_future(commands.add(b"seen", ["a"]))
                assert await wait_until_async(lambda: log.started == 1)
                second = asyncio.ensure_future(commands.add(b"seen", ["a", "b"]))
                third = asyncio.ensure_future(commands.add(b"seen", ["b"]))
                assert await commands.read(b"seen", ["a", "b"]) == b"\0\0"
                assert [first.done(), second.done(), third.done()] == [False] * 3
                log.gate.release()
                assert await first == (b"\1", None)
                assert await wait_until_async(lambda: log.started == 2)
                assert [second.done(), third.done()] == [False] * 2
                log.gate.release()
                assert await second == (b"\0\1", None)
                assert await third == (b"\0", None)
                assert log.started == 2
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_batch_waits_while_the_disk_is_late(tmp_path: Path) -> None:
    """It is written and answered when the disk has caught up; reads do not wait. How long replies
    were delayed is known."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            commands, sequencer, late = served.commands, served.sequencer, True
            await commands.create(b"seen", "bloom", capacity=100)
            before = len(served.rows)
            served.log.is_late = lambda now: late  # type: ignore[method-assign]
            adding = asyncio.ensure_future(commands.add(b"seen", ["a"]))
            assert await wait_until_async(lambda: sequencer.late_since is not None)
            assert sequencer.delayed == 1
            served.batches.flushed()  # it was, and is late again
            assert await commands.read(b"seen", ["a"]) == b"\0"
            assert (len(served.rows), adding.done()) == (before, False)
            late = False
            served.batches.flushed()
            assert await asyncio.wait_for(adding, SOON) == (b"\1", None)
            assert (sequencer.late_since, sequencer.delayed) == (None, 1)

    asyncio.run(main())


def test_many_bytes_are_flushed_before_the_second_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later flush would have more to do, and writes would wait for it."""
    monkeypatch.setattr(batch_log, "_FLUSH_SECONDS", PATIENCE)
    saved = BloomFilter(capacity=1_000_000).to_bytes()

    async def main() -> None:
        async with opened(tmp_path) as served:
            flush, flushed = served.log.flush, threading.Event()

            def noted() -> None:
                flush()
                flushed.set()

            served.log.flush = noted  # type: ignore[method-assign]
            flushing = asyncio.ensure_future(served.batches.flush_each_second())
            for number in range(8):
                await served.commands.load(b"loaded %d" % number, 1, saved)
            assert await wait_until_async(flushed.is_set, SOON)
            flushing.cancel()
            await asyncio.wait([flushing])

    asyncio.run(main())


# Long work.


def test_records_of_one_name_keep_their_order(tmp_path: Path) -> None:
    """A thread clears a large filter. Records of its name wait for it, in the order of the log, and
    commands on other names are answered."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands, locks = served.commands, served.engine.locks
            await commands.create(b"large", "bloom", **LARGE)
            await commands.create(b"other", "bloom", capacity=100)
            await commands.add(b"large", ["kept"])
            async with busy_threads() as go:
                order: list[str] = []

                async def note(name: str, work: Any) -> Any:
                    value = await work
                    order.append(name)
                    return value

                work = {
                    "clear": commands.clear(b"large"),
                    "add": commands.add(b"large", ["new"]),
                    "copy": commands.copy(b"large", b"copied"),
                    "rename": commands.rename(b"large", b"renamed"),
                }
                tasks = {name: asyncio.ensure_future(note(name, one)) for name, one in work.items()}
                assert await wait_until_async(lambda: locks.is_locked([b"large"]))
                reading = asyncio.ensure_future(commands.read(b"large", ["new"]))
                assert await commands.add(b"other", ["a"]) == (b"\1", None)
                assert await commands.read(b"other", ["a"]) == b"\1"
                assert locks.is_locked([b"copied"])
                assert locks.is_locked([b"renamed"])
                assert not locks.is_locked([b"other"])
                assert (order, reading.done()) == ([], False)
                go.set()
                await asyncio.gather(*tasks.values())
            assert order == ["clear", "add", "copy", "rename"]
            with pytest.raises(errors.UnknownFilter):  # when it was unlocked
                await reading
            for name in (b"copied", b"renamed"):
                assert commands.contains(name, ["kept", "new"]) == b"\0\1"
            assert not locks.is_locked([b"large", b"copied", b"renamed"])
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_filters_are_created_out_of_order(tmp_path: Path) -> None:
    """A thread creates a large filter and copies it, while smaller ones with later numbers are
    created. A replay, which has them in order, leads to the same."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            async with busy_threads() as go:
                large = asyncio.ensure_future(commands.create(b"large", "bloom", **LARGE))
                assert await wait_until_async(lambda: served.engine.locks.is_locked([b"large"]))
                await commands.create(b"small", "bloom", capacity=100)
                go.set()
                await large
            async with busy_threads() as go:
                copy = asyncio.ensure_future(commands.copy(b"large", b"copied"))
                again = asyncio.ensure_future(commands.copy(b"large", b"again"))
                assert await wait_until_async(lambda: served.engine.locks.is_locked([b"again"]))
                await commands.create(b"last", "bloom", capacity=100)
                go.set()
                await asyncio.gather(copy, again)
            numbers = {name: entry.id for name, entry in served.state.names.items()}
            assert numbers == {b"large": 1, b"small": 2, b"copied": 3, b"again": 4, b"last": 5}
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_keys_are_added_at_the_time_of_their_batch(tmp_path: Path) -> None:
    """A generation ends between the start of the tick and the batch. A replay adds the keys at the
    time of the batch, and so does the server."""
    time = 1_000_000.0

    async def main() -> State:
        nonlocal time
        clock = Clock(time, lambda: time, lambda: time)
        async with opened(tmp_path, clock) as served:
            commands = served.commands
            await commands.create(b"seen", "rotating", capacity=100, window=30, generations=3)
            await commands.add(b"seen", ["first"])

            def wait() -> None:
                nonlocal time
                time = 1_000_012.0

            served.engine.on_applied.subscribe(wait)  # before the batch goes to the log
            assert await commands.add(b"seen", ["second"]) == (b"\1", None)
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_a_refused_operation_of_a_thread_changes_nothing(tmp_path: Path) -> None:
    """Its client gets the error, records behind it are applied, and the server accepts writes."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            await commands.create(b"large", "bloom", **LARGE)
            await commands.create(b"other", "counting", capacity=100)
            await commands.add(b"large", ["kept"])
            async with busy_threads() as go:
                tasks = [
                    asyncio.ensure_future(one)
                    for one in (
                        commands.clear(b"large"),
                        commands.merge(b"large", b"other"),
                        commands.rotate(b"large"),
                        commands.add(b"large", ["new"]),
                    )
                ]
                assert await wait_until_async(lambda: served.engine.locks.is_locked([b"large"]))
                go.set()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes[1:3]] == [
                errors.IncompatibleFilters,
                errors.ReadOnlyFilter,
            ]
            assert outcomes[3] == (b"\1", None)
            assert served.engine.problem is None
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


@pytest.mark.parametrize("operation", ["clear", "merge", "copy", "rotate"])
def test_log_fails_while_a_thread_works(tmp_path: Path, operation: str) -> None:
    """The operation is in the log and is done; writes after it are refused until a retry. A restart
    has what the server has."""
    kind, window = ("rotating", {"window": "1h"}) if operation == "rotate" else ("bloom", {})

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            for name, key in ((b"large", "kept"), (b"source", "merged")):
                await commands.create(name, kind, **LARGE, **window)
                assert await commands.add(name, [key]) == (b"\x01", None)
            switch = failing(served)
            work: dict[str, Callable[[], Any]] = {
                "clear": lambda: commands.clear(b"large"),
                "merge": lambda: commands.merge(b"large", b"source"),
                "copy": lambda: commands.copy(b"large", b"copied"),
                "rotate": lambda: commands.rotate(b"large"),
            }
            async with busy_threads() as go:
                task = asyncio.ensure_future(work[operation]())
                assert await wait_until_async(lambda: served.engine.locks.is_locked([b"large"]))
                switch(True)
                with pytest.raises(errors.LogUnavailable):
                    await commands.create(b"other", "bloom", capacity=100)
                go.set()
                await task
            switch(False)
            assert await served.batches.retry()
            keys = ["kept", "merged", "added"]
            assert (await commands.add(b"large", keys))[1] is None
            assert all(commands.contains(b"large", keys))
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


LAYERED: dict[str, dict[str, Any]] = {
    "redisbloom": {"capacity": 100_000, "error_rate": 0.01, "expansion": 20},
    "rediscuckoo": {"capacity": 100_000, "expansion": 16},
}


@pytest.mark.parametrize("kind", LAYERED)
def test_memory_of_a_large_layer_comes_from_a_thread(tmp_path: Path, kind: str) -> None:
    """While the kernel provides it others are answered; the keys are in the layers in which they
    would be without, and a restart has the same bytes. A cuckoo filter needs the layer in the
    middle of a record, whose first keys are added once."""
    settings = LAYERED[kind]
    plain = creation.create({"kind": kind, **settings}, lambda: 0.0)
    layers: list[int] = []

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands, locks = served.commands, served.engine.locks
            await commands.create(b"large", kind, **settings)
            await commands.create(b"other", "bloom", capacity=100, error_rate=0.01)
            for start in range(0, 120_000, 250):
                keys = [b"%d" % number for number in range(start, start + 250)]
                add = partial(commands.add, b"large", keys)
                task = asyncio.ensure_future(commands.run([b"large"], add))
                while not task.done():
                    await asyncio.sleep(0)
                    if locks.is_locked([b"large"]) and not task.done():
                        assert commands.contains(b"other", ["a"]) == b"\x00"
                        layers.append(served.state.names[b"large"].filter.num_layers)
                answers, refusal = task.result()
                assert refusal is None
                assert len(answers) == len(keys)
                for key in keys:
                    plain.add(key)
        return served.state

    state = asyncio.run(main())
    filter = state.names[b"large"].filter
    assert filter.num_layers == 2
    assert 1 in layers, "no thread provided the memory"
    assert filter == plain
    assert_replay_is_same(tmp_path, state)


@pytest.mark.parametrize("kind", LAYERED)
def test_chunk_of_a_large_dump_waits_for_a_thread(tmp_path: Path, kind: str) -> None:
    """The kernel makes the memory when a chunk is copied there, which can take milliseconds."""
    source = creation.create({"kind": kind, "capacity": 8_000_000}, lambda: 0.0)
    source.add(b"key")
    first, header = source.chunk(0)
    following, chunk = source.chunk(first)

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            await commands.create(b"other", "bloom", capacity=100)
            await commands.load(b"large", first, header, form=kind)
            async with busy_threads() as go:
                loading = asyncio.ensure_future(commands.load(b"large", following, chunk))
                assert await wait_until_async(lambda: served.engine.locks.is_locked([b"large"]))
                assert await commands.add(b"other", ["a"]) == (b"\1", None)
                assert not loading.done()
                go.set()
                assert (await loading).filter.chunk(first) == (following, chunk)
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_growth_waits_for_a_thread_and_other_filters_do_not(tmp_path: Path) -> None:
    """A large scalable filter grows: its keys are answered when the thread is done, in order."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands, shelf = served.commands, served.engine.shelf
            await commands.create(b"large", "scalable", capacity=3_000_000, error_rate=0.001)
            await commands.create(b"other", "bloom", capacity=100)
            start = 0
            while not shelf.needs_room(b"large", 4096):
                keys = range(start, start + 4096)
                assert (await commands.add(b"large", keys))[1] is None
                start += 4096
            async with busy_threads() as go:
                first = asyncio.ensure_future(commands.add(b"large", range(start, start + 4096)))
                second = asyncio.ensure_future(commands.remove(b"large", [start]))
                third = asyncio.ensure_future(commands.add(b"large", [start + 5000]))
                assert await wait_until_async(lambda: served.engine.locks.is_locked([b"large"]))
                assert await commands.add(b"other", ["a"]) == (b"\1", None)
                assert [first.done(), second.done(), third.done()] == [False] * 3
                go.set()
                assert (await first)[1] is None
                assert (await second)[1] is not None  # this kind cannot remove keys
                assert await third == (b"\1", None)
            assert all(commands.contains(b"large", range(start + 4096)))
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_operation_that_only_this_process_cannot_apply_stops_writes(tmp_path: Path) -> None:
    """The log has it, and memory does not: the server accepts no more writes, and a restart applies
    it."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            commands = served.commands
            await commands.create(b"seen", "bloom", capacity=100)
            data = operations.named(b"seen", operations.fields(to="other", replace=True))

            def no_memory(*_: object) -> Any:
                raise errors.NotEnoughMemory("no memory")

            served.engine.start = no_memory  # type: ignore[assignment, method-assign]
            with pytest.raises(errors.NotEnoughMemory):
                await served.sequencer.submit(Op.RENAME, 1, data)
            with pytest.raises(errors.LogUnavailable, match="restart the server"):
                await commands.add(b"seen", ["a"])
            assert not await served.batches.retry()
            assert len(served.refusals) == 1
            assert commands.contains(b"seen", ["a"]) == b"\0"

    asyncio.run(main())

    async def again() -> None:
        async with opened(tmp_path) as served:
            assert list(served.state.names) == [b"other"]

    asyncio.run(again())


# Replays.


@pytest.mark.parametrize("kind", SETTINGS)
def test_replay_is_the_same_for_each_operation(tmp_path: Path, kind: str) -> None:
    """Every operation on a filter of every kind, those among them that are refused: the server that
    starts next has the same filters, byte for byte, and the same counts."""
    time = 1_000_000.0

    async def main() -> tuple[State, set[int]]:
        nonlocal time
        clock = Clock(time, lambda: time, lambda: time)
        async with opened(tmp_path, clock) as served:
            commands, engine = served.commands, served.engine
            keys = [b"user %d\tkey %d" % (n % 3, n) for n in range(300)]

            async def do(work: Any) -> Any:
                try:
                    return await work
                except errors.BloomeryError as problem:
                    return problem

            for name in (b"one", b"two"):
                await commands.create(name, kind, **SETTINGS[kind])
            await do(commands.add(b"one", keys[:50], only_new=True))
            await do(commands.add(b"one", keys))
            await do(commands.add(b"one", keys[:50], only_new=True))
            await do(commands.add(b"two", keys[:20]))
            for op, some in (
                (Op.ADD_IN_PLACE, keys[10:150]),
                (Op.ADD_NEW_IN_PLACE, keys[140:200]),
            ):
                await do(served.sequencer.submit_keys(b"two", op, some))
            await do(commands.remove(b"one", keys[:10]))
            await do(commands.merge(b"one", b"two"))
            await do(commands.copy(b"one", b"copied"))
            await do(commands.copy(b"two", b"copied", replace=True))
            await do(commands.rename(b"two", b"renamed"))
            await do(commands.rename(b"one", b"renamed", replace=False))
            await do(commands.adjust(b"one", on_full="alert"))
            await do(commands.bind(b"one", None))
            await do(commands.rotate(b"one"))
            await do(commands.compact(b"copied"))
            await do(commands.clear(b"renamed"))
            await do(commands.add(b"renamed", keys[100:120]))
            await commands.expire(b"copied", time + 30)
            await engine.perform(Op.FORGET, commands.find(b"one"), operations.names([b"key"]))
            saved = commands.find(b"one").filter
            if hasattr(saved, "to_bytes"):
                data = saved.to_bytes()
                await do(commands.load(b"loaded", 1, data[:200]))
                await do(commands.load(b"loaded", 201, data[200:]))
                await do(commands.load(b"half", 1, data[:200]))
            new = await commands.create(b"\0new", kind, **SETTINGS[kind])
            successor = operations.fields(settings={"successor": new.id})
            await engine.perform(Op.ADJUST, commands.find(b"one"), successor)
            await do(commands.add(b"one", keys[200:260]))
            await do(engine.succeed(commands.find(b"one"), new.id))
            time += 25.0
            engine.end()
            engine.find(b"one")  # windows pass
            await do(commands.run([b"one"], lambda: commands.add(b"one", keys[:5])))
            time += 10.0
            engine.end()
            assert engine.find(b"copied") is None
            await engine.locks.unlocked(b"copied")
            assert b"copied" not in served.state.names
            await commands.drop(b"renamed")
        return served.state, {row[2] for row in served.rows}

    state, done = asyncio.run(main())
    expected = set(Op)
    if kind != "rotating":
        expected -= {Op.TICK}
    if kind == "bank":  # it is not loaded in chunks
        expected -= {Op.CHUNK}
    assert {Op(op) for op in expected - done} == set()
    assert_replay_is_same(tmp_path, state)


# The thread of the log.


def test_a_call_that_is_cancelled_is_passed_over(tmp_path: Path) -> None:
    """A call that was cancelled before it started is not done, and the next one is."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            go, done = threading.Event(), list[str]()
            first = served.batches.call(lambda: go.wait(SOON))
            second = served.batches.call(lambda: done.append("second"))
            second.cancel()
            await asyncio.wait([second])
            third = served.batches.call(lambda: done.append("third"))
            go.set()
            assert await asyncio.wait_for(first, SOON)
            await asyncio.wait_for(third, SOON)
            assert done == ["third"]

    asyncio.run(main())


def test_a_call_that_is_cancelled_has_the_log_until_it_ends(tmp_path: Path) -> None:
    """While it runs, the event loop does not write the log at the same time."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            started, go, writers = threading.Event(), threading.Event(), list[tuple[bool, bool]]()
            write = served.log.write

            def watched(rows: Any) -> None:
                writers.append((threading.current_thread() is threading.main_thread(), go.is_set()))
                write(rows)

            served.log.write = watched  # type: ignore[method-assign]

            def work() -> None:
                started.set()
                go.wait(SOON)

            call = served.batches.call(work)
            assert await wait_until_async(started.is_set)
            call.cancel()
            await asyncio.wait([call])
            making = asyncio.ensure_future(served.commands.create(b"a", "bloom", capacity=10))
            assert await wait_until_async(lambda: not served.sequencer.idle)
            go.set()
            await asyncio.wait_for(making, SOON)
            assert writers == [(False, True)]

    asyncio.run(main())


def test_a_call_that_fails_is_reported(tmp_path: Path) -> None:
    """What a call raises is raised where it is awaited, and the next one is done."""

    def fail() -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with opened(tmp_path) as served:
            with pytest.raises(BaseException, match="3"):
                await served.batches.call(fail)
            assert await asyncio.wait_for(served.batches.call(lambda: 7), SOON) == 7

    asyncio.run(main())


def test_frozen(tmp_path: Path) -> None:
    """While it is frozen nothing is written, time stands still, and a retry does not end it. Writes
    that were submitted before are refused or done."""

    time = 1000.0

    async def main() -> None:
        nonlocal time
        clock = Clock(time, lambda: time, lambda: time)
        async with opened(tmp_path, clock) as served:
            batches, commands, engine = served.batches, served.commands, served.engine
            why = errors.LogUnavailable("frozen")
            async with batches.frozen(why):
                assert not await batches.retry()
                with pytest.raises(errors.LogUnavailable, match="frozen"):
                    await commands.create(b"a", "bloom", capacity=10)
            await commands.create(b"a", "bloom", capacity=10)
            await commands.expire(b"a", time + 60)
            before = len(served.rows)
            async with batches.frozen(why):  # what expires meanwhile exists until it ends
                time += 61
                engine.begin()
                await asyncio.sleep(0)
                assert b"a" in engine.state.names
                assert len(served.rows) == before
            assert engine.find(b"a") is None
            await engine.locks.unlocked(b"a")
            assert b"a" not in engine.state.names
            engine.refuse(why)  # as by a full disk
            with pytest.raises(errors.LogUnavailable, match="frozen"):
                async with batches.frozen(errors.LogUnavailable("another")):
                    pass
            assert engine.problem is why
            engine.accept()

    asyncio.run(main())
