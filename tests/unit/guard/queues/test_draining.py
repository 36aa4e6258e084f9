"""Draining: what waited for the source gets there in order and once, whatever else is written and
asked meanwhile."""

import threading
import time
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.guard import Answer, Guard, SqliteQueue
from privates import drainer_of
from unit.guard.flaky import QUIET, Flaky
from unit.guard.table import Memory
from waiting import wait_until


def test_what_the_source_refuses_is_set_aside(
    guard: Guard, source: Flaky, queue: SqliteQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Those behind it go on; the reason is kept, and no key gets into a log."""

    def refuse(what: str, key: str) -> None:
        if "poison" in key:
            raise KeyError(key)

    for key in ("a", "poison", "b", "poison too"):
        guard.add(key, 1)
    for key in ("a", "poison", "b"):
        guard.get(key)
    source.mode, source.before = "up", refuse
    assert guard.drain() == 7
    assert source.rows == {"a": 1, "b": 1}
    assert [(item.what, item.key) for item, _ in queue.parked()] == [
        ("add", "poison"),
        ("add", "poison too"),
        ("look", "poison"),
    ]
    assert all("the source refuses it: KeyError" in why for _, why in queue.parked())
    assert "KeyError" in caplog.text
    assert "poison" not in caplog.text
    assert guard.info()["parked"] == 3


def test_an_answer_that_cannot_be_told_is_set_aside(source: Flaky, queue: SqliteQueue) -> None:
    """Each is told once; only the one that failed is kept."""
    told = []

    def on_answer(key: str, answer: Answer) -> None:
        told.append(key)
        if key == "b":
            raise RuntimeError("no room")

    filter = BloomFilter(100)
    filter.add_many(list("abc"))
    with Guard(filter, source, queue=queue, on_answer=on_answer, **QUIET) as guard:
        for key in "abc":
            guard.get(key)
        source.mode = "up"
        guard.drain()
        assert told == ["a", "b", "c"]
        ((kept, why),) = queue.parked()
        assert (kept.key, why) == ("b", "on_answer fails: RuntimeError: no room")


def test_a_filter_that_is_away_is_no_fault_of_the_item(source: Flaky, queue: SqliteQueue) -> None:
    """It stays at the head of the queue, and the source is not asked."""

    class Remote:
        away = False

        def __init__(self) -> None:
            self.filter = BloomFilter(100)

        def contains_many(self, keys: Any) -> Any:
            return self.filter.contains_many(keys)

        def add(self, key: Any) -> bool:
            if self.away:
                raise ConnectionError("the filter's server is away")
            return self.filter.add(key)

    filter = Remote()
    with Guard(filter, source, queue=queue, **QUIET) as guard:
        guard.add("a", 1)
        source.mode, filter.away = "up", True
        with pytest.raises(ConnectionError, match="filter's server"):
            guard.drain()
        assert (queue.waiting(), queue.parked(), source.rows) == (1, [], {})
        filter.away = False
        assert guard.drain() == 1
    assert source.rows == {"a": 1}


def test_a_popular_key_waits_once(guard: Guard, queue: SqliteQueue) -> None:
    """All who ask for it wait for the same, until something is written."""
    guard.filter.add("a")
    first = [guard.get("a").queued for _ in range(5)]
    guard.add("b", 1)
    second = [guard.get("a").queued for _ in range(5)]
    assert len({*first}) == len({*second}) == 1
    assert first[0] != second[0]
    assert [(item.what, item.key) for item in queue.head(9)] == [
        ("look", "a"),
        ("add", "b"),
        ("look", "a"),
    ]


def test_an_old_answer_is_not_cached_over_a_write_that_waits(
    source: Flaky, queue: SqliteQueue
) -> None:
    """A look-up is answered while a later write of its key still waits: nobody else hears of it."""
    told = []

    def on_answer(key: str, answer: Answer) -> None:
        told.append((answer.value, there.get(key).by))

    there = Guard(
        BloomFilter(100), source, cache=Memory(), queue=queue, on_answer=on_answer, **QUIET
    )
    with there:
        there.add("a", 1)
        there.get("a")
        there.add("a", 2)
        source.mode = "up"
        there.drain()
        assert told == [(1, "unconfirmed"), (2, "cache")]
        assert there.get("a").value == 2


def test_one_drains_at_a_time(guard: Guard, source: Flaky, queue: SqliteQueue) -> None:
    """A drain that is called during another waits for it, and finds nothing left."""
    for number in range(20):
        guard.add(number, 1)
    source.mode = "up"
    begun, go = threading.Event(), threading.Event()

    def hold(what: str, key: Any) -> None:
        begun.set()
        go.wait(20)

    source.before = hold
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(guard.drain())) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(20)
    go.set()
    for thread in threads:
        thread.join()
    assert sorted(counts) == [0, 0, 20]
    assert source.calls == list(source.did)


def test_who_loses_the_lease_stops(
    guard: Guard, source: Flaky, queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another took over in mid-drain: the item under way is done, and no other."""
    monkeypatch.setattr("bloomery.guard.queues.draining.LEASE_SECONDS", 0.0)
    for number in range(5):
        guard.add(number, 1)
    source.mode = "up"
    source.before = lambda what, key: key == 2 and queue.lease("another", 60)
    assert guard.drain() == 3
    assert [item.key for item in queue.head(9)] == [3, 4]
    assert guard.drain() == 0
    queue.release("another")
    assert guard.drain() == 2
    assert list(source.rows) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_the_queue_ends_however_many_write(source: Flaky, queue: SqliteQueue) -> None:
    """Four threads write without a pause, faster than the source: it is drained all the same."""
    with Guard(
        BloomFilter(100_000), source, queue=queue, on_outage="queue", timeout=None, retry=0.05
    ) as guard:
        for number in range(200):
            guard.add(("first", number), 1)
        source.before = lambda what, key: time.sleep(0.001) if what == "add" else None
        ended = threading.Event()
        longest = 0.0
        written = []

        def write(thread: int) -> None:
            nonlocal longest
            number = 0
            while not ended.is_set():
                began = time.monotonic()
                if guard.add((thread, number), 1).by == "source":
                    ended.set()  # nothing was before it
                longest = max(longest, time.monotonic() - began)
                written.append((thread, number))
                number += 1

        threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
        source.mode = "up"
        for thread in threads:
            thread.start()
        assert ended.wait(60), f"{queue.writes()} still wait"
        for thread in threads:
            thread.join()
        assert wait_until(lambda: queue.waiting() == 0)
        assert longest < 20.0
        assert len(source.rows) == 200 + len(written)


def test_on_answer_may_use_the_guard(source: Flaky, queue: SqliteQueue) -> None:
    """It asks, writes, drains and closes from within the drain, and waits for nobody."""

    def on_answer(key: Any, answer: Answer) -> None:
        there.add(("heard", key), 1)
        there.get(key)
        assert there.drain() == 0
        if key == 1:
            there.close()

    filter = BloomFilter(100)
    filter.add_many([0, 1])
    there = Guard(filter, source, queue=queue, on_answer=on_answer, **{**QUIET, "retry": 0.01})
    there.get_many([0, 1])
    source.mode = "up"
    drainer_of(there).join(20)
    assert not drainer_of(there).is_alive()
    assert ("heard", 1) in source.rows


def test_a_source_that_is_back_is_noticed_by_itself(source: Flaky, queue: SqliteQueue) -> None:
    """A look-up closes the breaker, and the drainer does not wait for the breaker's own time."""
    told: list[str] = []
    with Guard(
        BloomFilter(100),
        source,
        queue=queue,
        on_outage="queue",
        on_answer=lambda key, answer: told.append(key),
        failures=1,
        retry=0.02,
        most_retry=0.02,
        timeout=None,
    ) as guard:
        guard.add("a", 1)
        guard.get("a")
        source.mode = "up"
        assert wait_until(lambda: told == ["a"])
        assert source.rows == {"a": 1}
        assert wait_until(lambda: guard.add("b", 1).by == "source")
