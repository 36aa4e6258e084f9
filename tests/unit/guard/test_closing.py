"""The end of a drain: closed, cancelled, forked; what was under way is not lost, nor done twice."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import QueueUnavailable
from bloomery.guard import Answer, AsyncGuard, Guard, SqliteQueue
from privates import core_of, drainer_of
from unit.guard.flaky import QUIET, Flaky, end_lease

pytestmark = pytest.mark.slow


def test_closing_stops_after_the_item_under_way(
    guard: Guard, source: Flaky, queue: SqliteQueue, tmp_path: Path
) -> None:
    """The rest stays in the queue, for the next guard."""
    for number in range(5):
        guard.add(number, 1)
    source.mode = "up"

    def close(what: str, key: Any) -> None:
        core_of(guard).closing = key == 1

    source.before = close
    assert guard.drain() == 2
    guard.close()
    guard.close()
    with pytest.raises(QueueUnavailable, match="closed"):
        guard.add(9, 1)
    source.before = lambda what, key: None
    with Guard(BloomFilter(99), source, queue=SqliteQueue(tmp_path / "q"), **QUIET) as following:
        following.drain()
    assert list(source.rows) == [0, 1, 2, 3, 4]


def test_closing_does_not_wait_for_a_source_that_hangs(
    source: Flaky, queue: SqliteQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs stays in the queue, and is done again under the same idempotency key."""
    monkeypatch.setattr("bloomery.guard.queues.drainer._JOIN_SECONDS", 0.1)
    go, hangs = threading.Event(), threading.Event()
    guard = Guard(BloomFilter(100), source, queue=queue, **{**QUIET, "retry": 0.01})
    guard.add("a", 1)

    def hang(what: str, key: Any) -> None:
        hangs.set()
        go.wait(20)

    source.before, source.mode = hang, "up"
    hangs.wait(20)
    began = time.monotonic()
    guard.close()
    assert time.monotonic() - began < 15.0  # it hangs for 20
    go.set()
    drainer_of(guard).join(20)
    again = SqliteQueue(tmp_path / "q")
    assert again.waiting() == 1
    end_lease(tmp_path / "q")
    with Guard(BloomFilter(100), source, queue=again, **QUIET) as following:
        following.drain()
    assert len(source.calls) == 2
    assert len(source.did) == 1


_FORK = """
import os, sys, time
from bloomery import BloomFilter
from bloomery.guard import Guard, SqliteQueue
from unit.guard.flaky import Flaky
source = Flaky()
source.mode = "down"
guard = Guard(BloomFilter(100), source, queue=SqliteQueue(sys.argv[1]), on_outage="queue",
              failures=1, retry=0.05, most_retry=0.05)
guard.add("a", 1)
child = os.fork()
if child == 0:
    source.mode = "up"  # for the child: its memory is its own
    while guard._core.queue.waiting():
        time.sleep(0.01)
    os._exit(source.rows != {"a": 1})
assert os.waitpid(child, 0)[1] == 0
assert guard._core.queue.waiting() == 0
assert source.rows == {}
guard.close()
"""


def test_a_forked_child_drains_too(tmp_path: Path) -> None:
    """It has a drainer and workers of its own; what it did the parent does not do again."""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORK, str(tmp_path / "forked")],
        check=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


_FORK_LOCKED = """
import os
from bloomery import BloomFilter
from bloomery.guard import Guard, LocalCache
from unit.guard.table import Table
guard = Guard(BloomFilter(100), Table(), cache=LocalCache(10))
guard.add("a", 1)
core = guard._core

def batches():
    # As other threads may hold them at that moment.
    locks = [core._lock, core.rebuild_lock, core.observed._lock, core.source.breaker._lock,
             core.cache._lock, core.cache.breaker._lock, core.cache.cache._lock]
    for lock in locks:
        lock.acquire()
    child = os.fork()
    if child == 0:
        assert guard.get("a").value == 1
        assert guard.get("b").by == "filter"
        guard.add("b", 2)
        guard.info()
        guard.rebuild(BloomFilter(200), lambda: [["a", "b"]])
        assert guard.filter.capacity == 200 and guard.get("b").value == 2
        os._exit(0)
    for lock in locks:
        lock.release()
    assert os.waitpid(child, 0)[1] == 0
    yield ["a"]

guard.rebuild(BloomFilter(300), batches)
assert guard.filter.capacity == 300
"""


@pytest.mark.slow
def test_a_child_waits_for_no_lock_of_its_parent() -> None:
    """Nor for its rebuild: whoever held and did them is not in the child."""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORK_LOCKED],
        check=True,
        timeout=120,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


# For asyncio.


def test_a_drain_that_is_cancelled_goes_on_later(source: Flaky, queue: SqliteQueue) -> None:
    """Cancelled in mid-item: the item stays, the lease is given back, what was done is told."""
    hangs = asyncio.Event()
    go = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def hang(what: str, key: Any) -> None:
            if key == 2:
                loop.call_soon_threadsafe(hangs.set)
                go.wait(20)

        guard = AsyncGuard(BloomFilter(100), source, queue=queue, **QUIET)
        for number in range(4):
            await guard.add(number, 1)
        source.mode, source.before = "up", hang
        task = asyncio.create_task(guard.drain())
        await hangs.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [item.key for item in queue.head(9)] == [2, 3]
        assert queue.lease("another", -1)
        go.set()
        assert await guard.drain() == 2
        await guard.close()

    asyncio.run(main())
    assert list(source.rows) == [0, 1, 2, 3]
    assert len(source.did) == 4


def test_a_source_that_hangs_does_not_keep_asyncio_from_its_queue(
    source: Flaky, queue: SqliteQueue
) -> None:
    """Every thread that asks the source hangs; others write down what waits."""
    go = threading.Event()
    source.mode = "up"
    source.before = lambda what, key: go.wait(20)

    async def main() -> list[Answer]:
        guard = AsyncGuard(
            BloomFilter(100), source, queue=queue, on_outage="queue", timeout=0.05, max_queries=2
        )
        answers = await asyncio.gather(*(guard.add(number, 1) for number in range(6)))
        await guard.close()
        return answers

    try:
        answers = asyncio.run(asyncio.wait_for(main(), 15))
    finally:
        go.set()
    assert [answer.by for answer in answers] == ["unconfirmed"] * 6


def test_an_async_guard_drains_by_a_task(source: Flaky, queue: SqliteQueue) -> None:
    """`on_answer` may be a coroutine; a queue that is away is tried again."""
    told: list[Any] = []
    heard = asyncio.Event()

    async def on_answer(key: Any, answer: Answer) -> None:
        await asyncio.sleep(0)
        told.append((key, answer.value))
        heard.set()

    async def main() -> None:
        async with AsyncGuard(
            BloomFilter(100),
            source,
            queue=queue,
            on_answer=on_answer,
            **{**QUIET, "retry": 0.02, "most_retry": 0.02},
        ) as guard:
            await guard.add("a", 1)
            await guard.get("a")
            source.mode = "up"
            await asyncio.wait_for(heard.wait(), 20)

    asyncio.run(main())
    assert told == [("a", 1)]
