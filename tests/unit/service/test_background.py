"""What a thread does to a whole filter: memory and log agree on whether it was done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bloomery import errors
from bloomery.filters import creation, saved
from bloomery.service.background import Background
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.durability.log import Log
from bloomery.service.durability.recovery import recover
from bloomery.service.eagerly import eagerly
from bloomery.service.engine import Engine
from unit.service.durability.serving import assert_same

KINDS: dict[str, dict[str, str]] = {"bloom": {}, "rotating": {"window": "1h"}}
OPERATIONS: dict[str, tuple[str, Callable[[Commands], Any]]] = {
    "clear": ("bloom", lambda commands: commands.clear(b"large")),
    "merge": ("bloom", lambda commands: commands.merge(b"large", b"source")),
    "copy": ("bloom", lambda commands: commands.copy(b"large", b"copied")),
    "rotate": ("rotating", lambda commands: commands.rotate(b"large")),
}


def opened(folder: Path) -> tuple[Log, Engine, Background, Commands]:
    """The parts of a server that operations go through."""
    recovered = recover(folder)
    log = recovered.log()
    engine = Engine(recovered.state, log)
    background = Background(engine)
    return log, engine, background, Commands(engine, Settings(), background=background)


@pytest.mark.slow
@pytest.mark.parametrize("accepted", ["before", "after"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_log_fails_while_a_thread_works(tmp_path: Path, operation: str, accepted: str) -> None:
    """Done or refused: after the log works again, a restart has what the server has. `accepted`:
    whether that is before the thread ends, or after."""
    kind, work = OPERATIONS[operation]
    log, engine, background, commands = opened(tmp_path)

    async def main() -> None:
        for name, key in ((b"large", "kept"), (b"source", "merged")):
            eagerly(commands.create(name, kind, capacity=8_000_000, error_rate=0.01, **KINDS[kind]))
            assert eagerly(commands.add(name, [key])) == (b"\x01", None)
        log.write(engine.end())
        task = asyncio.ensure_future(background.run([b"large", b"source"], lambda: work(commands)))
        while not background.is_locked([b"large"]) and not task.done():
            await asyncio.sleep(0)
        engine.refuse(errors.LogUnavailable("the disk is full"))
        if accepted == "before":
            engine.accept()
        outcome: Any
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        refused = isinstance(outcome, errors.BloomeryError)
        assert refused or not isinstance(outcome, BaseException), outcome
        engine.accept()
        log.write(engine.end())
        if refused:  # nobody was told that it is gone
            assert commands.contains(b"large", ["kept"]) == b"\x01"
        # Only what is new in memory goes into the log.
        assert eagerly(commands.add(b"large", ["kept", "merged", "added"]))[1] is None
        log.write(engine.end())

    asyncio.run(main())
    for entry in engine.state.filters.values():
        engine.state.count(entry)
    log.close()
    again = recover(tmp_path)
    assert again.problems == []
    assert_same(again.state, engine.state)
    entry = again.state.names[b"large"]
    assert all(key in entry.filter for key in ("kept", "merged", "added"))


def test_who_asks_waits_for_a_lock(tmp_path: Path) -> None:
    """Nothing comes between the commands of a transaction."""
    log, _, background, commands = opened(tmp_path)

    async def main() -> None:
        eagerly(commands.create(b"seen", "bloom", capacity=100, error_rate=0.01))
        add = partial(commands.change, commands.add, b"seen", ["a"])
        with background.lock({b"seen"}):
            asked = [
                asyncio.ensure_future(commands.read(b"seen", ["a"])),
                asyncio.ensure_future(commands.run([b"seen"], add)),
            ]
            for _ in range(10):
                await asyncio.sleep(0)
            assert not any(question.done() for question in asked)
        assert await asked[0] == b"\x00"
        assert await asked[1] == (b"\x01", None)

    asyncio.run(main())
    log.close()


def test_memory_of_a_large_layer_comes_from_a_thread(tmp_path: Path) -> None:
    """While the kernel makes it others are answered; the keys are in the layers in which they would
    be without, and a restart has the same bytes."""
    log, engine, background, commands = opened(tmp_path)
    settings: dict[str, Any] = {"capacity": 100_000, "error_rate": 0.01, "expansion": 20}
    plain = creation.create({"kind": "redisbloom", **settings}, engine.state.clock)
    waited = []

    async def main() -> None:
        eagerly(commands.create(b"large", "redisbloom", **settings))
        eagerly(commands.create(b"other", "bloom", capacity=100, error_rate=0.01))
        for start in range(0, 120_000, 250):
            keys = [b"%d" % number for number in range(start, start + 250)]
            add = partial(commands.add, b"large", keys)
            task = asyncio.ensure_future(background.run([b"large"], add))
            while not task.done():
                await asyncio.sleep(0)
                if background.is_locked([b"large"]) and not task.done():
                    assert commands.contains(b"other", ["a"]) == b"\x00"
                    waited.append(engine.state.names[b"large"].filter.num_layers)
            assert task.result()[1] is None
            for key in keys:
                plain.add(key)
            log.write(engine.end())

    asyncio.run(main())
    filter = engine.state.names[b"large"].filter
    assert filter.num_layers == 2
    assert set(waited) == {1}, "nobody waited for memory, or for more than that of the next layer"
    assert filter == plain
    for entry in engine.state.filters.values():
        engine.state.count(entry)
    log.close()
    assert_same(recover(tmp_path).state, engine.state)


def test_a_large_dump_begins_in_a_thread(tmp_path: Path) -> None:
    """Its first part is a checksum of all the others: the loop goes on while it is made."""
    log, engine, _, commands = opened(tmp_path)
    turns = 0

    async def main() -> bytes:
        nonlocal turns
        eagerly(commands.create(b"large", "bloom", capacity=80_000_000, error_rate=0.01))
        head = asyncio.ensure_future(commands.export_head(b"large"))
        while not head.done():
            turns += 1
            await asyncio.sleep(0)
        return await head

    assert asyncio.run(main()) == saved.head(engine.state.names[b"large"].filter)
    assert turns > 2
    log.close()
