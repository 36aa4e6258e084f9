"""A filter that is rebuilt: its successor gets the keys that are added, and then replaces it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from unit.service.durability.serving import replay_rows
from unit.service.opened import Opened, assert_replay_is_same, busy_threads, opened
from waiting import wait_until_async

OLD, NEW = b"seen", b"\x00new"


async def follow(served: Opened, kind: str, **settings: Any) -> tuple[Entry, Entry]:
    """A small filter, and a larger one that follows it."""
    commands = served.commands
    old = await commands.create(OLD, kind, capacity=100, error_rate=0.3, **settings)
    grow = {"grow": True} if kind == "cuckoo" else {}
    new = await commands.create(NEW, kind, capacity=10_000, error_rate=0.01, **grow)
    await served.engine.follow(old, new)
    return old, new


def replayed(served: Opened) -> State:
    """Return the filters that the log leads to."""
    state = State()
    assert replay_rows(served.rows, state) == []
    return state


@pytest.mark.parametrize("kind", ["bloom", "scalable", "counting", "deletable", "cuckoo"])
def test_successor_gets_every_key(tmp_path: Path, kind: str) -> None:
    """Also keys that the old filter already answers *maybe* for, and that do not change it."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            await follow(served, kind, **({} if kind == "scalable" else {"on_full": "reject"}))
            keys = [f"key {number}" for number in range(100)]
            answers, _ = await served.commands.add(OLD, keys)
            if kind in ("bloom", "deletable"):
                assert 0 in answers, "the test needs a false positive of the old filter"
            assert all(served.commands.contains(NEW, keys))
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_successor_replaces_the_filter(tmp_path: Path) -> None:
    """It has the name, the policy and the expiry of the old filter, and the keys of the same tick.
    The number stays: records on their way are for it."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            old, new = await follow(served, "bloom", on_full="alert", warn_at=0.5)
            number, filter = old.id, new.filter
            await commands.expire(OLD, 4e9)
            added, replaced = await asyncio.gather(
                commands.add(OLD, ["at the last moment"]), served.engine.succeed(old, new.id)
            )
            assert added == (b"\x01", None)
            assert commands.find(OLD) is replaced
            assert (replaced.id, replaced.filter) == (number, filter)
            assert all(commands.contains(OLD, ["at the last moment"]))
            assert (replaced.expires_at, replaced.settings["warn_at"]) == (4e9, 0.5)
            assert (replaced.settings["capacity"], replaced.filter.capacity) == (10_000, 10_000)
            with pytest.raises(errors.UnknownFilter):
                commands.find(NEW)
            assert await commands.add(OLD, ["later"]) == (b"\x01", None)
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_filter_without_a_successor_is_not_logged_again(tmp_path: Path) -> None:
    """While it is followed, a key that is present is logged, because the successor may lack it.
    After `unfollow` it is not."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            old, _ = await follow(served, "bloom")
            for logged in (1, 1):
                before = len(served.rows)
                await served.commands.add(OLD, ["a"])
                assert len(served.rows) - before == logged
            await served.engine.unfollow(old)
            before = len(served.rows)
            assert await served.commands.add(OLD, ["a"]) == (b"\x00", None)
            assert served.rows[before:] == []

    asyncio.run(main())


def test_keys_are_not_a_change_of_the_successor(tmp_path: Path) -> None:
    """A change is written to the registry: for keys that was thousands of times per second."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            _, new = await follow(served, "bloom")
            changed: list[Entry] = []
            served.engine.on_change.subscribe(changed.append)
            before = new.changes
            await served.commands.add(OLD, ["a"])
            assert served.state.filters[new.id].items == 1
            assert (changed, new.changes) == ([], before)

    asyncio.run(main())


def test_successor_that_refuses_a_key_is_given_up(tmp_path: Path) -> None:
    """The write itself succeeds, and the successor never replaces the filter."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            old = await commands.create(OLD, "bloom", capacity=1000)
            new = await commands.create(NEW, "bloom", capacity=3, on_full="reject")
            await served.engine.follow(old, new)
            assert await commands.add(OLD, list(range(5))) == (b"\x01" * 5, None)
            assert "successor" not in old.settings
            with pytest.raises(errors.InvalidParameter, match="no successor"):
                await served.engine.succeed(old, new.id)
            assert all(commands.contains(OLD, list(range(5))))
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_dropped_successor_is_given_up(tmp_path: Path) -> None:
    """Whoever drops it: the write succeeds."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            old, _ = await follow(served, "bloom")
            await served.commands.drop(NEW)
            assert await served.commands.add(OLD, ["a"]) == (b"\x01", None)
            assert "successor" not in old.settings
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_replay_of_each_prefix_has_every_key(tmp_path: Path) -> None:
    """Replayed up to any batch, the name has every key that was acknowledged until then."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            old, new = await follow(served, "counting")
            added: list[str] = []
            for number in range(30):
                keys = [f"{number} {one}" for one in range(3)]
                assert (await served.commands.add(OLD, keys))[1] is None
                added += keys
                if number == 20:
                    await served.engine.succeed(old, new.id)
                assert all(replayed(served).names[OLD].filter.contains_many(added))

    asyncio.run(main())


