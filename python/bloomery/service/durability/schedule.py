"""When snapshots are made: on request, when the log has become long, at intervals, and at shutdown.

A process of its own makes each (`snapshotter.py`), at the lowest priority, unless somebody waits
for it: on a machine that is always busy a client, or the shutdown, would wait for a minute and
more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from bloomery import errors
from bloomery.service.config.settings import Settings
from bloomery.service.durability import snapshots
from bloomery.service.durability.batch_log import FileBatchLog
from bloomery.service.durability.log import Log
from bloomery.service.engine import Engine
from bloomery.service.policy.alerts import Alerts

_NICE = 10
_IDLE_SECONDS = 60.0
_MOST_LISTED = 5  # files of one snapshot


class SnapshotSchedule:
    """The snapshots of a running server; one at a time."""

    def __init__(
        self,
        engine: Engine,
        batches: FileBatchLog | None,
        alerts: Alerts,
        settings: Settings,
        *,
        snapshot_number: int,
        replayed: int,
        elsewhere: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`snapshot_number` is that of the last snapshot, after which so many rows of the log were
        `replayed` at the start. `elsewhere`: makes one of a node, which has
        nothing on its disk."""
        self._engine, self._batches, self._alerts = engine, batches, alerts
        self._settings, self._data = settings, Path(settings.data)
        self._elsewhere = elsewhere
        self.snapshot_number = snapshot_number  # of the last one
        self.last_save = time.time()
        self.problem: str | None = None  # of the last one, if it failed
        self.seconds: float | None = None  # that the last one took
        self._task: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None  # that makes it
        self._waited_for = False
        self._again = False
        self._ending = False
        covered = elsewhere is not None or (snapshot_number != 0 and replayed == 0)
        self._seq = engine.log.seq if covered else -1  # the last row that it covers
        self._segment = engine.log.segment
        self._tried = time.monotonic()

    @property
    def running(self) -> bool:
        """Is one being made?"""
        return self._task is not None and not self._task.done()

    def start(self) -> asyncio.Task[None]:
        """Begin a snapshot, or return the one that is being made."""
        if self._task is None or self._task.done():
            self._tried = time.monotonic()
            self._waited_for = self._ending
            if self._batches is not None:
                self._batches.snapshot(running=True)
            self._task = asyncio.create_task(self._make())
            self._task.add_done_callback(self._finished)
        return self._task

    async def save(self) -> None:
        """Make a snapshot of everything until now, and wait for it."""
        if self.running:
            with contextlib.suppress(errors.BloomeryError):
                await asyncio.shield(self._hurry())
        await asyncio.shield(self._hurry())

    async def make_final(self) -> None:
        """Make the last snapshot, unless nothing has changed since the one before."""
        self._ending = True
        if self.running:
            with contextlib.suppress(errors.BloomeryError):
                await self._hurry()
        if self._engine.log.seq != self._seq:
            try:
                await self._hurry()
            except errors.BloomeryError as problem:
                raise errors.SnapshotFailed(
                    f"no snapshot was made: {problem}; the log has all that was acknowledged"
                ) from None

    def consider(self) -> None:
        """Begin a snapshot if it is due; after one that failed, not before a minute."""
        settings, log = self._settings, self._engine.log
        waited = time.monotonic() - self._tried
        if self.running or log.seq == self._seq or waited < (60 if self.problem else 1):
            return
        long = log.segment > self._segment  # the log has begun another by itself
        late = settings.snapshot_seconds and waited >= settings.snapshot_seconds
        if long or late:
            self.start()

    async def _make(self) -> None:
        began = time.monotonic()
        if self._elsewhere is not None:
            await self._elsewhere()
            self.last_save, self.seconds = time.time(), time.monotonic() - began
            return
        number, seq = await self._cut()
        code, stderr, damage = await self._run(snapshots.command(self._data, number))
        if code == snapshots.DAMAGED:
            await self._from_memory("; ".join([*damage, stderr]))
            number, seq = await self._cut()  # and a second copy, of that
            code, stderr, _ = await self._run(snapshots.command(self._data, number))
        elif damage:
            text = f"a snapshot found damage: {'; '.join(damage)}"
            self._alerts.event("snapshot-damaged", text)
        if code != 0:
            raise errors.SnapshotFailed(stderr)
        self.snapshot_number, self._seq = number, seq
        self.last_save, self.seconds = time.time(), time.monotonic() - began

    async def _cut(self) -> tuple[int, int]:
        """Begin a segment, and close those before, so that another may read them; its number, and
        the last row before it."""
        log = cast("Log", self._engine.log)
        assert self._batches is not None
        number, seq = await self._batches.call(lambda: (log.cut(), log.seq))
        self._segment = number
        await asyncio.to_thread(log.sync)
        return number, seq

    async def _from_memory(self, why: str) -> None:
        """Write a snapshot of what is in memory: the files do not have it any more. Who asks is
        answered meanwhile, who writes is told to come back."""
        text = f"a snapshot found damage; all filters are written anew, from memory: {why}"
        self._alerts.event("snapshot-damaged", text)
        engine, data = self._engine, self._data
        problem = errors.LogUnavailable(
            "all filters are being written anew, since their files were damaged: try again"
        )
        assert self._batches is not None
        async with self._batches.frozen(problem):
            number, seq = await self._cut()
            for entry in engine.state.filters.values():
                engine.state.count(entry)
            try:
                await asyncio.to_thread(snapshots.write, data, engine.state, number, seq)
            except OSError as failure:
                raise errors.SnapshotFailed(f"{why}; nor from memory: {failure}") from None

    async def _run(self, command: list[str]) -> tuple[int, str, list[str]]:
        """The exit code of the process, why it failed, and what it found damaged."""
        while True:
            # Not asyncio's way: uvloop forks, which copies the page tables of all filters while
            # nobody is served; this one does not (vfork).
            try:
                process = await asyncio.to_thread(
                    subprocess.Popen,
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            except OSError as problem:  # no memory, or too many processes
                raise errors.SnapshotFailed(f"no process can be started: {problem}") from None
            self._process, self._again = process, False
            if not self._ending:  # then there is nobody to give way to
                _give_way(process.pid, idle=not self._waited_for)
            enough = asyncio.get_running_loop().call_later(_IDLE_SECONDS, _take_part, process.pid)
            try:
                progress, printed = await asyncio.to_thread(process.communicate)
            except asyncio.CancelledError:
                process.kill()
                raise
            finally:
                enough.cancel()
                self._process = None
            if not self._again or process.returncode == 0:
                code = process.returncode
                stderr = printed.decode("utf-8", "replace").strip().splitlines()
                return code, stderr[-1] if stderr else f"exit code {code}", _problems(progress)

    def _hurry(self) -> asyncio.Task[None]:
        """As `start`, for one who waits. Where a process may not be given more of the machine than
        it has (that takes rights), another begins anew."""
        task, process = self.start(), self._process
        gives_way, self._waited_for = not self._waited_for, True
        if gives_way and process is not None and not _take_part(process.pid):
            self._again = True
            process.kill()
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        if self._batches is not None:
            self._batches.snapshot(running=False)
        if task.cancelled():
            return
        problem = task.exception()
        self.problem = None if problem is None else str(problem)
        if problem is not None:
            text = f"snapshot failed, the log keeps everything: {problem}"
            self._alerts.begin("snapshot-failed", text)
        else:
            self._alerts.end("snapshot-failed", "a snapshot was made again")


def _problems(progress: bytes) -> list[str]:
    """What the process found damaged, from the lines of JSON that it printed; the first of many."""
    problems = []
    for line in progress.splitlines():
        with contextlib.suppress(ValueError):  # cut off, by a kill
            problems += [problem] if (problem := json.loads(line).get("problem")) else []
    more = [f"and {len(problems) - _MOST_LISTED} more"] if len(problems) > _MOST_LISTED else []
    return problems[:_MOST_LISTED] + more


def _give_way(pid: int, idle: bool) -> None:
    """Let a process run less often than others, or only when nobody else wants to, lest the server
    wait for a slice of it: some 4 ms."""
    with contextlib.suppress(AttributeError, OSError):  # Linux has these; it may have ended
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        if idle:
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def _take_part(pid: int) -> bool:
    """Let it run beside others, if less often; False without the right to."""
    try:
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        return False
    except (AttributeError, OSError):
        pass  # another system, or it has ended
    return True
