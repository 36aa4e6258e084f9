"""Locks on names: commands on them wait, and others do not."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from bloomery import BloomFilter, _native
from bloomery.service.locks import NameLocks
from unit.service.opened import opened


def test_commands_wait_for_a_lock(tmp_path: Path) -> None:
    """Nothing comes between the commands of a transaction."""

    async def main() -> None:
        async with opened(tmp_path) as served:
            commands, locks = served.commands, served.engine.locks
            for name in (b"seen", b"other"):
                await commands.create(name, "bloom", capacity=100, error_rate=0.01)
            add = partial(commands.change, commands.add, b"seen", ["a"])
            locks.lock([b"seen"])
            waiting = [
                asyncio.ensure_future(commands.read(b"seen", ["a"])),
                asyncio.ensure_future(commands.run([b"seen"], add)),
            ]
            assert await commands.read(b"other", ["a"]) == b"\x00"
            assert await commands.run([b"other"], partial(commands.add, b"other", ["a"])) == (
                b"\x01",
                None,
            )
            assert not any(one.done() for one in waiting)
            locks.unlock([b"seen"])
            assert await waiting[0] == b"\x00"
            assert await waiting[1] == (b"\x01", None)

    asyncio.run(main())


def test_a_name_is_locked_until_all_have_unlocked_it() -> None:
    """A transaction, and a thread that applies one of its operations, lock the same name."""

    async def main() -> None:
        shelf = _native.Shelf()
        shelf.put(b"seen", BloomFilter(10), 1)
        session = _native.Session(shelf, 1, 100, 100, 100)
        locks = NameLocks(shelf)
        for _ in range(2):
            locks.lock([b"seen", b"none"])
        waiting = asyncio.ensure_future(locks.unlocked(b"free", b"seen"))
        locks.unlock([b"seen"])
        await locks.unlocked(b"free")
        assert locks.is_locked([b"free", b"seen"])
        assert session.feed(b"BF.EXISTS seen a\r\n") == [[b"BF.EXISTS", b"seen", b"a"]]
        assert not waiting.done()
        locks.unlock([b"seen"])
        await waiting
        assert not locks.is_locked([b"seen"])
        assert locks.is_locked([b"none"])
        assert session.feed(b"BF.EXISTS seen a\r\n") is None

    asyncio.run(main())
