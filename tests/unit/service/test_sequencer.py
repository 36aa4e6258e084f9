"""The sequencer: which writes are one batch, when it goes to the log, and who is answered by it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.service.domain.operations import Conflict, Op, Record
from bloomery.service.domain.state import State
from bloomery.service.durability.no_log import NodeLog
from bloomery.service.engine import Engine
from bloomery.service.sequencer import Sequencer, Writer
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


class Client(Writer):
    """A connection that has written, and keeps what it is answered."""

    def __init__(self, *, writing: bool = True, broken: bool = False) -> None:
        self._writing, self._broken = writing, broken
        self.answers: list[Any] = []
        self.held = self.sends = 0

    @property
    def writing(self) -> bool:
        return self._writing

    def hold(self) -> None:
        self.held += 1

    def send(self) -> None:
        self.sends += 1

    def answer(self, results: list[Any]) -> None:
        if self._broken:
            raise RuntimeError("broken")
        self.answers.append(results)

    def fail(self, problem: errors.BloomeryError) -> None:
        self.answers.append(problem)


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


def test_a_client_that_only_read_is_answered_in_the_tick() -> None:
    """Its replies do not wait for the log."""

    async def main() -> None:
        log, reading, writing = SharedLog(), Client(writing=False), Client()
        log.add("a")
        for client in (reading, writing):
            log.sequencer.join(client)
        await tick()
        assert (reading.sends, reading.held) == (1, 0)
        assert (writing.sends, writing.held, writing.answers) == (0, 1, [])
        results = await log.apply()
        assert (reading.answers, writing.answers) == ([], [results])

    asyncio.run(main())


def test_a_client_of_two_ticks_is_answered_once() -> None:
    """Two of its commands ended while another batch was on its way. Answered twice, it would take
    the results of this batch for those of its later writes."""

    async def main() -> None:
        log, client = SharedLog(), Client()
        waiting = log.add("a")
        await tick()
        for _ in range(2):
            log.sequencer.join(client)
            await tick()
        waiting += log.add("b")
        await tick()
        await log.apply()
        assert client.answers == []
        results = await log.apply()
        assert client.answers == [results]
        assert await asyncio.gather(*waiting) == [(b"\1", None)] * 2

    asyncio.run(main())


def test_a_client_is_answered_by_the_batch_that_has_its_write() -> None:
    """Another of its commands, which wrote nothing, ends while its write is on its way. The next
    batch, of other clients, must not answer it."""

    async def main() -> None:
        log, client = SharedLog(), Client()
        waiting = log.add("a")
        log.sequencer.join(client)
        await tick()
        assert len(log.sent) == 1
        log.sequencer.join(client)  # the other command ends
        await tick()
        waiting += log.add("b")  # of another client
        first = await log.apply()
        assert client.answers == [first]
        await log.apply()
        assert client.answers == [first]
        assert await asyncio.gather(*waiting) == [(b"\1", None)] * 2

    asyncio.run(main())


def test_a_client_that_wrote_nothing_new_is_answered_without_a_batch() -> None:
    """No record was noted, so there is nothing to wait for."""

    async def main() -> None:
        log, client = SharedLog(), Client()
        log.sequencer.join(client)
        await tick()
        assert (client.held, client.answers, log.sent) == (1, [[]], [])

    asyncio.run(main())


def test_a_refused_batch_is_answered_with_the_error() -> None:
    """All that wait for it get it, nothing has changed, and the next batch goes to the log."""

    async def main() -> None:
        log, client = SharedLog(), Client()
        waiting = log.add("a", "b")
        log.sequencer.join(client)
        await log.next()
        later = log.add("c")
        await tick()
        problem = errors.StoreUnavailable("no quorum")
        log.refuse(problem)
        assert client.answers == [problem]
        for one in waiting:
            with pytest.raises(errors.StoreUnavailable, match="no quorum"):
                await one
        assert log.engine.shelf.contains(b"f", ["a", "b"]) == b"\0\0"
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


def test_a_client_that_fails_keeps_no_other_from_its_answer() -> None:
    """It gets an error that says that the write was applied."""

    async def main() -> None:
        log = SharedLog()
        broken, client = Client(broken=True), Client()
        waiting = log.add("a")
        for writer in (broken, client):
            log.sequencer.join(writer)
        results = await log.apply()
        assert client.answers == [results]
        (problem,) = broken.answers
        assert "the write was applied" in str(problem)
        await asyncio.gather(*waiting)

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
        log, client = SharedLog(), Client()
        (waiting,) = log.add("a")
        log.sequencer.join(client)
        await log.next()
        await log.sequencer.close()
        with pytest.raises(errors.StoreUnavailable, match="may be done or not"):
            await waiting
        assert len(client.answers) == 1
        assert log.sequencer.idle
        await log.apply()
        assert len(client.answers) == 1

    asyncio.run(main())