def test_key_waits_for_a_thread_that_works_on_the_successor(tmp_path: Path) -> None:
    """The records of both filters keep the order of the log. Else the successor would lack a key
    that was acknowledged, and a replay would not."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands = served.commands
            old = await commands.create(OLD, "bloom", capacity=100)
            new = await commands.create(NEW, "bloom", capacity=8_000_000, error_rate=0.01)
            await served.engine.follow(old, new)
            async with busy_threads() as go:
                clearing = asyncio.ensure_future(commands.clear(NEW))
                assert await wait_until_async(lambda: served.engine.locks.is_locked([NEW]))
                adding = asyncio.ensure_future(commands.add(OLD, ["a"]))
                assert await wait_until_async(
                    lambda: adding.done() or served.engine.locks.is_locked([OLD])
                )
                go.set()
                await clearing
                assert await adding == (b"\x01", None)
            assert commands.contains(NEW, ["a"]) == b"\x01"
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_successor_gets_the_keys_that_make_the_filter_grow(tmp_path: Path) -> None:
    """A thread makes a large filter grow, and the successor gets the same keys."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            commands, shelf = served.commands, served.engine.shelf
            old = await commands.create(OLD, "scalable", capacity=3_000_000, error_rate=0.001)
            start = 0
            while not shelf.needs_room(OLD, 4096):
                await commands.add(OLD, range(start, start + 4096))
                start += 4096
            new = await commands.create(NEW, "scalable", capacity=10_000, error_rate=0.001)
            await served.engine.follow(old, new)
            keys = range(start, start + 4096)
            assert (await commands.add(OLD, keys))[1] is None
            assert all(commands.contains(OLD, keys))
            assert all(commands.contains(NEW, keys))
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


def test_removals_are_not_followed(tmp_path: Path) -> None:
    """The successor may not have the key: to remove it could harm others."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            await follow(served, "counting")
            await served.commands.add(OLD, ["a"])
            await served.commands.remove(OLD, ["a", "b"])
            assert served.commands.contains(NEW, ["a"]) == b"\x01"
            assert (2, Op.REMOVE) not in [(row[1], row[2]) for row in served.rows]
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))


@pytest.mark.parametrize("what", ["clear", "merge", "drop"])
def test_change_that_is_not_followed_ends_it(tmp_path: Path, what: str) -> None:
    """The successor does not see keys that arrive other than by an add, so it is given up."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            commands = served.commands
            old, new = await follow(served, "bloom")
            await commands.create(b"other", "bloom", capacity=100, error_rate=0.3)
            if what == "merge":
                await commands.merge(OLD, b"other")
            elif what == "clear":
                await commands.clear(OLD)
            else:
                await commands.drop(OLD)
            expected = errors.UnknownFilter if what == "drop" else errors.InvalidParameter
            with pytest.raises(expected):
                await served.engine.succeed(old, new.id)
            assert commands.find(NEW) is new

    asyncio.run(main())


def test_filter_that_can_be_full_cannot_follow(tmp_path: Path) -> None:
    """A cuckoo filter that does not grow would lack keys."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            old = await served.commands.create(OLD, "cuckoo", capacity=1000, grow=True)
            new = await served.commands.create(NEW, "cuckoo", capacity=10, grow=False)
            with pytest.raises(errors.InvalidParameter, match="grow"):
                await served.engine.follow(old, new)

    asyncio.run(main())


def test_other_hashes_cannot_follow(tmp_path: Path) -> None:
    """The successor gets hashes, which mean nothing to a filter with another hasher or seed."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            old = await served.commands.create(OLD, "bloom", capacity=1000)
            new = await served.commands.create(NEW, "bloom", capacity=1000, seed=7)
            with pytest.raises(errors.InvalidParameter, match="hasher"):
                await served.engine.follow(old, new)

    asyncio.run(main())


def test_rename_to_source_keeps_the_successor(tmp_path: Path) -> None:
    """Only another source of the keys ends a rebuild, not a name that looks like the setting."""

    async def main() -> State:
        async with opened(tmp_path) as served:
            old, new = await follow(served, "bloom")
            await served.commands.amend(OLD, {}, b"source")
            assert old.settings["successor"] == new.id
            await served.commands.add(b"source", ["key"])
            assert all(served.commands.contains(NEW, ["key"]))
        return served.state

    assert_replay_is_same(tmp_path, asyncio.run(main()))
