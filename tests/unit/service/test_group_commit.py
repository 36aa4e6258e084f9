"""The thread of the log: what is asked of it is done in order, and nothing that fails ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op, fields
from bloomery.service.domain.state import State
from bloomery.service.durability.log import Log
from bloomery.service.engine import Engine
from bloomery.service.group_commit import GroupCommit
from unit.service.follower import SOON
from waiting import wait_until_async


@asynccontextmanager
async def turning(folder: Path) -> AsyncIterator[GroupCommit]:
    """The turns of an engine on an empty log."""
    engine = Engine(State(), Log(folder))
    turns = GroupCommit(engine, lambda problem: None)
    try:
        yield turns
    finally:
        turns.stop()
        engine.log.close()


def test_a_call_that_is_cancelled_is_passed_over(tmp_path: Path) -> None:
    """A call that nobody waits for any more is not done if it has not begun, and what comes behind
    it is."""

    async def main() -> None:
        async with turning(tmp_path) as turns:
            go, done = threading.Event(), []
            first = turns.call(lambda: go.wait(SOON))
            second = turns.call(lambda: done.append("second"))
            second.cancel()
            await asyncio.wait([second])  # a cancel reaches what waits in the next round
            third = turns.call(lambda: done.append("third"))
            go.set()
            assert await asyncio.wait_for(first, SOON)
            await asyncio.wait_for(third, SOON)
            assert done == ["third"]

    asyncio.run(main())


def test_a_call_that_is_cancelled_has_the_log_until_it_ends(tmp_path: Path) -> None:
    """While a call still runs that nobody waits for, the loop does not write the log beside it."""

    async def main() -> None:
        async with turning(tmp_path) as turns:
            begun, go, writers = threading.Event(), threading.Event(), []
            write = turns.engine.log.write

            def watched(rows: object) -> None:
                writers.append((threading.current_thread() is threading.main_thread(), go.is_set()))
                write(rows)  # type: ignore[arg-type]

            turns.engine.log.write = watched  # type: ignore[method-assign]

            def work() -> None:
                begun.set()
                go.wait(SOON)

            call = turns.call(work)
            assert await wait_until_async(begun.is_set)
            call.cancel()
            await asyncio.sleep(0)
            logged = asyncio.ensure_future(turns.logged())
            turns.join()
            settings = {"kind": "bloom", "capacity": 10, "error_rate": 0.01}
            turns.engine.create(Op.CREATE, fields(name="a", settings=settings))
            assert await wait_until_async(lambda: turns._committing or writers)
            go.set()
            await asyncio.wait_for(logged, SOON)
            assert writers == [(False, True)]

    asyncio.run(main())


def test_a_call_that_fails_is_told(tmp_path: Path) -> None:
    """Whatever a call raises is raised where it is waited for, and the next one is done."""

    def fail() -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with turning(tmp_path) as turns:
            with pytest.raises(BaseException, match="3"):
                await turns.call(fail)
            assert await asyncio.wait_for(turns.call(lambda: 7), SOON) == 7

    asyncio.run(main())


def test_frozen(tmp_path: Path) -> None:
    """While it is frozen nothing is written, and a retry does not thaw it; then all goes on."""

    async def main() -> None:
        async with turning(tmp_path) as turns:
            settings = {"kind": "bloom", "capacity": 10, "error_rate": 0.01}
            create = fields(name="a", settings=settings)
            why = errors.LogUnavailable("frozen")
            async with turns.frozen(why):
                assert not await turns.retry()
                with pytest.raises(errors.LogUnavailable, match="frozen"):
                    turns.engine.create(Op.CREATE, create)
            turns.join()
            turns.engine.create(Op.CREATE, create)
            await turns.logged()
            at = turns.engine.clock.now() + 0.1
            turns.engine.change(Op.EXPIRE, 1, fields(at=at))
            await turns.logged()
            async with turns.frozen(why):  # what expires meanwhile is there until it ends
                assert await wait_until_async(lambda: turns.engine.clock.now() > at)
                assert turns.engine.find(b"a") is not None
                await asyncio.sleep(0)
                assert turns.engine.state.filters
            assert turns.engine.find(b"a") is None
            turns.engine.refuse(why)  # as by a full disk
            with pytest.raises(errors.LogUnavailable, match="frozen"):
                async with turns.frozen(errors.LogUnavailable("another")):
                    pass
            assert turns.engine.problem is why

    asyncio.run(main())
