"""Turns: all that came in one round of the event loop is done, then logged in one commit, and only
then answered.

    connections ──join──> a turn ──end──> asked only: answered at once
                                   └────> wrote: held ──> next commit ──> answered, or an error

A commit is a write to the page cache, some 20 µs, and is done at once. While a snapshot is made, with
fsync="always", and for a while after one took long, the thread does it: what only asks goes on
meanwhile, and what writes goes into the next. (Always in the thread: on one core 0.79 of the time of
Redis's PING for an ADD, where it is 1.0 at once.)
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from bloomery import errors
from bloomery.service.engine import Engine
from bloomery.storage.log import Row

__all__ = ["Turns"]

_T = TypeVar("_T")
_QUICK = 0.002  # seconds: a commit that takes longer had to wait for the disk
_WARY = 10.0  # seconds: then the thread does it for so long


class Member(Protocol):
    """Who waits for the end of a turn."""

    @property
    def wrote(self) -> bool:
        """Is there a reply to a write among its replies?"""

    def hold(self) -> None:
        """Do nothing more until it is released: its replies so far wait for the log."""

    def send(self) -> None:
        """Let the replies go out."""

    def release(self, problem: errors.LogUnavailable | None) -> None:
        """Let the replies go out, those to writes as errors if there is a problem; and go on."""


class Turns:
    """The turns of a server, and the thread that writes its log."""

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self.engine = engine
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._turn: list[Member] = []
        self._begun = False
        self._noted: list[Row] = []  # what is to be logged, each with the time of its turn
        self._held: list[Member] = []  # for the next commit
        self._committing = False
        self.snapshot = False  # is one being made?
        self._slow_until = 0.0
        self._calls = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bloomery-log", daemon=True)
        self._thread.start()

    def join(self, member: Member | None = None) -> None:
        """Be part of this turn; a new one begins if there is none."""
        if not self._begun:
            self._begun = True
            self.engine.begin()
            self._loop.call_soon(self._end)
        if member is not None:
            self._turn.append(member)

    def _end(self) -> None:
        turn, self._turn, self._begun = self._turn, [], False
        self._noted += self.engine.end()
        for member in turn:
            if member.wrote:
                member.hold()
                self._held.append(member)
            else:
                member.send()
        self._commit()

    def _commit(self) -> None:
        """Hand what is noted to the thread, unless it is busy: then it comes with the next."""
        if self._committing:
            return
        rows, self._noted = self._noted, []
        held, self._held = self._held, []
        if not rows:
            # What changed nothing is not logged; but what it found may not be in the log either.
            for member in held:
                member.release(self.engine.problem)
            return
        self._committing = True
        began = time.monotonic()
        slow = self.snapshot or self.engine.log.fsync == "always" or began < self._slow_until
        if slow or self._calls:
            self._work.put(lambda: self._write_and_tell(rows, held))
            return
        problem = self._write(rows)
        if time.monotonic() - began > _QUICK:
            self._slow_until = began + _WARY
        self._committed(problem, held)

    def _write_and_tell(self, rows: list[Row], held: list[Member]) -> None:
        """Write the log, in the thread."""
        self._loop.call_soon_threadsafe(self._committed, self._write(rows), held)

    def _write(self, rows: list[Row]) -> errors.LogUnavailable | None:
        try:
            self.engine.log.write(rows)
        except errors.LogUnavailable as failure:
            return failure
        except Exception as failure:  # noqa: BLE001  # whatever it is, it was not written
            return errors.LogUnavailable(f"{type(failure).__name__}: {failure}")
        return None

    def _committed(self, problem: errors.LogUnavailable | None, held: list[Member]) -> None:
        self._committing = False
        if problem is not None:
            if self.engine.problem is None:
                self._say(f"the log cannot be written, writes are refused: {problem}")
            self.engine.refuse(problem)
        for member in held:
            member.release(self.engine.problem)
        self._commit()

    def call(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do something with the log that may take long, in the thread."""
        done: Future[_T] = Future()
        self._calls += 1  # until it is done, nobody else touches the log

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as problem:  # noqa: BLE001  # whoever waits is told
                done.set_exception(problem)

        self._work.put(run)
        waited = asyncio.wrap_future(done, loop=self._loop)
        waited.add_done_callback(self._called)
        return waited

    def _called(self, _: object) -> None:
        self._calls -= 1

    async def retry(self) -> bool:
        """Try to write what the log still lacks; True if writes are taken again."""
        written = self.engine.problem is not None and await self.call(self.engine.log.retry)
        if written and not self.engine.log.pending:  # another commit may have failed since
            self.engine.accept()
        return self.engine.problem is None and written

    async def close(self) -> None:
        """Return when everything that was noted is written, or could not be."""
        self.join()
        while self._begun or self._committing:
            await asyncio.sleep(0.001)

    def stop(self) -> None:
        """End the thread, behind all that was asked of it."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
