"""Back-pressure on writes that come while the queue is drained: one may join the queue for each two
items that left it, so that the queue gets empty however many write."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from contextvars import ContextVar

from bloomery.guard.driver import Call, Flow

# True while `on_answer` is called: it may use the guard, but must not wait for its own drain.
IN_ON_ANSWER: ContextVar[bool] = ContextVar("in_on_answer", default=False)


class BackPressure:
    """The writes that wait until they may join the queue; none, while nothing is drained."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._draining = False
        self._waiting: deque[Future[None]] = deque()
        self._credit = 0.0

    def wait(self) -> Flow[None]:
        """Wait until this write may go on."""
        with self._lock:
            if not self._draining or IN_ON_ANSWER.get():
                return
            mine: Future[None] = Future()
            self._waiting.append(mine)
        yield Call(mine)

    def begin(self) -> None:
        """The queue is drained from now on."""
        with self._lock:
            self._draining, self._credit = True, 0.0

    def left_queue(self, items: int) -> None:
        """So many items left the queue: let half as many writes go on."""
        with self._lock:
            self._credit += items / 2
            most = min(len(self._waiting), int(self._credit))
            released = [self._waiting.popleft() for _ in range(most)]
            self._credit = min(self._credit - len(released), 1.0)
        for write in released:
            write.set_result(None)

    def end(self) -> None:
        """Note that the queue is drained no longer."""
        with self._lock:
            self._draining = False
            released, self._waiting = list(self._waiting), deque()
        for write in released:
            write.set_result(None)
