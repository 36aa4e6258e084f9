"""The thread of the log: what is asked of it is done in order, and nothing that fails ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op, fields
from bloomery.service.domain.state import State
from bloomery.service.durability.log import Log
from bloomery.service.eagerly import eagerly
from bloomery.service.engine import Engine
from bloomery.service.group_commit import CommitWaiter, GroupCommit
from unit.service.follower import SOON
from waiting import wait_until_async


@asynccontextmanager
async def turning(folder: Path) -> AsyncIterator[GroupCommit]:
    """The turns of an engine on an empty log."""
    engine = Engine(State(), Log(folder))
    group_commit = GroupCommit(engine, lambda problem: None)
    try:
        yield group_commit
    finally:
        group_commit.stop()
        engine.log.close()


def test_a_call_that_is_cancelled_is_passed_over(tmp_path: Path) -> None:
    """A call that nobody waits for any more is not done if it has not begun, and what comes behind
    it is."""

    async def main() -> None:
        async with turning(tmp_path) as group_commit:
            go, done = threading.Event(), []
            first = group_commit.call(lambda: go.wait(SOON))
            second = group_commit.call(lambda: done.append("second"))
            second.cancel()
            await asyncio.wait([second])  # a cancel reaches what waits in the next round
            third = group_commit.call(lambda: done.append("third"))
            go.set()
            assert await asyncio.wait_for(first, SOON)
            await asyncio.wait_for(third, SOON)
            assert done == ["third"]

    asyncio.run(main())


def test_a_call_that_is_cancelled_has_the_log_until_it_ends(tmp_path: Path) -> None:
    """While a call still runs that nobody waits for, the loop does not write the log beside it."""

    async def main() -> None:
        async with turning(tmp_path) as group_commit:
            begun, go, writers = threading.Event(), threading.Event(), []
            write = group_commit.engine.log.write

            def watched(rows: object) -> None:
                writers.append((threading.current_thread() is threading.main_thread(), go.is_set()))
                write(rows)  # type: ignore[arg-type]

            group_commit.engine.log.write = watched  # type: ignore[method-assign]

            def work() -> None:
                begun.set()
                go.wait(SOON)

            call = group_commit.call(work)
            assert await wait_until_async(begun.is_set)
            call.cancel()
            await asyncio.sleep(0)
            logged = asyncio.ensure_future(group_commit.logged())
            group_commit.join()
            settings = {"kind": "bloom", "capacity": 10, "error_rate": 0.01}
            eagerly(group_commit.engine.make(Op.CREATE, fields(name="a", settings=settings)))
            assert await wait_until_async(lambda: group_commit.committing or writers)
            go.set()
            await asyncio.wait_for(logged, SOON)
            assert writers == [(False, True)]

    asyncio.run(main())


def test_a_call_that_fails_is_told(tmp_path: Path) -> None:
    """Whatever a call raises is raised where it is waited for, and the next one is done."""

    def fail() -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with turning(tmp_path) as group_commit:
            with pytest.raises(BaseException, match="3"):
                await group_commit.call(fail)
            assert await asyncio.wait_for(group_commit.call(lambda: 7), SOON) == 7

    asyncio.run(main())


def test_frozen(tmp_path: Path) -> None:
    """While it is frozen nothing is written, and a retry does not thaw it; then all goes on."""

    async def main() -> None:
        async with turning(tmp_path) as group_commit:
            settings = {"kind": "bloom", "capacity": 10, "error_rate": 0.01}
            create = fields(name="a", settings=settings)
            why = errors.LogUnavailable("frozen")
            async with group_commit.frozen(why):
                assert not await group_commit.retry()
                with pytest.raises(errors.LogUnavailable, match="frozen"):
                    eagerly(group_commit.engine.make(Op.CREATE, create))
            group_commit.join()
            eagerly(group_commit.engine.make(Op.CREATE, create))
            await group_commit.logged()
            at = group_commit.engine.clock.now() + 0.1
            group_commit.engine.change(Op.EXPIRE, 1, fields(at=at))
            await group_commit.logged()
            async with group_commit.frozen(why):  # what expires meanwhile is there until it ends
                assert await wait_until_async(lambda: group_commit.engine.clock.now() > at)
                assert group_commit.engine.find(b"a") is not None
                await asyncio.sleep(0)
                assert group_commit.engine.state.filters
            assert group_commit.engine.find(b"a") is None
            group_commit.engine.refuse(why)  # as by a full disk
            with pytest.raises(errors.LogUnavailable, match="frozen"):
                async with group_commit.frozen(errors.LogUnavailable("another")):
                    pass
            assert group_commit.engine.problem is why

    asyncio.run(main())


class Writer:
    """A client that has written, and notes what the log had when it was released."""

    wrote = True

    def __init__(self, logged: list[int]) -> None:
        self.released: list[int] = []
        self._logged = logged

    def take_waiters(self) -> tuple[CommitWaiter]:
        return (self,)

    def hold(self) -> None: ...

    def send(self) -> None:
        self.release(None)

    def release(self, problem: errors.BloomeryError | None) -> None:
        self.released.append(sum(self._logged))

    def answer(self, results: list[Any]) -> None: ...


def test_a_commit_that_ends_within_a_turn_releases_nobody_of_it(tmp_path: Path) -> None:
    """Of a client whose write is being logged another command ends, which wrote too; the loop hears
    of the end of the commit before the end of that turn."""

    async def main() -> None:
        async with turning(tmp_path) as group_commit:
            log = group_commit.engine.log
            write, gate, logged = log.write, threading.Semaphore(0), list[int]()

            def slow(rows: Any) -> None:
                assert gate.acquire(timeout=SOON)
                write(rows)
                logged.append(len(rows))

            log.write = slow  # type: ignore[method-assign]
            writer = Writer(logged)
            group_commit.snapshot(True)  # the thread writes

            def make(name: str) -> None:
                group_commit.join(writer)
                settings = {"kind": "bloom", "capacity": 10, "error_rate": 0.01}
                eagerly(group_commit.engine.make(Op.CREATE, fields(name=name, settings=settings)))

            make("a")
            assert await wait_until_async(lambda: group_commit.committing)
            behind = threading.Event()
            group_commit.call(behind.set)
            gate.release()
            assert behind.wait(SOON)  # it is logged, and the loop is about to hear of it
            make("b")
            gate.release()
            assert await wait_until_async(lambda: bool(writer.released))
            assert writer.released == [2]

    asyncio.run(main())


def test_a_repeated_write_waits_for_a_late_disk(tmp_path: Path) -> None:
    """It gave the log nothing to write: the log has it, and the disk does not. Answered then, it
    would be lost by a power cut however much later. When the disk has caught up it is answered, and
    what its client has written in that very turn is not."""

    async def main() -> None:
        async with turning(tmp_path) as group_commit:
            log = cast("Log", group_commit.engine.log)
            write, logged, late = log.write, list[int](), True

            def noted(rows: Any) -> None:
                write(rows)
                logged.append(len(rows))

            log.write = noted  # type: ignore[method-assign]
            log.is_late = lambda now: late  # type: ignore[method-assign]
            repeating, writing = Writer(logged), Writer(logged)
            for writer in (repeating, writing):
                group_commit.join(writer)
            assert await wait_until_async(lambda: group_commit.late_since or writing.released)
            assert [repeating.released, writing.released] == [[], []]
            late = False
            group_commit.join(writing)
            settings = {"kind": "bloom", "capacity": 10, "error_rate": 0.01}
            eagerly(group_commit.engine.make(Op.CREATE, fields(name="a", settings=settings)))
            group_commit.flushed()
            assert await wait_until_async(lambda: writing.released and repeating.released)
            assert writing.released == [1]
            assert group_commit.late_since is None

    asyncio.run(main())
