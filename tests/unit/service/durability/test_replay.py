"""A replay of the log leads to the memory that the server had, whatever the time was when a record
was decided, written and applied."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest

from bloomery import errors
from bloomery.service.clock import Clock
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.engine import NO_ROOM, Engine
from unit.service.driven import Driven
from unit.service.durability.serving import NOW, SETTINGS, assert_same, hashes, packed, replay_rows
from waiting import PATIENCE, wait_until_async

LARGE = 6_000_000  # keys: a thread works on such a filter
STEP = 500_000  # keys that are added at once


class Timed(Driven):
    """Filters with their log, and a clock that a test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        super().__init__(folder, Clock(0.0, lambda: self.now, lambda: self.now))
        self.commands = Commands(self.engine, Settings())

    def assert_replay_is_same(self) -> None:
        """A replay of the log has the same filters, byte for byte."""
        state = self.replayed_state()
        for entry in self.engine.state.filters.values():
            self.engine.state.count(entry)
        assert_same(state, self.engine.state)


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Timed]:
    """One without filters."""
    made = Timed(tmp_path)
    yield made
    made.close()


def test_keys_that_wait_for_the_disk_are_added_at_the_time_of_their_batch(timed: Timed) -> None:
    """A generation ends between the command and the moment at which the log has it."""

    async def main() -> None:
        await timed.commands.create(b"x", "rotating", capacity=100, window=60, generations=3)
        await timed.commands.add(b"x", ["before"])
        timed.now += 19.9
        late = True
        timed.batches._log.is_late = lambda now: late  # type: ignore[method-assign]
        adding = asyncio.ensure_future(timed.commands.add(b"x", ["key"]))
        assert await wait_until_async(lambda: timed.batches._waiting is not None)
        timed.now += 0.2
        late = False
        timed.batches.flushed()
        await adding

    timed.run(main())
    timed.tick()
    timed.assert_replay_is_same()


class Gate:
    """Long work that waits, in its thread, until the test opens the gate."""

    def __init__(self, filter: Any) -> None:
        self._clear = filter.clear
        self.started, self.opened = threading.Event(), threading.Event()

    def clear(self) -> None:
        self.started.set()
        assert self.opened.wait(PATIENCE)
        self._clear()


