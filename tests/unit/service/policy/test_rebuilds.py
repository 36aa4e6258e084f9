"""Rebuilds inside a server: how large, of what, for how long, and what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bloomery import errors
from bloomery.service.config.sources import SourceSettings
from bloomery.service.domain.policy import capacity_of
from bloomery.service.lookup.keytypes import forms
from bloomery.service.policy import rebuilds
from bloomery.service.policy.rebuilds import PREFIX, Rebuild
from bloomery.service.server import Server
from unit.service.inside import running
from waiting import wait_until_async

pytestmark = pytest.mark.slow  # each starts a server

ROWS = 500
SEEN = b"seen"


def source(folder: Path, name: str, rows: list[Any], kind: str = "TEXT") -> SourceSettings:
    """A table of these keys."""
    place = folder / f"{name}.db"
    place.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(place)) as database, database:
        database.execute(f"CREATE TABLE names (name {kind})")
        database.executemany("INSERT INTO names VALUES (?)", [(row,) for row in rows])
    return SourceSettings(name=name, url=f"sqlite:///{place}", table="names", key="name")


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    """A server with a source of words, and with one of numbers."""
    words = [f"word {number}" for number in range(ROWS)]
    sources = {
        "words": source(folder, "words", words),
        "numbers": source(folder, "numbers", list(range(ROWS)), "INTEGER"),
    }
    async with running(folder / "data", sources) as server:
        yield server


async def ended(state: Rebuild) -> Rebuild:
    assert await wait_until_async(lambda: state.ended_at is not None)
    return state


def test_numbers_have_room_in_both_forms(tmp_path: Path) -> None:
    """Each is two keys of the filter, and no client gives a capacity for that; the new filter is
    not so full that somebody is warned at once."""

    async def main() -> None:
        async with serving(tmp_path) as server:
            await server.parts.commands.create(
                SEEN, "bloom", capacity=100, on_full="alert", source="numbers"
            )
            state = await ended(server.parts.rebuilds.start(SEEN, settle=0))
            assert (state.problem, state.rows) == (None, ROWS)
            keys: list[Any] = [*range(ROWS), *map(str, range(ROWS))]
            assert all(server.parts.commands.contains(SEEN, keys))
            entry = server.parts.commands.find(SEEN)
            assert entry.items <= 0.75 * capacity_of(entry)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bloom", {"layout": "classic"}),
        ("scalable", {"growth": 2.0}),
        ("counting", {"counter_bits": 8}),
        ("deletable", {"regions": 64}),
        ("cuckoo", {}),
    ],
)
def test_it_stays_what_it_was(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    """A rebuilt filter has the parameters and the policy that it had, and room."""

    async def main() -> None:
        async with serving(tmp_path) as server:
            commands = server.parts.commands
            before = await commands.create(SEEN, kind, capacity=100, source="words", **settings)
            old, policy = before.filter, commands.policy(SEEN)
            state = await ended(server.parts.rebuilds.start(SEEN, settle=0))
            assert state.problem is None
            after = commands.find(SEEN)
            assert after.id == before.id
            assert after.filter is not old
            assert {name: after.settings[name] for name in settings} == settings
            assert commands.policy(SEEN) == policy
            assert all(commands.contains(SEEN, [f"word {number}" for number in range(ROWS)]))
            assert (await commands.add(SEEN, ["one more"]))[1] is None

    asyncio.run(main())


def test_keys_in_all_their_forms() -> None:
    """As a client may have given them, and no other."""
    uuid = UUID(int=1)
    assert forms(7) == [7, "7"]
    assert forms("7") == ["7", 7]
    assert forms("07") == ["07"]
    assert forms(uuid) == forms(str(uuid))[::-1] == [uuid, str(uuid)]
    assert forms("7 ") == ["7 "]
    assert forms(b"7") == [b"7"]


def test_another_source_meanwhile(tmp_path: Path) -> None:
    """A filter that is bound to another source is not given the keys of the one before."""

    async def main() -> None:
        async with serving(tmp_path) as server:
            await server.parts.commands.create(SEEN, capacity=100, source="words")
            await server.parts.commands.add(SEEN, [7])
            state = server.parts.rebuilds.start(SEEN, settle=0.1)
            await server.parts.commands.bind(SEEN, "numbers")
            assert "another source" in str((await ended(state)).problem)
            assert all(server.parts.commands.contains(SEEN, [7]))

    asyncio.run(main())


def test_nobody_is_told_its_name(tmp_path: Path) -> None:
    """Who knew it could clear it, and the filter that it becomes would deny keys."""

    async def main() -> None:
        async with serving(tmp_path) as server:
            commands = server.parts.commands
            await commands.create(SEEN, capacity=100, source="words")
            server.parts.rebuilds.start(SEEN, settle=60)
            assert await wait_until_async(lambda: len(server.parts.engine.state.names) == 2)
            assert commands.listing.names() == [SEEN]
            assert [entry.name for entry in commands.listing.scan(0, 10)[1]] == [SEEN]
            await commands.drop(SEEN)

    asyncio.run(main())


def test_a_removal_that_comes_late_harms_nobody(tmp_path: Path) -> None:
    """Who took a key out of the source before that was read has `settle` seconds to take it out of
    the filter: the new one, which never had it, has not taken the place by then."""

    async def main() -> None:
        async with serving(tmp_path) as server:
            commands = server.parts.commands
            await commands.create(SEEN, "counting", capacity=1000, error_rate=0.4, source="words")
            gone = [f"gone {number}" for number in range(300)]
            await commands.add(SEEN, gone)
            state = server.parts.rebuilds.start(SEEN, settle=2)
            assert await wait_until_async(lambda: state.rows == ROWS)
            await asyncio.sleep(0.1)  # well before it has settled
            await commands.remove(SEEN, gone)
            assert (await ended(state)).problem is None
            assert all(commands.contains(SEEN, [f"word {number}" for number in range(ROWS)]))

    asyncio.run(main())


def test_what_a_crash_leaves_is_dropped(tmp_path: Path) -> None:
    """At the next start: it may be large, and nobody could drop it."""

    async def main() -> None:
        async with serving(tmp_path) as server:
            for name in (SEEN, PREFIX + b"1", PREFIX + b"own"):
                with server.parts.commands.own_name(name):
                    await server.parts.commands.create(name, capacity=100)
            await server.parts.commands.expire(PREFIX + b"1", server.parts.engine.state.now + 3600)
        async with serving(tmp_path) as server:
            assert list(server.parts.engine.state.names) == [SEEN, PREFIX + b"own"]

    asyncio.run(main())


def test_dropped_filters_are_forgotten(tmp_path: Path) -> None:
    """By look-ups and rebuilds too, in a whole server: what they keep of each would add up."""

    async def main() -> None:
        async with serving(tmp_path) as server:
            commands = server.parts.commands
            for _ in range(3):
                entry = await commands.create(SEEN, capacity=100, source="words")
                await commands.lookup(SEEN, ["absent"])
                assert commands.lookups.info(entry) is not None
                await ended(server.parts.rebuilds.start(SEEN, settle=0))
                assert commands.lookups.observed(entry) is None, "of the filter before"
                assert server.parts.rebuilds.of(commands.find(SEEN)) is not None
                await commands.drop(SEEN)
                assert commands.lookups.info(entry) is None
                assert server.parts.rebuilds.of(entry) is None

    asyncio.run(main())


def test_so_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a connection of the database and the memory of a filter."""
    monkeypatch.setattr(rebuilds, "_MOST", 2)

    async def main() -> None:
        async with serving(tmp_path) as server:
            for name in (b"one", b"two", b"three"):
                await server.parts.commands.create(name, capacity=100, source="words")
            server.parts.rebuilds.start(b"one", settle=60)
            server.parts.rebuilds.start(b"two", settle=60)
            with pytest.raises(errors.ServerUnavailable, match="2 filters are being rebuilt"):
                server.parts.rebuilds.start(b"three")

    asyncio.run(main())
