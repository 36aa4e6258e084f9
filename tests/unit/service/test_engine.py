"""The engine: what is checked before a write goes into the log, and what time does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bloomery import _native, errors
from bloomery.service.clock import Clock
from bloomery.service.domain.operations import Op
from bloomery.service.engine import NO_ROOM, Engine
from unit.service.opened import assert_replay_is_same, opened

KEYS = [b"%d" % n for n in range(20_000)]


@contextmanager
def no_more_memory(engine: Engine) -> Iterator[None]:
    """Limit the memory to what is used."""
    engine.set_memory_limit(_native.memory_used())
    try:
        yield
    finally:
        engine.set_memory_limit(0)


def test_key_without_memory_is_refused(tmp_path: Path) -> None:
    """Where a filter may not grow, keys that are present are answered, and new ones are refused
    when it is full. A replay, with any amount of memory, decides the same."""

    async def main() -> Any:
        async with opened(tmp_path) as served:
            commands = served.commands
            await commands.create(b"grows", "scalable", capacity=100, error_rate=0.001)
            await commands.add(b"grows", KEYS[:50])
            with no_more_memory(served.engine):
                answers, refused = await commands.add(b"grows", KEYS)
                assert (answers[:50], refused) == (bytes(50), None)
                assert answers.count(NO_ROOM) > 19_000
                assert served.rows[-1][2] == Op.ADD_IN_PLACE
                with pytest.raises(errors.NotEnoughMemory, match="maxmemory"):
                    await commands.create(b"other", "bloom", capacity=1_000_000)
            assert (await commands.add(b"grows", KEYS))[0].count(1) > 19_000
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "rotating", "capacity": 100, "error_rate": 0.001, "window": "1h"},
        {"kind": "rediscuckoo", "capacity": 100, "expansion": 1},
    ],
)
def test_acknowledged_key_counts_although_memory_is_short(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """A key that is present is added again or refused: a rotating filter would delete it too early,
    and a filter that counts copies would return *no* for it after a removal."""

    async def main() -> Any:
        async with opened(tmp_path) as served:
            commands = served.commands
            await commands.create(b"seen", **settings)
            await commands.add(b"seen", KEYS[:50])
            with no_more_memory(served.engine):
                answers, _ = await commands.add(b"seen", KEYS)
            assert NO_ROOM in answers
            if settings["kind"] == "rediscuckoo":
                added = [key for key, one in zip(KEYS, answers, strict=True) if one != NO_ROOM]
                for key in [key for key in KEYS[:50] if key in added]:
                    assert commands.count(b"seen", key) >= 2
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_expired_filter_is_dropped_by_a_record(tmp_path: Path) -> None:
    """Reads do not see it from that moment on, and a replay drops it too."""
    time = 1000.0

    async def main() -> Any:
        nonlocal time
        clock = Clock(time, lambda: time, lambda: time)
        async with opened(tmp_path, clock) as served:
            await served.commands.create(b"seen", "bloom", capacity=100)
            await served.commands.expire(b"seen", time + 5)
            time += 5.5
            with pytest.raises(errors.UnknownFilter):
                served.commands.find(b"seen")
            # The name is free for the next command, which waits for the record.
            await served.commands.run(
                [b"seen"], lambda: served.commands.create(b"seen", "bloom", capacity=200)
            )
            assert [row[2] for row in served.rows][-2:] == [Op.DROP, Op.CREATE]
        return served.state

    state = asyncio.run(main())
    assert state.names[b"seen"].filter.capacity == 200
    assert_replay_is_same(tmp_path, state)


def test_expiry_is_tried_again_after_a_refused_batch(tmp_path: Path) -> None:
    """The log refused the record, so the filter is still in memory, but no client sees it."""
    time = 1000.0

    async def main() -> Any:
        nonlocal time
        clock = Clock(time, lambda: time, lambda: time)
        async with opened(tmp_path, clock) as served:
            await served.commands.create(b"seen", "bloom", capacity=100)
            await served.commands.expire(b"seen", time + 5)
            write, failing = served.log.write, True

            def refuse(rows: Any) -> None:
                if failing:
                    raise errors.LogUnavailable("the disk is full")
                write(rows)

            served.log.write = refuse  # type: ignore[method-assign]
            time += 6
            assert served.engine.find(b"seen") is None
            await served.engine.locks.unlocked(b"seen")
            assert len(served.refusals) == 1
            assert b"seen" in served.engine.state.names
            assert served.engine.find(b"seen") is None
            failing = False
            await served.engine.locks.unlocked(b"seen")
            assert await served.batches.retry()
            assert served.engine.find(b"seen") is None
            await served.engine.locks.unlocked(b"seen")
            assert b"seen" not in served.engine.state.names
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))
