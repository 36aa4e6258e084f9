"""Group commit: all that came in one round of the event loop (a turn) is done, then written to the
log in one commit, and only then answered.

    connections ──join──> a turn ──end──> asked only: answered at once
                                   └────> wrote: held ──> next commit ──> answered, or an error

A commit is a write to the page cache and is done at once. While a snapshot is made, with
fsync="always", and for a while after one took long, a thread does it: what only asks goes on
meanwhile, and what writes goes into the next. On one core the thread costs: an ADD without a
pipeline reached 0.79 of Redis's PING with it, 0.85 and more without.

If the disk does not follow (`Log.is_late`), what was written is held until it does, and only then
committed and answered; what only asks goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, Protocol, TypeVar, cast

from bloomery import errors
from bloomery._native import Histogram
from bloomery.service.durability.log import Log, Row
from bloomery.service.engine import Engine
from bloomery.service.observe import logs

_T = TypeVar("_T")
_QUICK = 0.005  # seconds: a commit that takes longer had to wait for the disk
_AFTER_SNAPSHOT = 30.0  # seconds: a commit of 150 ms was seen 4 s after one
_LARGE = 256 << 10  # bytes of a commit: writing more takes a millisecond and more
_WARY = 3.0  # seconds: then the thread does it for so long


class TurnMember(Protocol):
    """What is told of the end of a turn."""

    def take_waiters(self) -> Iterable[CommitWaiter]:
        """What waits: itself, or several that `send` would answer at once, and now will not."""

    def send(self) -> None:
        """Let the replies go out."""


class CommitWaiter(TurnMember, Protocol):
    """What waits for the end of a turn: a connection, with its replies."""

    @property
    def wrote(self) -> bool:
        """Is there a reply to a write among its replies?"""

    def hold(self) -> None:
        """Do nothing more until it is released: its replies so far wait for the log."""

    def release(self, problem: errors.BloomeryError | None) -> None:
        """Let the replies go out, those to writes as errors if there is a problem; and go on."""

    def answer(self, results: list[Any]) -> None:
        """On a node: reply with the results of the turn's records, and go on."""


class _Waiter:
    """A coroutine that waits: a request of HTTP that wrote."""

    __slots__ = ("done",)
    wrote = True

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done

    def take_waiters(self) -> tuple[CommitWaiter]:
        """Itself."""
        return (self,)

    def hold(self) -> None:
        """Do nothing: the coroutine waits anyway."""

    def send(self) -> None:
        """Let it go on."""
        if not self.done.done():  # its client may have gone
            self.done.set_result(None)

    def answer(self, results: list[Any]) -> None:
        """Let it go on."""
        self.send()

    def release(self, problem: errors.BloomeryError | None) -> None:
        """Let it go on, or know why not."""
        if problem is None:
            self.send()
        elif not self.done.done():
            self.done.set_exception(problem)


def take_waiters(turn: list[TurnMember]) -> Iterable[CommitWaiter]:
    """Each of those that wait for the end of a turn, once. A connection may be a member itself, by
    what it did of commands that had waited, and one that native code has read: who released it
    twice would let replies go out that wait for the next commit."""
    return dict.fromkeys(chain.from_iterable(member.take_waiters() for member in turn))


async def _at_once() -> None:
    """Wait for nothing."""


