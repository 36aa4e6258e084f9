"""The control plane's side of the sequencer, the only way into the log. Workers and commands add
records to the next batch. The holder of the role appends it to the log, applies it in the order of
the log, and then answers. A worker takes the role for short batches of keys
(`crates/server/src/sequencer.rs`). This module takes it at the end of a tick for all others.

    workers ──write──> ┌───────┐
                       │ batch │ ──append──> log ──apply──> results ──> workers, coroutines
    commands ─submit─> └───────┘                └──> error: nothing was applied

One batch is on its way at a time. All writes in the meantime, in any number of ticks, become the
next batch.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, NamedTuple, Protocol

from bloomery import _native, errors
from bloomery.service.domain.operations import Conflict, Op, quoted
from bloomery.service.engine import REFUSED, BatchLog, Engine, Outcome

_CROWD = 8  # clients of one batch; fewer never wait for others
_CLOSING = 2.0  # seconds for batches on their way when the server stops


class Clients(Protocol):
    """The clients of the Redis protocol, whose writes native code collects."""

    def answer(self, batch: int, results: list[Any], waiters: _native.Waiters) -> None:
        """Reply with the results of a batch."""

    def fail(self, problem: errors.BloomeryError, waiters: _native.Waiters) -> None:
        """Reply with an error to the writes."""


class _Expected(NamedTuple):
    """A coroutine that waits for the result of a record, or of some of its keys."""

    record: int
    keys: slice | None
    result: asyncio.Future[Any]

    def take(self, results: list[Any]) -> None:
        if self.result.done():  # its client has gone
            return
        value = results[self.record]
        if isinstance(value, asyncio.Future):
            value.add_done_callback(self._follow)
        elif isinstance(value, Exception):
            self.result.set_exception(value)
        elif self.keys is None or value is None:
            self.result.set_result(value)
        else:
            answers, refusal = value
            own = answers[self.keys]
            self.result.set_result((own, refusal if REFUSED in own else None))

    def _follow(self, done: asyncio.Future[Any]) -> None:
        """Take the result of work that a thread did."""
        value = done.exception() or done.result()
        _Expected(0, self.keys, self.result).take([value])


class _Batch(NamedTuple):
    """A batch on its way."""

    waiters: _native.Waiters
    expected: list[_Expected]
    barriers: list[asyncio.Future[None]]
    since: float

    def pass_barriers(self) -> None:
        """Continue the coroutines that wait until everything before them is applied."""
        for barrier in self.barriers:
            if not barrier.done():
                barrier.set_result(None)


class Sequencer:
    """Takes batches of records, and returns their results to the clients that wait."""

    def __init__(self, engine: Engine, log: BatchLog, pace: float = 0.0) -> None:
        """`pace`: seconds between two batches of many clients, so that the next can become as
        large: on nodes a batch costs Redis and every node the same with one key or a hundred."""
        self.engine = engine
        self.latency = engine.shelf.batch_latency
        self.late_since: float | None = None  # replies wait for the disk, since then
        self.delayed = 0  # how often that happened
        self._log, self._pace = log, pace
        self._loop = asyncio.get_running_loop()
        self._clients: Clients | None = None
        self._open = False  # a tick is under way
        self._numbers = itertools.count(1)
        self._batch: tuple[int, _Batch] | None = None
        # Of the next batch.
        self._expected: list[_Expected] = []
        self._barriers: list[asyncio.Future[None]] = []
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        engine.connect(self, log)
        engine.on_tick.subscribe(self._begin)

    def serve(self, clients: Clients) -> None:
        """Answer these clients."""
        self._clients = clients

    # Ticks.

    def _begin(self) -> None:
        if not self._open:
            self._open = True
            self._loop.call_soon(self._end)

    def join(self) -> None:
        """Take part in this tick; start one if there is none."""
        if not self._open:
            self._begin()
            self.engine.begin()

    def _end(self) -> None:
        """End the tick, and start the next batch."""
        self._open = False
        self.engine.end()
        self.engine.on_applied()
        self._start_next()

    # Records.

    def submit(self, op: Op, filter_id: int, data: bytes) -> asyncio.Future[Any]:
        """Put an operation into the next batch; return a future of its result."""
        self.join()
        return self._expect(self.engine.shelf.note(filter_id, op, data), None)

    async def submit_keys(self, name: bytes, op: Op, keys: Any) -> Outcome:
        """Put keys into the next batch; return a byte for each when they are applied."""
        self.join()
        count, noted = self.engine.shelf.note_keys(name, keys, op)
        if noted is None:  # all of them are present
            return bytes(count), None
        record, first = noted
        outcome: Outcome | None = await self._expect(record, slice(first, first + count))
        if outcome is None:
            raise Conflict(f"another command changed filter {quoted(name)} first; retry")
        return outcome

    async def barrier(self) -> None:
        """Return when everything that was submitted before is applied, or refused."""
        self.join()
        barrier: asyncio.Future[None] = self._loop.create_future()
        self._barriers.append(barrier)
        await barrier

    def _expect(self, record: int, keys: slice | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._expected.append(_Expected(record, keys, future))
        return future

    # Batches.

    def _start_next(self) -> None:
        """Hand the next batch to the log, unless one is on its way."""
        if self._batch is not None or self._open:
            return
        now = time.monotonic()
        if now < self._next_at:
            if self._timer is None:
                self._timer = self._loop.call_later(self._next_at - now, self._pass)
            return
        shelf = self.engine.shelf
        if not shelf.begin_batch():
            return  # a worker has the role, and wakes this loop when it releases it
        records, waiters = shelf.take_log()
        expected, self._expected = self._expected, []
        barriers, self._barriers = self._barriers, []
        batch = _Batch(waiters, expected, barriers, now)
        if not records:
            shelf.end_batch()
            batch.pass_barriers()
            if shelf.pending:  # written while this had the role
                self.join()
            return
        number = next(self._numbers)
        self._batch = number, batch
        if self._pace and len(expected) + len(waiters) >= _CROWD:
            self._next_at = now + self._pace
        self._log.append(number, records)

    def adopt(self, waiters: _native.Waiters) -> int:
        """Register a batch that a worker has started, with the role; return its number."""
        number = next(self._numbers)
        self._batch = number, _Batch(waiters, [], [], time.monotonic())
        return number

    def _pass(self) -> None:
        self._timer = None
        self._start_next()

    def applied(self, number: int, results: list[Any]) -> None:
        """Answer a batch: the log has it, and these are the results of its records."""
        batch = self._take(number)
        if batch is None:
            return
        self.latency.observe(time.monotonic() - batch.since)
        self.engine.on_applied()
        for expected in batch.expected:
            expected.take(results)
        batch.pass_barriers()
        try:
            if self._clients is not None and len(batch.waiters):
                self._clients.answer(number, results, batch.waiters)
        finally:
            self._start_next()

    def refused(self, number: int, problem: errors.BloomeryError) -> None:
        """Answer a batch with an error: the log does not have it, or that is unknown."""
        batch = self._take(number)
        if batch is None:
            return
        for expected in batch.expected:
            if not expected.result.done():
                expected.result.set_exception(problem)
        batch.pass_barriers()
        if self._clients is not None and len(batch.waiters):
            self._clients.fail(problem, batch.waiters)
        self._start_next()

    def _take(self, number: int) -> _Batch | None:
        if self._batch is None or self._batch[0] != number:
            return None  # it was answered when the server stopped
        batch, self._batch = self._batch[1], None
        self.engine.shelf.end_batch()
        return batch

    @property
    def idle(self) -> bool:
        """Whether everything that was submitted is answered."""
        shelf = self.engine.shelf
        return not (self._open or self._expected or shelf.pending or shelf.sequencing)

    async def close(self) -> None:
        """Return when every batch is answered; batches that take long get an error."""
        self.join()
        until = time.monotonic() + _CLOSING
        while not self.idle and (self._log.exclusive or time.monotonic() < until):
            await asyncio.sleep(0.001)
        self.refuse_all(errors.StoreUnavailable("the server stops; the write may be done or not"))

    def refuse_all(self, problem: errors.BloomeryError) -> None:
        """Answer the batch on its way with an error."""
        if self._batch is not None:
            self.refused(self._batch[0], problem)
