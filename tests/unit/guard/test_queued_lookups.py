"""Look-ups that wait in the queue: everyone who was told to wait hears of it."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bloomery import BloomFilter
from bloomery.guard import Answer, Guard, SqliteQueue
from bloomery.guard.protocols import Item
from unit.guard.flaky import QUIET, Flaky


class InterruptedQueue(SqliteQueue):
    """Something happens just before an item is put into it."""

    before: Callable[[], object] = staticmethod(lambda: None)

    def put(self, items: Sequence[Item]) -> None:
        """Once."""
        before, self.before = self.before, lambda: None
        before()
        super().put(items)


@pytest.mark.parametrize("when", ["after", "before"])
def test_who_asks_while_the_same_is_answered_is_answered_too(tmp_path: Path, when: str) -> None:
    """What waited is told and about to leave the queue: who asks now must not leave with it."""
    told: list[str | None] = []
    asked: list[str | None] = []
    telling, go = threading.Event(), threading.Event()

    def on_answer(key: str, answer: Answer) -> None:
        told.append(answer.queued)
        if len(told) == 1:
            source.mode = "down"
            telling.set()
            go.wait(30)

    def drain() -> None:
        source.mode = "up"
        thread.start()
        telling.wait(30)

    source = Flaky()
    source.mode = "down"
    filter, queue = BloomFilter(100), InterruptedQueue(tmp_path / "q", fsync=False)
    filter.add("a")
    with Guard(filter, source, queue=queue, on_answer=on_answer, **QUIET) as guard:
        thread = threading.Thread(target=guard.drain)
        asked.append(guard.get("a").queued)
        if when == "before":
            queue.before = drain
        else:
            drain()
        asked.append(guard.get("a").queued)
        go.set()
        thread.join()
        source.mode = "up"
        guard.drain()
        assert told[0] == asked[0]
        assert asked[1] in told[1:]
        assert queue.waiting() == 0