class Turns:
    """The turns of a server. How a turn's writes get into a log is for `GroupCommit`, whose log is
    on a disk, and for `replication.turns`, whose log nodes share."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = asyncio.get_running_loop()
        self._turn: list[TurnMember] = []
        self._begun = False
        self.late_since: float | None = None  # replies are held for the disk, since then
        self.delayed = 0  # how often that began
        self.latency = Histogram()  # of commits
        engine.on_begin.subscribe(self._begin)

    def _begin(self) -> None:
        """Let the turn end when this round of the event loop is over."""
        if not self._begun:
            self._begun = True
            self._loop.call_soon(self._end)

    def join(self, waiter: TurnMember | None = None) -> None:
        """Be part of this turn; a new one begins if there is none."""
        if not self._begun:
            self._begin()
            self.engine.begin()
        if waiter is not None:
            self._turn.append(waiter)

    async def logged(self) -> None:
        """Return when what was just done is in the log; LogUnavailable if it could not be."""
        await self.logging()

    def logging(self) -> asyncio.Future[None]:
        """Return a future of `logged`, for who has something else to do meanwhile."""
        waiter = _Waiter(self._loop.create_future())
        self.join(waiter)
        return waiter.done

    def _end(self) -> None:
        """End the turn: log what it wrote, and let its replies go out."""
        raise NotImplementedError

    async def retry(self) -> bool:
        """Try to write what the log still lacks; True if writes are taken again."""
        return False

    async def close(self) -> None:
        """Return when everything that was noted is written, or could not be."""

    def stop(self) -> None:
        """End what writes the log, behind all that was asked of it."""


class GroupCommit(Turns):
    """The turns of a server whose log is on a disk, and the thread that writes it if that may be
    slow."""

    def __init__(
        self,
        engine: Engine,
        on_refuse: Callable[[errors.LogUnavailable], None],
        idle: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        """`on_refuse` is called with the reason when writes begin to be refused; `idle` returns
        when no thread works on a filter."""
        super().__init__(engine)
        self._log = cast("Log", engine.log)
        self._on_refuse = on_refuse
        self._idle = idle
        self._rows: list[Row] = []  # what is to be logged, each with the time of its turn
        self._waiters: dict[CommitWaiter, None] = {}  # for the next commit, each once
        self.committing = False  # is the thread writing to the log?
        self._snapshot = False  # is one being made?
        self._slow_until = 0.0
        self._calls = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bloomery-log", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        if not self._begun:  # `_committed` or `flushed` has ended it
            return
        turn, self._turn, self._begun = self._turn, [], False
        self._rows += self.engine.end()
        if not self.committing and not self._waiters and self._disk_is_quick() and self._is_small():
            problem = self._write_here()
            if problem is None:
                for member in turn:
                    member.send()
            else:
                for waiter in take_waiters(turn):
                    waiter.release(problem)
            return
        for waiter in take_waiters(turn):
            if waiter.wrote:
                waiter.hold()
                self._waiters[waiter] = None
            else:
                waiter.send()
        self._commit()

    def _disk_is_quick(self) -> bool:
        """Can the log be written at once, as far as is known?"""
        log, now = self._log, time.monotonic()
        known = self._snapshot or self._calls or log.fsync == "always"
        return not known and now >= self._slow_until and not log.is_late(now)

    def _is_small(self) -> bool:
        """Whether so little is to be logged that the event loop can write it itself."""
        return not self._rows or sum(len(row[3]) for row in self._rows) < _LARGE

    def snapshot(self, running: bool) -> None:
        """Note that a snapshot begins or has ended: the disk is busy for some time after it."""
        self._snapshot = running
        if not running:
            self._slow_until = time.monotonic() + _AFTER_SNAPSHOT

    def _write_here(self) -> errors.LogUnavailable | None:
        """Write the rows; return the problem, also to commands that changed nothing, since they may
        have seen what is not in the log."""
        rows, self._rows = self._rows, []
        if rows:
            began = time.monotonic()
            problem = self._write(rows)
            assert problem is None or isinstance(problem, errors.LogUnavailable)  # a disk's
            self.refuse(problem)
            if time.monotonic() - began > _QUICK:
                self._slow_until = began + _WARY
        return self.engine.problem

    def _commit(self) -> None:
        """Hand what is noted to the thread. If it is busy, that comes with the next commit; if the
        disk is late, when that has caught up (`flushed`)."""
        if self.committing or self._is_late():
            return
        rows, self._rows = self._rows, []
        waiters, self._waiters = self._waiters, {}
        if rows:
            self.committing = True
            self._work.put(lambda: self._write_in_thread(rows, waiters))
        else:
            for waiter in waiters:
                waiter.release(self.engine.problem)

    def _is_late(self) -> bool:
        """Must what was written wait for the disk, or who repeated a write that is not there? Not
        if the log cannot be written: then it is answered with the problem."""
        now = time.monotonic()
        waits = bool(self._rows or self._waiters)
        late = waits and self.engine.problem is None and self._log.is_late(now)
        if late and self.late_since is None:
            self.late_since = now
            self.delayed += 1
        elif not late:
            self.late_since = None
        return late

    def flushed(self) -> None:
        """Commit what waits: the log was brought to the disk, or could not be."""
        if self._waiters or self._rows:
            self._end()  # as in `_committed`
            self._commit()

    async def flush_each_second(self) -> None:
        """Bring the log to the disk each second, until cancelled. In a thread of its own: replies
        may wait for it, which must not wait for other threads' work."""
        log, folding = self._log, None
        thread = ThreadPoolExecutor(1, "bloomery-flush")
        try:
            while True:
                await asyncio.sleep(1)
                try:
                    await self._loop.run_in_executor(thread, log.flush)
                except errors.LogUnavailable as problem:
                    self.refuse(problem)
                except Exception as problem:  # noqa: BLE001  # there is a next second
                    logs.tell("the log was not brought to the disk", level="error", problem=problem)
                self.flushed()
                if log.unclosed and (folding is None or folding.done()):
                    folding = asyncio.ensure_future(asyncio.to_thread(log.fold))
        finally:
            thread.shutdown(wait=False)  # who closes the log waits for it

    def _write_in_thread(self, rows: list[Row], waiters: Iterable[CommitWaiter]) -> None:
        """Write the log, in the thread."""
        self._call_in_loop(self._committed, self._write(rows), waiters)

    def _write(self, rows: list[Row]) -> errors.BloomeryError | None:
        began = time.monotonic()
        try:
            self._log.write(rows)
        except (errors.LogUnavailable, errors.StoreUnavailable) as failure:
            return failure
        except Exception as failure:  # noqa: BLE001  # whatever it is, it was not written
            return errors.LogUnavailable(f"{type(failure).__name__}: {failure}")
        finally:
            self.latency.observe(time.monotonic() - began)
        return None

    def _committed(
        self, problem: errors.BloomeryError | None, waiters: Iterable[CommitWaiter]
    ) -> None:
        # Another command of a waiter may have ended meanwhile, in a turn before or in this one.
        # What that wrote is for the next commit, and so is the waiter: its replies go out together.
        self._end()
        self.committing = False
        if isinstance(problem, errors.LogUnavailable):
            self.refuse(problem)
        for waiter in waiters:
            if waiter not in self._waiters:
                waiter.release(self.engine.problem or problem)
        self._commit()

    def refuse(self, problem: errors.LogUnavailable | None) -> None:
        """Refuse writes until the log can be written again, and raise an alert. None: go on."""
        if problem is not None:
            if self.engine.problem is None or self.engine.frozen:
                self._on_refuse(problem)
            self.engine.refuse(problem)

    def call(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do something with the log that may take long, in the thread. Cancelled before it begins,
        it is not done."""
        done: Future[_T] = Future()
        self._calls += 1  # until it is done, nobody else touches the log

        def run() -> None:
            try:
                if done.set_running_or_notify_cancel():
                    try:
                        done.set_result(work())
                    except BaseException as problem:  # noqa: BLE001  # it is raised where it is awaited
                        done.set_exception(problem)
            finally:
                self._call_in_loop(self._called)

        self._work.put(run)
        return asyncio.wrap_future(done, loop=self._loop)

    def _called(self) -> None:
        self._calls -= 1

    def _call_in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        """Have a function called in the event loop, from the thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            self._loop.call_soon_threadsafe(function, *arguments)

    async def retry(self) -> bool:
        """Try to write what the log still lacks; True if writes are taken again."""
        if self.engine.frozen:
            return False
        written = self.engine.problem is not None and await self.call(self._log.retry)
        if written and not self._log.pending:  # another commit may have failed since
            self.engine.accept()
        return self.engine.problem is None and written

    @contextlib.asynccontextmanager
    async def frozen(self, why: errors.LogUnavailable) -> AsyncIterator[None]:
        """Meanwhile writes are refused, and time stands still: what is in memory is in the log, and
        stays as it is. LogUnavailable if the log lacks something."""
        self._raise_unless(None)
        await self._idle()  # no thread changes a filter from now on: to begin is refused
        self._raise_unless(None)
        self.engine.frozen = True
        self.engine.refuse(why)
        try:
            await self.close()
            self._raise_unless(why)
            yield
        finally:
            self.engine.frozen = False
            if self.engine.problem is why:
                self.engine.accept()

    def _raise_unless(self, known: errors.LogUnavailable | None) -> None:
        if self.engine.problem is not None and self.engine.problem is not known:
            raise self.engine.problem

    async def close(self) -> None:
        """Return when everything that was noted is written, or could not be."""
        self.join()
        while self._begun or self.committing or self._waiters or self._rows:
            await asyncio.sleep(0.001)

    def stop(self) -> None:
        """End the thread, behind all that was asked of it."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as problem:  # noqa: BLE001  # others wait for what comes behind it
                logs.tell("a call of the log failed", level="error", problem=problem)
