"""Threads that ask a source, so that a wait for one that hangs can end.

They are daemons, which those of `concurrent.futures` are not: a query that never returns does not
keep the process from ending. There are at most so many, which also bounds what a source is asked at
once; further questions wait, and time out as the others do.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_IDLE_SECONDS = 30.0


class Workers:
    """A few daemon threads, started as they are needed."""

    def __init__(self, most: int, name: str = "bloomery-guard") -> None:
        self.most = most
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.threads = 0
        self.waiting = 0  # pieces of work that no idle thread is promised to

    @functools.cached_property
    def aside(self) -> Workers:
        """Others, for what is no question to the source: these may all wait for one that hangs."""
        return Workers(self.most, f"{self._name}-aside")

    def submit(self, what: Callable[..., Any], *args: Any) -> Future[Any]:
        """Let a thread call this; its result or exception, in time."""
        if self._process != os.getpid():
            self._begin()  # a fork leaves the threads behind
        done: Future[Any] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                result = what(*args)
            except BaseException as problem:  # noqa: BLE001  # whoever waits is told
                done.set_exception(problem)
            else:
                done.set_result(result)

        with self._lock:
            self.waiting += 1
            start = self.waiting > 0 and self.threads < self.most
            if start:
                self.threads += 1
        self._work.put(work)
        if start:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return done

    def _run(self) -> None:
        while True:
            with self._lock:
                self.waiting -= 1  # this thread is free for one
            try:
                work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    self.waiting += 1
                    if self.waiting > 0:  # one came at the last moment
                        continue
                    self.threads -= 1
                    return
            work()
