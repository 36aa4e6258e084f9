"""Operations of clients: each is done once, or again if another command changed its filter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import errors
from bloomery.filters import saved
from bloomery.service.commands import repeat
from bloomery.service.domain.operations import Conflict, Op
from unit.service.opened import Opened, assert_replay_is_same, opened

MAX_TRIES = 16


def conflicting(times: int, tried: list[int]) -> Callable[[], Awaitable[str]]:
    """An operation that is in conflict with another command this many times."""

    async def operation() -> str:
        await asyncio.sleep(0)
        tried.append(len(tried))
        if len(tried) <= times:
            raise Conflict("another command changed the filter first")
        return "done"

    return operation


def test_conflict_runs_the_operation_again() -> None:
    """As if it had arrived after the other command; after many conflicts the client gets the
    error."""
    tried: list[int] = []
    assert asyncio.run(_run(repeat(conflicting(MAX_TRIES - 1, tried)))) == "done"
    assert len(tried) == MAX_TRIES
    tried.clear()
    with pytest.raises(errors.UnknownFilter):
        asyncio.run(_run(repeat(conflicting(MAX_TRIES, tried))))
    assert len(tried) == MAX_TRIES


async def _run(value: Awaitable[str]) -> str:
    return await value


def test_other_errors_are_not_repeated() -> None:
    """A filter that does not exist is not there the next time either."""
    tried: list[int] = []

    async def operation() -> str:
        tried.append(1)
        raise errors.UnknownFilter("there is no filter named 'seen'")

    with pytest.raises(errors.UnknownFilter):
        asyncio.run(_run(repeat(operation)))
    assert tried == [1]


async def _made(served: Opened) -> None:
    for name in (b"seen", b"other"):
        await served.commands.create(name, "counting", capacity=1000, error_rate=0.001)
    await served.commands.add(b"other", ["of the other"])


OPERATIONS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "add": lambda commands: commands.add(b"seen", ["a"]),
    "add_new": lambda commands: commands.add(b"seen", ["a"], only_new=True),
    "remove": lambda commands: commands.remove(b"seen", ["of the other"]),
    "clear": lambda commands: commands.clear(b"seen"),
    "expire": lambda commands: commands.expire(b"seen", 4e9),
    "adjust": lambda commands: commands.adjust(b"seen", on_full="alert"),
    "rename": lambda commands: commands.rename(b"seen", b"third"),
    "copy": lambda commands: commands.copy(b"seen", b"third"),
    "merge": lambda commands: commands.merge(b"third", b"seen"),
    "compact": lambda commands: commands.compact(b"seen"),
    "drop": lambda commands: commands.drop(b"seen"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_is_done_to_the_filter_that_was_renamed_first(
    tmp_path: Path, operation: str
) -> None:
    """Both were decided in one tick, for the same filter. The first gives its name to another, and
    the second runs again, on that one."""

    async def main() -> Any:
        async with opened(tmp_path) as served:
            commands = served.commands
            await _made(served)
            if operation == "merge":
                await commands.create(b"third", "counting", capacity=1000, error_rate=0.001)
            number = commands.find(b"other").id
            before = len(served.rows)
            await asyncio.gather(
                commands.rename(b"other", b"seen"),
                repeat(lambda: OPERATIONS[operation](commands)),
            )
            # The second is in the log twice. A drop is decided when the first is applied.
            assert len(served.rows) - before == (2 if operation == "drop" else 3)
            assert [entry.id for entry in served.state.filters.values() if entry.id == 1] == []
            if operation == "add":
                assert commands.contains(b"seen", ["a", "of the other"]) == b"\1\1"
            if operation == "remove":
                assert commands.contains(b"seen", ["of the other"]) == b"\0"
            if operation in ("rename", "copy", "merge"):
                assert commands.contains(b"third", ["of the other"]) == b"\1"
            if operation not in ("rename", "drop"):
                assert commands.find(b"seen").id == number
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_operation_on_a_filter_that_was_dropped_first_fails(tmp_path: Path) -> None:
    """Run again, it finds no filter. The keys are nowhere."""

    async def main() -> Any:
        async with opened(tmp_path) as served:
            await _made(served)
            outcomes = await asyncio.gather(
                served.engine.perform(Op.DROP, served.commands.find(b"seen")),
                repeat(lambda: served.commands.add(b"seen", ["a"])),
                return_exceptions=True,
            )
            assert outcomes[0] is None
            assert isinstance(outcomes[1], errors.UnknownFilter)
            assert not isinstance(outcomes[1], Conflict)
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_one_of_two_creates_succeeds(tmp_path: Path) -> None:
    """Both found the name free: the log has both, and the second is refused, also in a replay."""

    async def main() -> Any:
        async with opened(tmp_path) as served:
            create = served.commands.create
            first, second = await asyncio.gather(
                create(b"seen", "bloom", capacity=100),
                create(b"seen", "bloom", capacity=200),
                return_exceptions=True,
            )
            assert not isinstance(first, BaseException)
            assert isinstance(second, errors.FilterExists)
            assert served.commands.find(b"seen") is first
            assert [row[2] for row in served.rows] == [Op.CREATE, Op.CREATE]
            third = await create(b"other", "bloom", capacity=100)
            assert third.id == 3  # numbers are not used again
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_a_dropped_filter_and_a_new_one_are_two(tmp_path: Path) -> None:
    """Keys that were noted for the first are hashed again for the second."""

    async def main() -> Any:
        async with opened(tmp_path) as served:
            commands = served.commands
            await commands.create(b"seen", "bloom", capacity=1000)

            async def recreate() -> None:
                await served.engine.perform(Op.DROP, commands.find(b"seen"))
                await commands.create(b"seen", "bloom", capacity=1000, seed=7)

            async def add(key: str) -> None:
                while True:  # between the two there is no filter
                    try:
                        assert (await commands.add(b"seen", [key]))[1] is None
                        return
                    except errors.UnknownFilter:
                        await asyncio.sleep(0)

            keys = [f"key {n}" for n in range(20)]
            await asyncio.gather(recreate(), *map(add, keys))
            assert commands.contains(b"seen", keys) == b"\1" * 20
            assert [row[2] for row in served.rows][:3] == [Op.CREATE, Op.DROP, Op.ADD]
            assert commands.find(b"seen").filter.seed == 7
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_a_large_dump_begins_in_a_thread(tmp_path: Path) -> None:
    """Its first part is a checksum of all the others: the loop continues while it is made."""
    ticks = 0

    async def main() -> bytes:
        nonlocal ticks
        async with opened(tmp_path) as served:
            await served.commands.create(b"large", "bloom", capacity=80_000_000, error_rate=0.01)
            head = asyncio.ensure_future(served.commands.export_head(b"large"))
            while not head.done():
                ticks += 1
                await asyncio.sleep(0)
            assert await head == saved.head(served.state.names[b"large"].filter)
            return await head

    assert asyncio.run(main())
    assert ticks > 2
