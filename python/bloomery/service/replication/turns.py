"""Turns of a node: what clients write in one round of the event loop is one entry of the shared
log, and is answered when that entry is applied here.

    connections ──join──> a turn ──end──> only asked: answered at once
                                   └────> wrote: one payload ──> the core ──> applied: answered
                                                                        └──> refused: an error

One payload is on its way at a time. What is written meanwhile, in however many rounds, is the next.
After one of many clients the next has a moment to become as large: an entry costs Redis and every
node about the same with one key or a hundred.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bloomery import _native, errors
from bloomery.service.domain.operations import SINCE, Op, Record
from bloomery.service.engine import REFUSED, Engine, Outcome
from bloomery.service.group_commit import CommitWaiter, Turns, take_waiters
from bloomery.service.observe import logs
from bloomery.service.replication.cuts import MOST, CutTurn

_CLOSING = 2.0  # seconds for what was sent to be answered
_CROWD = 8  # clients of one entry: one that waits for each answer is never held up
_PACE = 0.001  # seconds from the entry of a crowd to the next, at least


class _Sent(NamedTuple):
    """A turn that is on its way to the log."""

    waiters: dict[CommitWaiter, None]
    futures: list[_Expected]
    began: float
    cut: CutTurn | None  # if it is more than one entry


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


def _needs(records: list[Record]) -> int:
    """The version that a node must have to know these operations."""
    return max(SINCE.get(op, 1) for _, op, _ in records) if SINCE else 1


class SharedTurns(Turns):
    """The turns of a node."""

    def __init__(self, engine: Engine, send: Callable[[int, bytes, int], None]) -> None:
        """`send` hands a turn to the core, by a number (`applied` or `refused` has the same), with
        the version that a node must have to know it."""
        super().__init__(engine)
        self._send = send
        self._numbers = itertools.count(1)
        self._sent: dict[int, _Sent] = {}
        # Of what is noted and was not sent yet.
        self._held: dict[CommitWaiter, None] = {}  # each once
        self._expected: list[_Expected] = []
        self._next_at = 0.0  # when it may be sent
        self._timer: asyncio.TimerHandle | None = None

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

    def logging(self) -> asyncio.Future[None]:
        """Return a future that is done: who was told the result of an operation knows that the log
        has it."""
        future = self._loop.create_future()
        future.set_result(None)
        return future

    def _end(self) -> None:
        turn, self._turn, self._begun = self._turn, [], False
        self.engine.end()
        for waiter in take_waiters(turn):
            if waiter.wrote:
                waiter.hold()
                # Not with the next entry too, which has nothing of it: answered by that as well, it
                # would take its results for those of what it writes until then.
                if not any(waiter in sent.waiters for sent in self._sent.values()):
                    self._held[waiter] = None
            else:
                waiter.send()
        self._send_next()

    def _send_next(self) -> None:
        """Send what was noted, unless something is on its way: then more is noted meanwhile, and
        all of it is the next entry."""
        if self._sent or self._begun:  # in a turn that goes on, more is noted: its end sends it
            return
        now = time.monotonic()
        if now < self._next_at and (self._held or self._expected):
            if self._timer is None:
                self._timer = self._loop.call_later(self._next_at - now, self._go_on)
            return
        records = self.engine.shelf.take_log()
        held, self._held = self._held, {}
        expected, self._expected = self._expected, []
        if not records:
            for waiter in held:
                waiter.release(None)
            return
        number, payload = next(self._numbers), _native.pack_records(records)
        cut = CutTurn(records) if len(payload) > MOST else None
        self._sent[number] = _Sent(held, expected, now, cut)
        if len(held) + len(expected) >= _CROWD:
            self._next_at = now + _PACE
        if cut is None:
            self._send(number, payload, _needs(records))
        else:
            self._send_part(number, cut)

    def _send_part(self, number: int, cut: CutTurn) -> bool:
        """Send the next part of a turn; False if there is none."""
        records = cut.next()
        if records is not None:
            self._send(number, _native.pack_records(records), _needs(records))
        return records is not None

    def _go_on(self) -> None:
        self._timer = None
        self._send_next()

    def applied(self, number: int, results: list[Any]) -> None:
        """Answer a turn: its entry is in the log, and has done this."""
        cut = self._sent[number].cut
        if cut is not None:
            cut.take(results)
            if self._send_part(number, cut):
                return
            results = cut.results()
        sent = self._sent.pop(number)
        self.latency.observe(time.monotonic() - sent.began)
        for expected in sent.futures:
            expected.take(results)
        for waiter in sent.waiters:
            try:
                waiter.answer(results)
            except Exception as problem:  # noqa: BLE001  # the others wait too
                logs.tell("a client was not answered", level="error", problem=problem)
                waiter.release(errors.ServerUnavailable("an error of the server: it is done"))
        self._send_next()

    def refused(self, number: int, problem: errors.BloomeryError) -> None:
        """Tell the clients of a turn why it was not done, or that nobody knows."""
        sent = self._sent.pop(number)
        if sent.cut is not None and sent.cut.is_begun:
            problem = errors.StoreUnavailable(f"{problem}: some of it may be done")
        for expected in sent.futures:
            if not expected.result.done():
                expected.result.set_exception(problem)
        for waiter in sent.waiters:
            waiter.release(problem)
        self._send_next()

    async def close(self) -> None:
        """Return when every turn was answered; those that take long with an error."""
        self.join()
        until = time.monotonic() + _CLOSING
        while self._begun or ((self._sent or self._held) and time.monotonic() < until):
            await asyncio.sleep(0.001)
        self.refuse_all(errors.StoreUnavailable("this node stops: it may be done, or not"))

    def refuse_all(self, problem: errors.BloomeryError) -> None:
        """Tell the clients of all turns that are on their way."""
        for number in list(self._sent):
            self.refused(number, problem)
