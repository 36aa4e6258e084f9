"""What drains a guard's queue in the background: a thread, or a task of asyncio. All else about a
guard is the same in both worlds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

from bloomery.errors import BloomeryError
from bloomery.guard.core import Core

_LOG = logging.getLogger("bloomery.guard")
_JOIN_SECONDS = 5.0


class AsyncDrainer:
    """A task that calls `drain` again and again, until the guard is closing."""

    def __init__(self, core: Core, drain: Callable[[], Awaitable[int]]) -> None:
        self.core, self._drain = core, drain
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self.core.closing:
            try:
                await self._drain()
            except Exception as problem:  # noqa: BLE001  # whatever it is, there is a next time
                _log_failure(problem)
            await asyncio.sleep(self.core.options.retry)

    async def stop(self) -> None:
        """End the task, wherever it waits. The guard is closing: before Python 3.12 `wait_for`,
        which clients use too, may swallow a cancellation."""
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
            self.task = None


class Drainer:
    """A daemon thread that does the same."""

    def __init__(self, core: Core, drain: Callable[[], int]) -> None:
        self.core, self._drain = core, drain
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; and again in a child that is forked, since the thread stays behind."""
        self.core.on_fork = self.start
        self._wake = threading.Event()
        if not self.core.closing:
            self.thread = threading.Thread(target=self._run, name="bloomery-drain", daemon=True)
            self.thread.start()

    def _run(self) -> None:
        while not self.core.closing:
            try:
                self._drain()
            except Exception as problem:  # noqa: BLE001  # whatever it is, there is a next time
                _log_failure(problem)
            self._wake.wait(self.core.options.retry)
            self._wake.clear()

    def stop(self) -> None:
        """Wait until the thread has seen that the guard is closing; not for ever, for one that
        waits for a source that hangs: its item stays in the queue."""
        if self.thread is not None:
            self._wake.set()
            if self.thread is not threading.current_thread():  # `on_answer` may close the guard
                self.thread.join(_JOIN_SECONDS)


def _log_failure(problem: Exception) -> None:
    # Of others' errors not the text, which may have a key in it.
    kind = type(problem).__name__
    text = f"{kind}: {problem}" if isinstance(problem, BloomeryError) else kind
    _LOG.error("the queue was not drained: %s", text)
