"""The sequencer: which writes are one batch, when it goes to the log, and which clients it
answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from bloomery import BloomFilter, _native, errors
from bloomery.service.domain.operations import Conflict, Op, Record
from bloomery.service.domain.state import State
from bloomery.service.durability.no_log import NodeLog
from bloomery.service.engine import Engine
from bloomery.service.sequencer import Sequencer
from waiting import PATIENCE


class SharedLog:
    """A log as nodes have it: it accepts batches, and the test says when they are applied."""

    exclusive = False
    may_answer = True
    holds_lease = True

    def __init__(self, pace: float = 0.0) -> None:
        self.engine = Engine(State(), NodeLog())
        self.engine.shelf.put(b"f", BloomFilter(1000, seed=7), 1)
        self.sequencer = Sequencer(self.engine, self, pace)
        self.sent: list[tuple[int, list[Record], float]] = []  # number, records, when
        self.applied = 0  # batches
        self._came = asyncio.Event()

    def now(self) -> float:
        return 0.0

    def running(self) -> float:
        return 0.0

    def draw_number(self) -> int:
        return 7

    def check(self, op: Op) -> None: ...

    async def catch_up(self) -> None: ...

    async def finished(self, names: Iterable[bytes] | None = None) -> None:
        """Do nothing: no thread applies records."""

    def decide(self, op: Op, filter_id: int, data: bytes) -> None: ...

    def append(self, number: int, records: list[Record]) -> None:
        self.sent.append((number, records, asyncio.get_running_loop().time()))
        self._came.set()

    def add(self, *keys: str) -> list[asyncio.Task[Any]]:
        """As many clients as keys."""
        submit = self.sequencer.submit_keys
        return [asyncio.ensure_future(submit(b"f", Op.ADD, [key])) for key in keys]

    async def next(self) -> list[Record]:
        """Return the records of the next batch, when it is with the log."""
        while len(self.sent) <= self.applied:
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), PATIENCE)
        return self.sent[self.applied][1]

    async def apply(self) -> list[Any]:
        """Apply the next batch, and answer it; return the results."""
        results: list[Any] = []
        assert self.engine.shelf.apply(await self.next(), results, PATIENCE) is True
        self.answer(results)
        return results

    def answer(self, results: list[Any]) -> None:
        """Answer the next batch."""
        self.applied += 1
        self.sequencer.applied(self.sent[self.applied - 1][0], results)

    def refuse(self, problem: errors.BloomeryError) -> None:
        """Answer the next batch with an error."""
        self.applied += 1
        self.sequencer.refused(self.sent[self.applied - 1][0], problem)


class Clients:
    """Keeps what clients of the Redis protocol are answered: results or an error, and how many
    clients wait for them."""

    def __init__(self, log: SharedLog) -> None:
        self.log, self.answers = log, list[tuple[Any, int]]()
        self.sessions: list[_native.Session] = []
        log.sequencer.serve(self)

    def add(self, key: str) -> _native.Session:
        """A new client adds a key, as a worker does it: the sequencer is woken by a tick."""
        session = _native.Session(self.log.engine.shelf, len(self.sessions), 10, 100, 1000)
        assert session.feed(b"BF.ADD f %b\r\n" % key.encode()) is None
        self.sessions.append(session)
        self.log.sequencer.join()
        return session

    def answer(self, batch: int, results: list[Any], waiters: _native.Waiters) -> None:
        assert batch == self.log.sent[self.log.applied - 1][0]
        self.answers.append((results, len(waiters)))

    def fail(self, problem: errors.BloomeryError, waiters: _native.Waiters) -> None:
        self.answers.append((problem, len(waiters)))


async def tick() -> None:
    """Let the tick end."""
    for _ in range(3):
        await asyncio.sleep(0)


def keys_of(results: list[Any]) -> int:
    """Return how many keys a batch had."""
    return sum(len(answers) for answers, _ in results)


def test_writes_of_one_tick_are_one_batch() -> None:
    """Writes of the following ticks, while it is on its way, are the next."""

    async def main() -> None:
        log = SharedLog()
        waiting = log.add("a", "b")
        await tick()
        assert len(log.sent) == 1
        for key in ("c", "d", "e"):
            waiting += log.add(key)
            await tick()
        assert len(log.sent) == 1
        assert keys_of(await log.apply()) == 2
        assert keys_of(await log.apply()) == 3
        assert await asyncio.gather(*waiting) == [(b"\1", None)] * 5
        assert log.sequencer.idle

    asyncio.run(main())


def test_after_a_batch_of_many_clients_the_next_is_paced() -> None:
    """It is sent a moment later, with all that was written by then."""
    pace = 0.2  # longer than a busy machine takes for what follows

    async def main() -> None:
        log = SharedLog(pace)
        waiting = log.add(*map(str, range(20)))
        assert keys_of(await log.apply()) == 20
        waiting += log.add("a")
        await tick()
        waiting += log.add("b", "c")
        assert keys_of(await log.apply()) == 3
        (_, _, first), (_, _, second) = log.sent
        assert second - first >= pace
        assert await asyncio.gather(*waiting) == [(b"\1", None)] * 23

    asyncio.run(main())


def test_a_client_alone_is_not_delayed() -> None:
    """Its write is sent in the same tick, after each answer."""

    async def main() -> None:
        log = SharedLog(60.0)
        for number in range(5):
            (waiting,) = log.add(str(number))
            await tick()
            assert len(log.sent) == number + 1
            assert keys_of(await log.apply()) == 1
            assert await waiting == (b"\1", None)

    asyncio.run(main())


def test_clients_are_answered_by_the_batch_that_has_their_writes() -> None:
    """They write while another batch, with a write of a client, is on its way."""

    async def main() -> None:
        log = SharedLog()
        clients = Clients(log)
        clients.add("a")
        assert not log.sequencer.idle
        await tick()
        assert len(log.sent) == 1
        for key in ("b", "c"):
            clients.add(key)
            await tick()
        waiting = log.add("d")
        await tick()
        assert len(log.sent) == 1
        first = await log.apply()
        assert clients.answers == [(first, 1)]
        second = await log.apply()
        assert clients.answers == [(first, 1), (second, 2)]
        assert keys_of(second) == 3
        assert await asyncio.gather(*waiting) == [(b"\1", None)]
        assert log.sequencer.idle

    asyncio.run(main())


def test_batch_without_clients_answers_none() -> None:
    """A client that only reads is in no batch, and a batch of coroutines has no clients."""

    async def main() -> None:
        log = SharedLog()
        clients = Clients(log)
        reading = _native.Session(log.engine.shelf, 1, 10, 100, 1000)
        assert reading.feed(b"BF.EXISTS f a\r\n") is None
        log.sequencer.join()
        await tick()
        assert log.sent == []
        waiting = log.add("a")
        await log.apply()
        assert await asyncio.gather(*waiting) == [(b"\1", None)]
        assert clients.answers == []

    asyncio.run(main())


def test_barrier_waits_for_what_was_written_before_it() -> None:
    """Without records before it, it is passed at the end of the tick."""

    async def main() -> None:
        log = SharedLog()
        await asyncio.wait_for(log.sequencer.barrier(), PATIENCE)
        Clients(log).add("a")
        barrier = asyncio.ensure_future(log.sequencer.barrier())
        await log.next()
        assert not barrier.done()
        await log.apply()
        await asyncio.wait_for(barrier, PATIENCE)

    asyncio.run(main())


def test_many_clients_of_a_batch_pace_the_next() -> None:
    """Clients of the Redis protocol count as coroutines do."""
    pace = 0.2  # longer than a busy machine takes for what follows

    async def main() -> None:
        log = SharedLog(pace)
        clients = Clients(log)
        for n in range(8):
            clients.add(str(n))
        assert keys_of(await log.apply()) == 8
        clients.add("a")
        await log.apply()
        (_, _, first), (_, _, second) = log.sent
        assert second - first >= pace
        assert [count for _, count in clients.answers] == [8, 1]

    asyncio.run(main())


def test_a_refused_batch_is_answered_with_the_error() -> None:
    """All that wait for it get it, nothing has changed, and the next batch goes to the log."""

    async def main() -> None:
        log = SharedLog()
        clients = Clients(log)
        waiting = log.add("a", "b")
        clients.add("x")
        await log.next()
        later = log.add("c")
        await tick()
        problem = errors.StoreUnavailable("no quorum")
        log.refuse(problem)
        assert clients.answers == [(problem, 1)]
        for one in waiting:
            with pytest.raises(errors.StoreUnavailable, match="no quorum"):
                await one
        assert log.engine.shelf.contains(b"f", ["a", "b", "x"]) == b"\0\0\0"
        assert keys_of(await log.apply()) == 1
        assert await asyncio.gather(*later) == [(b"\1", None)]

    asyncio.run(main())


def test_keys_of_a_changed_filter_are_a_conflict() -> None:
    """The record is in the log, and another filter has the name: nothing was applied."""

    async def main() -> None:
        log = SharedLog()
        waiting = log.add("a")
        await log.next()
        log.engine.shelf.put(b"f", BloomFilter(1000), 2)
        assert await log.apply() == [None]
        with pytest.raises(Conflict, match="'f'"):
            await waiting[0]

    asyncio.run(main())


def test_result_of_a_thread_is_returned_when_it_exists() -> None:
    """The rest of the batch is answered before, and the next batch goes to the log."""

    async def main() -> None:
        log = SharedLog()
        submit, loop = log.sequencer.submit, asyncio.get_running_loop()
        later = log.add("a")
        values = [submit(op, 1, b"") for op in (Op.CLEAR, Op.COPY, Op.MERGE, Op.DROP)]
        assert len(await log.next()) == 5
        done, refused = loop.create_future(), loop.create_future()
        log.answer([done, "copied", refused, errors.FilterExists("b"), (b"\1", None)])
        assert await values[1] == "copied"
        with pytest.raises(errors.FilterExists):
            await values[3]
        assert await asyncio.gather(*later) == [(b"\1", None)]
        assert not values[0].done()
        assert not values[2].done()
        more = log.add("b")
        await log.apply()
        await asyncio.gather(*more)
        done.set_result("cleared")
        refused.set_exception(errors.IncompatibleFilters("c"))
        assert await values[0] == "cleared"
        with pytest.raises(errors.IncompatibleFilters):
            await values[2]

    asyncio.run(main())


def test_answers_of_one_record_are_divided() -> None:
    """Clients that add to one filter share a record. A refusal is for the client of that key."""

    async def main() -> None:
        log = SharedLog()
        submit = log.sequencer.submit_keys
        first = asyncio.ensure_future(submit(b"f", Op.ADD, ["a", "b"]))
        second = asyncio.ensure_future(submit(b"f", Op.ADD, ["c"]))
        third = asyncio.ensure_future(submit(b"f", Op.ADD, []))
        assert len(await log.next()) == 1
        full = ("filter-full", "it is full")
        log.answer([(b"\1\0\3", full)])
        assert await first == (b"\1\0", None)
        assert await second == (b"\3", full)
        assert await third == (b"", None)

    asyncio.run(main())


def test_a_client_that_has_gone_is_passed_over() -> None:
    """Its coroutine was cancelled while its write was on its way."""

    async def main() -> None:
        log = SharedLog()
        gone, stays = log.add("a", "b")
        await log.next()
        gone.cancel()
        await asyncio.wait([gone])
        await log.apply()
        assert await stays == (b"\1", None)

    asyncio.run(main())


def test_close_answers_a_batch_that_the_log_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node, whose log another process may hold up. A late answer is ignored."""
    monkeypatch.setattr("bloomery.service.sequencer._CLOSING", 0.05)

    async def main() -> None:
        log = SharedLog()
        clients = Clients(log)
        (waiting,) = log.add("a")
        clients.add("b")
        await log.next()
        await log.sequencer.close()
        with pytest.raises(errors.StoreUnavailable, match="may be done or not"):
            await waiting
        assert len(clients.answers) == 1
        assert log.sequencer.idle
        await log.apply()
        assert len(clients.answers) == 1

    asyncio.run(main())
