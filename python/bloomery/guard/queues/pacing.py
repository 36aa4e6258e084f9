"""Turns of writes that come while the queue is drained: two items leave it for each that gets
behind it, so that it comes to an end, however many write."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from contextvars import ContextVar

from bloomery.guard.driver import Call, Flow

__all__ = ["TELLING", "Turns"]

# Set while `on_answer` is called, which may use the guard, but cannot wait for its own drain.
TELLING: ContextVar[bool] = ContextVar("telling", default=False)


class Turns:
    """Who waits for a turn; nobody, while nothing is drained."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._draining = False
        self._waiting: deque[Future[None]] = deque()
        self._credit = 0.0

    def wait(self) -> Flow[None]:
        """Come back when it is this one's turn."""
        with self._lock:
            if not self._draining or TELLING.get():
                return
            mine: Future[None] = Future()
            self._waiting.append(mine)
        yield Call(mine)

    def begin(self) -> None:
        """The queue is drained from now on."""
        with self._lock:
            self._draining, self._credit = True, 0.0

    def did(self, items: int) -> None:
        """So many left the queue."""
        with self._lock:
            self._credit += items / 2
            most = min(len(self._waiting), int(self._credit))
            turns = [self._waiting.popleft() for _ in range(most)]
            self._credit = min(self._credit - len(turns), 1.0)
        for turn in turns:
            turn.set_result(None)

    def end(self) -> None:
        """It is drained no longer."""
        with self._lock:
            self._draining = False
            turns, self._waiting = list(self._waiting), deque()
        for turn in turns:
            turn.set_result(None)
