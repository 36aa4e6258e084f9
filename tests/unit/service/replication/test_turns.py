"""Turns of a node: which writes are one entry of the shared log."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bloomery import BloomFilter, _native, errors
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.durability.no_log import NodeLog
from bloomery.service.engine import Engine
from bloomery.service.group_commit import CommitWaiter
from bloomery.service.replication import turns
from bloomery.service.replication.turns import SharedTurns


class Sent:
    """What turns send, with when that was; it stands for the log, which has it at once."""

    def __init__(self) -> None:
        engine = Engine(State(), NodeLog())
        engine.shared = cast("Any", self)  # nothing is asked of it here
        engine.shelf.deferring = True
        engine.shelf.put(b"f", BloomFilter(1000, seed=7), 1)
        self.turns = SharedTurns(engine, self._take)
        self.entries: list[tuple[int, int, float]] = []  # number, keys, when
        self._came = asyncio.Event()

    def _take(self, number: int, payload: bytes, needs: int) -> None:
        ((_, _, data),) = _native.unpack_records(payload)
        self.entries.append((number, len(data) // 8, asyncio.get_running_loop().time()))
        self._came.set()

    def add(self, *keys: str) -> list[asyncio.Future[Any]]:
        """As many clients as keys."""
        return [self.turns.note_keys(b"f", Op.ADD, [key]) for key in keys]

    async def next(self) -> int:
        """The keys of the next entry, which is answered."""
        await asyncio.wait_for(self._came.wait(), 10)
        self._came.clear()
        number, keys, _ = self.entries[-1]
        self.turns.applied(number, [(b"\1" * keys, None)])
        return keys


def test_after_an_entry_of_many_clients_the_next_is_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is sent a moment later, with all that came by then."""
    monkeypatch.setattr(turns, "_PACE", 0.2)  # longer than a busy machine takes for what follows

    async def check() -> None:
        sent = Sent()
        waiting = sent.add(*map(str, range(20)))
        assert await sent.next() == 20
        waiting += sent.add("a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting += sent.add("b", "c")
        assert await sent.next() == 3
        (_, _, first), (_, _, second) = sent.entries
        assert second - first >= 0.2
        assert await asyncio.gather(*waiting) == [(b"\1", None)] * 23

    asyncio.run(check())


def test_a_client_alone_is_not_held_up() -> None:
    """What it writes is sent in the same turn, after each answer."""

    async def check() -> None:
        sent = Sent()
        for number in range(5):
            sent.add(str(number))
            await asyncio.sleep(0)
            assert len(sent.entries) == number + 1
            assert await sent.next() == 1

    asyncio.run(check())


class Writer:
    """A client that has written, and counts how often it is answered."""

    wrote = True

    def __init__(self) -> None:
        self.answers = 0

    def take_waiters(self) -> tuple[CommitWaiter]:
        return (self,)

    def hold(self) -> None: ...

    def send(self) -> None: ...

    def release(self, problem: errors.BloomeryError | None) -> None: ...

    def answer(self, results: list[Any]) -> None:
        self.answers += 1


def test_a_client_of_two_rounds_is_answered_once() -> None:
    """Two commands of it have ended while another entry was on its way: answered twice, it would
    take the results of this entry for those of what it writes between the two."""

    async def check() -> None:
        sent, writer = Sent(), Writer()
        waiting = sent.add("a")
        await asyncio.sleep(0)
        for _ in range(2):
            sent.turns.join(writer)
            await asyncio.sleep(0)
        waiting += sent.add("b")
        assert await sent.next() == 1
        assert writer.answers == 0
        assert await sent.next() == 1
        assert writer.answers == 1
        assert await asyncio.gather(*waiting) == [(b"\1", None)] * 2

    asyncio.run(check())


def test_a_client_is_answered_by_the_entry_that_has_its_write() -> None:
    """A command of it, which wrote nothing, has ended while its write was on its way: the next
    entry, of other clients, would have answered what it writes by then, which no log has."""

    async def check() -> None:
        sent, writer = Sent(), Writer()
        waiting = sent.add("a")
        sent.turns.join(writer)
        await asyncio.sleep(0)
        assert len(sent.entries) == 1
        sent.turns.join(writer)  # the other command ends
        await asyncio.sleep(0)
        waiting += sent.add("b")  # of somebody else
        assert await sent.next() == 1
        assert writer.answers == 1
        assert await sent.next() == 1
        assert writer.answers == 1
        assert await asyncio.gather(*waiting) == [(b"\1", None)] * 2

    asyncio.run(check())
