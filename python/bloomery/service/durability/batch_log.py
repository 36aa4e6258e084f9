"""The log of a single server, for the sequencer: a batch is written to the file, then applied.

Writing goes to the page cache. Workers write and apply short batches of keys in native code, and
the event loop writes all others. While a snapshot is written, with fsync="always", for large
batches, and for a while after a slow write, a thread writes instead, and workers do not. On one
core the thread costs: an ADD without a pipeline reached 0.79 of Redis's PING with it, 0.85 and more
without.

If the disk is too slow (`Log.is_late`), the next batch waits, so that a power failure loses no more
than two seconds of acknowledged writes. Reads continue.

An operation that takes long (a copy of gigabytes) is applied by a thread. Records of the same names
wait for it; all others continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from bloomery import _native, errors
from bloomery.service.domain.operations import Op, Record
from bloomery.service.domain.state import LongWork, Steps
from bloomery.service.durability.log import Log, Row
from bloomery.service.engine import Engine
from bloomery.service.observe import logs
from bloomery.service.sequencer import Sequencer
from bloomery.service.slices import SECONDS

_T = TypeVar("_T")
_FAST = 0.005  # seconds: a slower write had to wait for the disk
_AFTER_SNAPSHOT = 30.0  # seconds: a write of 150 ms was seen 4 s after a snapshot
_LARGE = 256 << 10  # bytes of a batch: writing more takes a millisecond and more
_WARY = 3.0  # seconds in which a thread writes, after a slow write
_FLUSH_SECONDS = 1.0  # from one flush to the next
# Bytes after which the log is flushed early. A write waits while the kernel brings much of the same
# file to the disk: up to 25 ms for the 200 MB that a second of BF.LOADCHUNK writes, 1 ms for 8 MiB.
_FLUSH_BYTES = 8 << 20


class _Batch(NamedTuple):
    number: int
    records: list[Record]
    at: float
    results: list[Any]


class FileBatchLog:
    """Writes batches to the log of a server, and applies them."""

    exclusive = True
    may_answer = True
    holds_lease = True

    def __init__(
        self, engine: Engine, log: Log, on_refuse: Callable[[errors.LogUnavailable], None]
    ) -> None:
        """`on_refuse` is called with the reason when the log cannot be written."""
        self._engine, self._log, self._on_refuse = engine, log, on_refuse
        self._loop = asyncio.get_running_loop()
        self.sequencer = Sequencer(engine, self)
        self._next_number = engine.state.next_id
        self._waiting: tuple[int, list[Record]] | None = None  # for a slow disk
        self._batch: _Batch | None = None  # that is being applied
        self._busy: dict[bytes, asyncio.Task[Any]] = {}  # the last long operation on each name
        self._broken: errors.LogUnavailable | None = None
        self._snapshot = False  # one is being written
        self._slow_until = 0.0
        self._unflushed = 0  # bytes of batches since the last flush started
        self._much = self._loop.create_future()  # done when these are many
        self._calls = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bloomery-log", daemon=True)
        self._thread.start()
        self.now()
        self._allow_workers()

    @property
    def for_workers(self) -> tuple[_native.LogWriter, float]:
        """The native log, and the monotonic time: workers write short batches."""
        return self._log.for_workers

    # As the sequencer and the engine use it.

    def now(self) -> float:
        """Return the server's time. Workers continue from it, no faster than the clock will."""
        clock = self._engine.clock
        now = clock.now()
        self._engine.shelf.set_clock(now, 1.0 if clock.off >= 0 else 0.9)
        return now

    def running(self) -> float:
        """Return the same: this server's time waits for no record."""
        return self.now()

    def draw_number(self) -> int:
        """Return the next number for a filter."""
        number = max(self._next_number, self._engine.state.next_id)
        self._next_number = number + 1
        return number

    def check(self, op: Op) -> None:
        """Raise if a record could not be applied before."""
        if self._broken is not None:
            raise self._broken

    async def catch_up(self) -> None:
        """Do nothing: no other process writes."""

    def decide(self, op: Op, filter_id: int, data: bytes) -> None:
        """Submit an operation without waiting for it."""
        self.sequencer.submit(op, filter_id, data).add_done_callback(_ignore)

    def append(self, number: int, records: list[Record]) -> None:
        """Write a batch, and apply it. After the log could not be written, refuse batches until
        `retry` finds that it can be."""
        problem = self._broken or self._engine.problem
        if problem is not None:
            self._loop.call_soon(self.sequencer.refused, number, problem)
        elif self._is_late():
            self._waiting = number, records
        else:
            self._write_batch(number, records)

    def take_over(
        self,
        records: list[Record],
        waiters: _native.Waiters,
        results: list[Any],
        at: float,
        problem: errors.BloomeryError | None,
    ) -> None:
        """Finish a batch that a worker has started. With LogUnavailable nothing was written;
        otherwise apply the records without results."""
        batch = _Batch(self.sequencer.adopt(waiters), records, at, results)
        if isinstance(problem, errors.LogUnavailable):
            self._written(batch, problem)
        else:
            if problem is not None:
                results.append(self._failed(problem))
            self._written(batch, None)

    def _allow_workers(self) -> None:
        """Allow workers to write and apply short batches, unless the disk is slow or writes are
        refused. Called when that changes, and each second."""
        refused = self._broken or self._engine.problem or self._engine.frozen
        self._engine.shelf.inline = not refused and self._disk_is_fast()

    def _write_batch(self, number: int, records: list[Record]) -> None:
        at = max(self.now(), self._engine.state.now, self._engine.shelf.last_at)
        rows = [(at, *record) for record in records]
        batch = _Batch(number, records, at, [])
        nbytes = sum(len(row[3]) for row in rows)
        self._unflushed += nbytes
        if (len(rows) == 1 or nbytes < _LARGE) and self._disk_is_fast():
            started = time.monotonic()
            problem = self._write(rows)
            if time.monotonic() - started > _FAST:
                self._slow_until = started + _WARY
            self._written(batch, problem)
        else:
            self._work.put(lambda: self._call_in_loop(self._written, batch, self._write(rows)))

    def _disk_is_fast(self) -> bool:
        known = self._snapshot or self._calls or self._log.fsync == "always"
        return not known and time.monotonic() >= self._slow_until

    def _write(self, rows: list[Row]) -> errors.LogUnavailable | None:
        try:
            self._log.write(rows)
        except errors.LogUnavailable as failure:
            return failure
        except Exception as failure:  # noqa: BLE001  # whatever it is, nothing was written
            return errors.LogUnavailable(f"{type(failure).__name__}: {failure}")
        return None

    def _written(self, batch: _Batch, problem: errors.LogUnavailable | None) -> None:
        if problem is not None:
            self.refuse(problem)
            self.sequencer.refused(batch.number, problem)
            return
        if self._unflushed >= _FLUSH_BYTES and not self._much.done():
            self._much.set_result(None)
        self._batch = batch
        # Before its records, as in a replay: rotating filters use this time.
        self._engine.state.now = max(self._engine.state.now, batch.at)
        self._apply()

    # Applying.

    def _apply(self) -> None:
        """Apply the batch for some milliseconds, then serve others, then continue."""
        batch = self._batch
        if batch is None:
            return
        until = time.perf_counter() + SECONDS
        while len(batch.results) < len(batch.records):
            try:
                left = max(0.0, until - time.perf_counter())
                done = self._engine.shelf.apply(batch.records, batch.results, left)
            except BaseException as problem:  # noqa: BLE001  # others wait, also after a panic
                batch.results.append(self._failed(problem))
                continue
            if done is None:
                record = batch.records[len(batch.results)]
                batch.results.append(self._apply_one(*record, batch.at))
            if done is False or time.perf_counter() >= until:
                self._loop.call_soon(self._apply)
                return
        self._batch = None
        self.sequencer.applied(batch.number, batch.results)

    def _apply_one(self, filter_id: int, op: int, data: bytes, at: float) -> Any:
        """Apply a record that native code does not; return its result, the error that refused it,
        or a future if a thread does it."""
        try:
            names = self._engine.state.names_in(op, filter_id, data)
            after = [self._busy[name] for name in names if name in self._busy]
            steps = self._engine.start(op, filter_id, data, at)
            if after:
                return self._later(names, after, self._finish(steps, None))
            long = _advance(steps)
            if isinstance(long, LongWork):
                return self._later(names, after, self._finish(steps, long))
            return long
        except Exception as problem:  # noqa: BLE001  # others wait for their answers
            return self._failed(problem)

    def _failed(self, problem: BaseException) -> errors.BloomeryError:
        """Return a refusal. If only this process had a reason for it, accept no more writes: memory
        lacks what the log has."""
        if not isinstance(problem, errors.BloomeryError):
            logs.tell("a record of the log was not applied", level="error", problem=problem)
            problem = errors.ServerUnavailable(f"internal error: {type(problem).__name__}")
        if isinstance(problem, (errors.NotEnoughMemory, errors.ServerUnavailable)):
            self._broken = errors.LogUnavailable(
                f"an operation in the log could not be applied ({problem}); restart the server, "
                "which applies it again"
            )
            self.refuse(self._broken)
        return problem.with_traceback(None)

    def _later(
        self, names: list[bytes], after: list[asyncio.Task[Any]], work: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        """Apply a record after those before it on the same names. Commands on them wait."""
        self._engine.locks.lock(names)
        for name in names:
            self._engine.shelf.set_busy(name, True)
        task = asyncio.ensure_future(self._ordered(names, after, work))
        self._busy.update(dict.fromkeys(names, task))
        return task

    async def _ordered(
        self, names: list[bytes], after: list[asyncio.Task[Any]], work: Coroutine[Any, Any, Any]
    ) -> Any:
        try:
            if after:
                await asyncio.wait(after)
            return await work
        except asyncio.CancelledError:
            raise
        except BaseException as problem:  # noqa: BLE001  # its client waits
            raise self._failed(problem) from None
        finally:
            self._engine.locks.unlock(names)
            task = asyncio.current_task()
            for name in names:
                if self._busy.get(name) is task:
                    del self._busy[name]
                    self._engine.shelf.set_busy(name, False)
            self._engine.on_applied()

    async def _finish(self, steps: Steps, work: LongWork | None) -> Any:
        """Apply a record in steps; a thread does the long ones."""
        following = _advance(steps) if work is None else work
        while isinstance(following, LongWork):
            run = following.run
            try:
                result = await asyncio.to_thread(run) if following.is_long else run()
            except Exception as problem:  # noqa: BLE001  # the operation decides what it means
                following = _advance(steps, problem=problem)
            else:
                following = _advance(steps, result)
        return following

    async def finished(self, names: Iterable[bytes] | None = None) -> None:
        """Return when no thread applies a record to these names; None: to any."""
        listed = None if names is None else set(names)
        while tasks := [
            task for name, task in self._busy.items() if listed is None or name in listed
        ]:
            await asyncio.wait(tasks)

    # The disk.

    def snapshot(self, running: bool) -> None:
        """Report that a snapshot starts or has ended: the disk is busy for some time after it."""
        self._snapshot = running
        if not running:
            self._slow_until = time.monotonic() + _AFTER_SNAPSHOT
        self._allow_workers()

    def _is_late(self) -> bool:
        """Return whether the next batch must wait for the disk."""
        sequencer, now = self.sequencer, time.monotonic()
        late = self._log.is_late(now)
        if late and sequencer.late_since is None:
            sequencer.late_since = now
            sequencer.delayed += 1
        elif not late:
            sequencer.late_since = None
        return late

    def flushed(self) -> None:
        """Write the batch that waits: the log was flushed, or could not be."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self.append(*waiting)
        else:
            self._is_late()
        self._allow_workers()

    async def flush_each_second(self) -> None:
        """Flush the log each second, and when it has many new bytes, until cancelled. It has its
        own thread: replies may wait for it, which must not wait for the work of other threads."""
        log = self._log
        thread = ThreadPoolExecutor(1, "bloomery-flush")
        try:
            while True:
                await asyncio.wait([self._much], timeout=_FLUSH_SECONDS)
                self._much, self._unflushed = self._loop.create_future(), 0
                try:
                    await self._loop.run_in_executor(thread, log.flush)
                except errors.LogUnavailable as problem:
                    self.refuse(problem)
                except Exception as problem:  # noqa: BLE001  # there is a next second
                    logs.tell("the log was not flushed", level="error", problem=problem)
                self.flushed()
        finally:
            thread.shutdown(wait=False)  # closing the log waits for it

    def refuse(self, problem: errors.LogUnavailable) -> None:
        """Report that the log cannot be written, and raise an alert."""
        if self._engine.problem is None or self._engine.frozen:
            self._on_refuse(problem)
        if not self._engine.frozen:
            self._engine.refuse(problem)
        self._allow_workers()

    async def retry(self) -> bool:
        """Return whether the log can be written again, after it could not be."""
        if self._engine.frozen or self._engine.problem is None or self._broken is not None:
            return False
        if await self.call(self._log.retry):
            self._engine.accept()
            self._allow_workers()
            return True
        return False

    @contextlib.asynccontextmanager
    async def frozen(self, why: errors.LogUnavailable) -> AsyncIterator[None]:
        """Reject writes and stop the time: memory stays as it is, and the log has all of it."""
        self._raise_problem()
        self._engine.frozen = True
        self._engine.refuse(why)
        self._engine.shelf.refusing = True
        self._allow_workers()
        try:
            while not self.sequencer.idle or self._busy:
                await asyncio.sleep(0.001)
            yield
        finally:
            self._engine.frozen = False
            self._engine.shelf.refusing = False
            self._engine.accept()
            self._allow_workers()

    def _raise_problem(self) -> None:
        if self._engine.problem is not None:
            raise self._engine.problem

    # The thread.

    def call(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Do something with the log that may take long, in the thread."""
        done: Future[_T] = Future()
        self._calls += 1  # until it is done, no other thread touches the log
        self._allow_workers()

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
        self._allow_workers()

    def _call_in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    async def close(self) -> None:
        """Return when everything that was submitted is answered."""
        await self.sequencer.close()
        await self.finished()

    def stop(self) -> None:
        """End the thread, after everything that it was given."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as problem:  # noqa: BLE001  # others wait for what follows it
                logs.tell("a call of the log failed", level="error", problem=problem)


def _advance(steps: Steps, result: Any = None, problem: Exception | None = None) -> Any:
    """Continue an operation with the result of its long work, or with the error that ended it;
    return the next long work, or the operation's value."""
    try:
        return steps.send(result) if problem is None else steps.throw(problem)
    except StopIteration as end:
        return end.value


def _ignore(done: asyncio.Future[Any]) -> None:
    """Accept that an operation was refused."""
    if not done.cancelled():
        done.exception()