def test_records_that_wait_for_a_thread_are_applied_at_the_time_of_their_batch(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread clears a rotating filter; keys and a copy in the same batch wait for it. In the
    meantime a generation ends, and other filters are written."""

    async def main() -> None:
        commands = timed.commands
        entry = await commands.create(
            b"x", "rotating", capacity=LARGE, error_rate=0.01, window=60, generations=3
        )
        await commands.create(b"other", "bloom", capacity=100)
        gate = Gate(entry.filter)
        monkeypatch.setattr(type(entry.filter), "clear", lambda filter: gate.clear())
        timed.now += 10
        writes = [
            asyncio.ensure_future(commands.clear(b"x")),
            asyncio.ensure_future(commands.add(b"x", ["key"])),
            asyncio.ensure_future(commands.copy(b"x", b"y")),
        ]
        assert await wait_until_async(gate.started.is_set)
        timed.now += 15
        await commands.add(b"other", ["key"])
        gate.opened.set()
        await asyncio.gather(*writes)

    timed.run(main())
    monkeypatch.undo()
    timed.tick()
    timed.assert_replay_is_same()


Written: TypeAlias = tuple[float, int, int, bytes]  # time, filter, operation, data


def created(number: int, name: bytes, kind: str, **settings: Any) -> Written:
    """A record that creates a filter."""
    fields = operations.fields(settings={"kind": kind, **SETTINGS[kind], **settings})
    return NOW, number, Op.CREATE, operations.named(name, fields)


def applied_one_by_one(rows: list[Written]) -> State:
    """The filters after these records, each applied as it is live."""
    state = State()
    for at, filter_id, op, data in rows:
        with contextlib.suppress(errors.BloomeryError):  # refused
            state.apply(op, filter_id, data, at)
    return state


@pytest.mark.parametrize("kind", SETTINGS)
def test_records_of_keys_can_be_joined(kind: str) -> None:
    """Records of one key each, which a replay joins, come to the same as one by one."""
    rows = [created(1, b"x", kind)]
    for number in range(400):
        keys = hashes(number, 1 + number % 3, kind)
        rows.append((NOW + number, 1, Op.ADD, operations.named(b"x", keys)))
    joined = State()
    assert replay_rows(rows, joined) == []
    assert_same(joined, applied_one_by_one(rows))
    assert joined.now == NOW + 399


@pytest.mark.parametrize("seed", range(3))
def test_replay_of_many_filters_is_the_same_as_one_by_one(seed: int) -> None:
    """Native code applies runs of keys between operations that change the filters as a whole."""
    random = Random(seed)
    kinds = [*SETTINGS, *SETTINGS, "bloom", "cuckoo"]
    rows = [created(number, b"%d" % number, kind) for number, kind in enumerate(kinds, 1)]
    full = len(kinds) + 1
    rows.append(created(full, b"full", "bloom", on_full="reject", capacity=30))
    names = {number: b"%d" % number for number in range(1, full)} | {full: b"full"}
    key_ops = (Op.ADD, Op.ADD, Op.ADD, Op.ADD_NEW, Op.REMOVE, Op.ADD_IN_PLACE, Op.ADD_NEW_IN_PLACE)
    for step in range(3000):
        number = random.choice([*names])
        kind = kinds[number - 1] if number < full else "bloom"
        op: Op = random.choice(key_ops)
        body = hashes(random.randrange(200), random.choice((1, 1, 3, 20)), kind)
        name = names[number]
        if random.random() < 0.05:
            op = random.choice((Op.CLEAR, Op.RENAME, Op.EXPIRE, Op.ROTATE, Op.COPY))
            body = b""
        if op == Op.RENAME:
            names[number] = b"new %d" % step
            body = operations.fields(to=f"new {step}", replace=False)
        elif op == Op.EXPIRE:
            body = operations.fields(at=NOW + 10_000)
        elif op == Op.COPY:
            body = operations.fields(source=number, of=name.decode(), replace=False)
            number, name = 1000 + step, b"copy %d" % step
        rows.append((NOW + step, number, op, operations.named(name, body)))
    state = State()
    assert replay_rows(rows, state) == []
    assert_same(state, applied_one_by_one(rows))
    assert any(entry.name.startswith(b"copy") for entry in state.filters.values())


def test_refused_records_are_not_problems_and_damaged_records_are() -> None:
    """The server refused some: a replay refuses them too. What it never wrote is damage."""
    create = operations.fields(settings={"kind": "bloom", **SETTINGS["bloom"]})
    one = operations.named(b"one", create)
    refused: list[Written] = [
        (NOW, 1, Op.CREATE, one),
        (NOW, 2, Op.CREATE, one),  # the name is taken
        (NOW, 1, Op.ROTATE, operations.named(b"one")),
        (NOW, 1, Op.ADD, operations.named(b"renamed", packed(7))),
        (NOW, 1, Op.REMOVE, operations.named(b"one", packed(7))),
    ]
    state = State()
    assert replay_rows(refused, state) == []
    assert [entry.items for entry in state.filters.values()] == [0]
    damaged: list[Written] = [
        (NOW, 9, Op.ADD, operations.named(b"nine", packed(7))),  # it was never created
        (NOW, 1, Op.EXPIRE, operations.named(b"one", b"{}")),
        (NOW, 1, Op.RENAME, operations.named(b"one", b"[]")),
        (NOW, 1, Op.ADD, operations.named(b"one", packed(7)[:-1])),
        (NOW, 1, Op.ADD, operations.named(b"one", packed(8))),
        (NOW, 1, Op.ADD, operations.named(b"one", packed(7)[:-1])),
        (NOW, 1, Op.ADD, b"\xff\xff"),
        (NOW, 1, 99, b""),
    ]
    assert replay_rows(damaged, state) == [
        "an operation on filter number 9 cannot be applied: filter number 9 does not exist",
        "6 more operations cannot be applied",
    ]
    assert state.filters[1].items == 1


def test_log_of_a_newer_version_is_named_as_such() -> None:
    """The advice is to upgrade, whatever the record looks like."""
    problems = replay_rows([(NOW, 1, 99, b"\xff\xff")], State())
    assert ["a newer version of bloomery wrote it" in problem for problem in problems] == [True]


async def nearly_full(engine: Engine, name: bytes) -> int:
    """Add keys until more of them make a filter grow; return how many it has."""
    start = 0
    while not engine.shelf.needs_room(name, STEP):
        await engine.submit_keys(name, Op.ADD, np.arange(start, start + STEP))
        start += STEP
    return start


def test_successor_gets_the_keys_with_which_a_large_filter_grows(timed: Timed) -> None:
    """A thread adds them to the filter. If its successor lacked them, it would deny them later."""

    async def main() -> None:
        engine = timed.engine
        entry = await timed.commands.create(b"x", "scalable", capacity=LARGE, error_rate=0.01)
        start = await nearly_full(engine, b"x")
        new = await timed.commands.create(b"new", "scalable", capacity=1000, error_rate=0.01)
        await engine.follow(entry, new)
        keys = np.arange(start, start + STEP)
        adding = asyncio.ensure_future(engine.submit_keys(b"x", Op.ADD, keys))
        assert await wait_until_async(lambda: engine.locks.is_locked([b"x"]) or adding.done())
        assert engine.locks.is_locked([b"x"]), "no thread adds them"
        await adding
        await engine.succeed(entry, new.id)
        assert timed.commands.contains(b"x", keys).count(1) == STEP

    timed.run(main())
    timed.tick()
    timed.assert_replay_is_same()


def test_keys_for_a_successor_that_grows_wait_for_the_thread(timed: Timed) -> None:
    """A rebuild adds keys with which the successor grows; a client then adds one to the filter."""

    async def main() -> None:
        engine = timed.engine
        entry = await timed.commands.create(b"x", "scalable", capacity=1000, error_rate=0.01)
        new = await timed.commands.create(b"new", "scalable", capacity=LARGE, error_rate=0.01)
        await engine.follow(entry, new)
        start = await nearly_full(engine, b"new")
        opened = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            timed.loop.set_default_executor(thread)
            thread.submit(opened.wait, PATIENCE)
            growing = asyncio.ensure_future(
                engine.submit_keys(b"new", Op.ADD, np.arange(start, start + STEP))
            )
            assert await wait_until_async(lambda: engine.locks.is_locked([b"new"]))
            adding = asyncio.ensure_future(engine.submit_keys(b"x", Op.ADD, ["key"]))
            assert await wait_until_async(lambda: engine.locks.is_locked([b"x"]) or adding.done())
            assert not adding.done()
            opened.set()
            await asyncio.gather(growing, adding)
        assert timed.commands.contains(b"new", ["key"]) == b"\x01"

    timed.run(main())
    timed.loop.set_default_executor(ThreadPoolExecutor(1))
    timed.tick()
    timed.assert_replay_is_same()


GROWING: dict[str, dict[str, Any]] = {
    "scalable": {"capacity": 20, "error_rate": 0.001},
    "cuckoo": {"capacity": 20, "error_rate": 0.001, "grow": True},
    "bank": {"capacity": 20, "error_rate": 0.001},
    "redisbloom": {"capacity": 20, "error_rate": 0.001, "expansion": 2},
    "rediscuckoo": {"capacity": 20, "expansion": 2},
}


@pytest.mark.parametrize("kind", GROWING)
def test_keys_without_memory_are_refused_and_the_server_continues(timed: Timed, kind: str) -> None:
    """Only new keys are refused, those that are stored are found after a replay, and when there is
    memory again all keys are accepted."""
    keys = [f"{number % 40}\t{number}" for number in range(50_000)]

    async def main() -> None:
        commands = timed.commands
        await commands.create(b"x", kind, **GROWING[kind])
        await commands.add(b"x", keys[:10])
        timed.engine.set_memory_limit(1)
        answers, refused = await commands.add(b"x", keys)
        assert refused is None
        assert NO_ROOM in answers
        stored = [key for key, answer in zip(keys, answers, strict=True) if answer != NO_ROOM]
        if kind != "rediscuckoo":  # it would store another copy
            assert set(keys[:10]) <= set(stored)
        assert all(commands.contains(b"x", stored))
        timed.engine.set_memory_limit(0)
        assert NO_ROOM not in (await commands.add(b"x", keys))[0]

    timed.run(main())
    assert timed.engine.problem is None
    timed.assert_replay_is_same()
