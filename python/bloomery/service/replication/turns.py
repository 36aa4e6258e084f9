"""Turns of a node: what clients write in one round of the event loop is one entry of the shared
log, and is answered when that entry is applied here.

    connections ──join──> a turn ──end──> only asked: answered at once
                                   └────> wrote: one payload ──> the core ──> applied: answered
                                                                        └──> refused: an error
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bloomery import _native, errors
from bloomery.service.domain.operations import SINCE, Op
from bloomery.service.durability.log import Fsync, Row
from bloomery.service.engine import REFUSED, Engine, Outcome
from bloomery.service.group_commit import CommitWaiter, Turns

_CLOSING = 2.0  # seconds for what was sent to be answered


class NodeLog:
    """What `durability.log.Log` is to a server alone: a node has nothing on its disk."""

    fsync: Fsync = "never"
    seq = 0  # no snapshot of it is ever due
    segment = 0
    path = Path("redis")
    pending: tuple[()] = ()
    unfolded: str | None = None
    flushing = False

    def unsynced(self, now: float) -> float:
        """For how many seconds something has not been on the disk: nothing has to be."""
        return 0.0

    def write(self, rows: list[Row]) -> None:
        """Refuse: what a node writes is in the shared log."""
        raise errors.LogUnavailable("a node has no log of its own")

    def close(self) -> None:
        """Do nothing."""


class _Sent(NamedTuple):
    """A turn that is on its way to the log."""

    waiters: list[CommitWaiter]
    futures: list[_Expected]
    began: float


class _Expected(NamedTuple):
    """Who waits for the result of a record, or of some of its keys."""

    record: int
    keys: slice | None
    result: asyncio.Future[Any]

    def take(self, results: list[Any]) -> None:
        """Hand the result over."""
        if self.result.done():  # whoever waited has gone
            return
        value = results[self.record]
        if isinstance(value, Exception):
            self.result.set_exception(value)
        elif self.keys is None:
            self.result.set_result(value)
        else:
            answers, refusal = value
            own = answers[self.keys]
            self.result.set_result((own, refusal if REFUSED in own else None))


class SharedTurns(Turns):
    """The turns of a node."""

    def __init__(self, engine: Engine, send: Callable[[int, bytes, int], None]) -> None:
        """`send` hands a turn to the core, by a number (`applied` or `refused` has the same), with
        the version that a node must have to know it."""
        super().__init__(engine)
        self._send = send
        self._numbers = itertools.count(1)
        self._sent: dict[int, _Sent] = {}
        self._expected: list[_Expected] = []  # of the turn that goes on

    def note(self, op: Op, filter_id: int, data: bytes) -> asyncio.Future[Any]:
        """Let an operation be part of this turn; a future of its result."""
        self.join()
        record = self.engine.shelf.note(filter_id, op, data)
        return self._expect(record, None)

    def note_keys(self, name: bytes, op: Op, keys: Any) -> asyncio.Future[Outcome]:
        """Let keys be added or removed by this turn; a future of what becomes of each."""
        self.join()
        record, first, count = self.engine.shelf.defer(name, keys, op)
        return self._expect(record, slice(first, first + count))

    def _expect(self, record: int, keys: slice | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._expected.append(_Expected(record, keys, future))
        return future

    def _end(self) -> None:
        turn, self._turn, self._begun = self._turn, [], False
        expected, self._expected = self._expected, []
        rows = self.engine.end()
        if not rows:
            for waiter in turn:
                waiter.send()
            return
        held = [waiter for waiter in turn if waiter.wrote]
        for waiter in turn:
            if waiter.wrote:
                waiter.hold()
            else:
                waiter.send()
        number = next(self._numbers)
        self._sent[number] = _Sent(held, expected, time.monotonic())
        needs = max(SINCE.get(row[2], 1) for row in rows) if SINCE else 1
        self._send(number, _native.pack_records([row[1:] for row in rows]), needs)

    def applied(self, number: int, results: list[Any]) -> None:
        """Answer a turn: its entry is in the log, and has done this."""
        sent = self._sent.pop(number)
        self.latency.observe(time.monotonic() - sent.began)
        for one in sent.futures:
            one.take(results)
        for waiter in sent.waiters:
            waiter.answer(results)

    def refused(self, number: int, problem: errors.BloomeryError) -> None:
        """Tell the clients of a turn why it was not done, or that nobody knows."""
        sent = self._sent.pop(number)
        for one in sent.futures:
            if not one.result.done():
                one.result.set_exception(problem)
        for waiter in sent.waiters:
            waiter.release(problem)

    async def close(self) -> None:
        """Return when every turn was answered; those that take long with an error."""
        self.join()
        until = time.monotonic() + _CLOSING
        while self._begun or (self._sent and time.monotonic() < until):
            await asyncio.sleep(0.001)
        self.refuse_all(errors.StoreUnavailable("this node stops: it may be done, or not"))

    def refuse_all(self, problem: errors.BloomeryError) -> None:
        """Tell the clients of all turns that are on their way."""
        for number in list(self._sent):
            self.refused(number, problem)
