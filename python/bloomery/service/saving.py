"""When snapshots are made: when asked, when the log has become long, now and then, and at the end.
A process of its own makes each (`storage/snapshotter.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from typing import TYPE_CHECKING

from bloomery import errors
from bloomery.storage import snapshots

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["Saving"]


class Saving:
    """The snapshots of a running server; one at a time."""

    def __init__(self, server: Server, generation: int) -> None:
        self.server = server
        self.generation = generation  # of the last one
        self.last_save = time.time()
        self.problem: str | None = None  # of the last one, if it failed
        self.seconds: float | None = None  # that the last one took
        self._task: asyncio.Task[None] | None = None
        # A node has nothing to save: its filters are in Redis.
        covered = server.node is not None or (generation != 0 and server.recovered_rows == 0)
        self._seq = server.engine.log.seq if covered else -1  # the last row that it covers
        self._segment = server.engine.log.segment
        self._tried = time.monotonic()

    @property
    def running(self) -> bool:
        """Is one being made?"""
        return self._task is not None and not self._task.done()

    def start(self) -> asyncio.Task[None]:
        """Begin a snapshot, or return the one that is being made."""
        if self._task is None or self._task.done():
            self._tried = time.monotonic()
            self.server.turns.snapshot(running=True)
            self._task = asyncio.create_task(self._make())
            self._task.add_done_callback(self._told)
        return self._task

    async def save(self) -> None:
        """Make a snapshot of everything until now, and wait for it."""
        if self.running:
            with contextlib.suppress(errors.BloomeryError):
                await asyncio.shield(self.start())
        await asyncio.shield(self.start())

    async def last(self) -> None:
        """Make the last snapshot, unless nothing has changed since the one before."""
        if self.running:
            with contextlib.suppress(errors.BloomeryError):
                await self.start()
        if self.server.engine.log.seq != self._seq:
            await self.start()

    def consider(self) -> None:
        """Begin one if it is time; after one that failed, not before a minute."""
        settings, log = self.server.settings, self.server.engine.log
        waited = time.monotonic() - self._tried
        if self.running or log.seq == self._seq or waited < (60 if self.problem else 1):
            return
        long = log.segment > self._segment  # the log has begun another by itself
        late = settings.snapshot_seconds and waited >= settings.snapshot_seconds
        if long or late:
            self.start()

    async def _make(self) -> None:
        if self.server.node is not None:
            return  # Redis has everything
        log, began = self.server.engine.log, time.monotonic()
        turns = self.server.turns
        number, seq = await turns.call(lambda: (log.cut(), log.seq))
        self._segment = number
        await asyncio.to_thread(log.sync)  # the old segment is closed: now another may read it
        # Not asyncio's way: uvloop forks, which copies the page tables of all filters while nobody
        # is served; this one does not (vfork).
        try:
            process = await asyncio.to_thread(
                subprocess.Popen,
                snapshots.command(self.server.data, number),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as problem:  # no memory, or too many processes
            raise errors.SnapshotFailed(f"no process can be started: {problem}") from None
        try:
            _, printed = await asyncio.to_thread(process.communicate)
        except asyncio.CancelledError:
            process.kill()
            raise
        if process.returncode != 0:
            said = printed.decode("utf-8", "replace").strip().splitlines()
            raise errors.SnapshotFailed(said[-1] if said else f"exit code {process.returncode}")
        self.generation, self._seq = number, seq
        self.last_save, self.seconds = time.time(), time.monotonic() - began

    def _told(self, task: asyncio.Task[None]) -> None:
        self.server.turns.snapshot(running=False)
        if task.cancelled():
            return
        problem = task.exception()
        self.problem = None if problem is None else str(problem)
        if problem is not None:
            text = f"snapshot failed, the log keeps everything: {problem}"
            self.server.alerts.begin("snapshot-failed", text)
        else:
            self.server.alerts.end("snapshot-failed", "a snapshot was made again")
