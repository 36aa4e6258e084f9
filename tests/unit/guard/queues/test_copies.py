"""Adds that wait share one copy of their key in a filter that counts: it is not filled by a key
that is written often, and denies nothing that is there or waits."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bloomery import CountingBloomFilter, CuckooFilter
from bloomery.errors import FilterFull
from bloomery.guard import Guard, SqliteQueue
from privates import end_drainer
from unit.guard.flaky import QUIET, Flaky
from unit.guard.harness import by_hand
from unit.guard.table import Line

COUNTING: list[Any] = [CountingBloomFilter, CuckooFilter]
UPDATES = 20


@pytest.fixture(params=COUNTING, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Any:
    """A kind that counts."""
    return request.param


def made(filter: Any, source: Flaky, queue: Any) -> Guard:
    """A guard that drains when it is told to."""
    guard = Guard(filter, source, queue=queue, **QUIET)
    end_drainer(guard)
    return guard


@pytest.mark.parametrize("was_there", [False, True])
def test_updates_that_wait_share_a_copy(
    kind: Any, source: Flaky, queue: SqliteQueue, was_there: bool
) -> None:
    """However often a key is written while the source is down, in the end it has one copy, and
    leaves the filter with the source."""
    filter = kind(100, 1e-6)
    if was_there:
        source.rows["a"] = "before"
        filter.add("a")
    guard = made(filter, source, queue)
    for number in range(UPDATES):
        guard.add("a", number)
        # The first was tried, and may come late: the others wait behind it.
        assert filter.count("a") <= 2 + was_there
    source.mode = "up"
    assert guard.drain() == UPDATES
    assert source.rows == {"a": UPDATES - 1}
    assert 1 <= filter.count("a") <= 1 + was_there  # of the first nobody knows what it found
    guard.remove("a")
    if not was_there:
        assert "a" not in filter


def test_a_restart_adopts_a_queue_with_many_updates(
    kind: Any, source: Flaky, queue: SqliteQueue
) -> None:
    """The filter is new, and gets each key once."""
    first = made(kind(100, 1e-6), source, queue)
    for number in range(UPDATES):
        first.add("a", number)
    filter = kind(100, 1e-6)
    second = made(filter, source, queue)
    assert filter.count("a") == 1
    source.mode = "up"
    assert second.drain() == UPDATES
    assert filter.count("a") == 1
    second.remove("a")
    assert "a" not in filter


def test_another_guard_drains_what_one_has_queued(
    kind: Any, source: Flaky, queue: SqliteQueue
) -> None:
    """Its filter is as large as there are keys, and there are many more updates."""
    keys = [f"key {number}" for number in range(60)]
    second = made(kind(100, 0.01), source, queue)
    first = made(kind(100, 0.01), source, queue)
    for number in range(600):
        first.add(keys[number % 60], number)
    source.mode = "up"
    assert second.drain() == 600
    assert queue.parked() == []
    assert all(second.filter.contains_many(keys))


def test_a_rebuild_takes_a_queue_with_many_updates(
    kind: Any, source: Flaky, queue: SqliteQueue
) -> None:
    """Of the keys that wait, some are in the source too; and it may name one more than once."""
    guard = made(kind(100, 1e-6), source, queue)
    source.rows["a"] = "before"
    for number in range(UPDATES):
        guard.add("a", number)
        guard.add("b", number)
    guard.rebuild(kind(200, 1e-6), lambda: [["a"], ["a"] * 9 + ["c"]])
    assert all(guard.filter.contains_many(["a", "b", "c"]))
    source.mode = "up"
    assert guard.drain() == 2 * UPDATES
    assert all(guard.filter.contains_many(["a", "b", "c"]))


def test_a_removal_between_two_adds_that_wait_denies_nothing(
    kind: Any, source: Flaky, queue: SqliteQueue
) -> None:
    """At no moment the filter denies a key that is in the source, or will be."""
    guard = made(kind(100, 1e-6), source, queue)
    filter = guard.filter

    def watch(what: str, key: Any) -> None:
        waiting = {item.key for item in queue.head(99) if item.what == "add"}
        assert all(filter.contains_many([*source.rows, *waiting]))

    for number in range(6):
        guard.add("a", number)
        guard.remove("a")
        guard.add("a", -number)
    source.mode, source.before = "up", watch
    assert guard.drain() == 18
    assert "a" in filter
    guard.remove("a")
    assert "a" not in filter


def test_who_is_not_the_one_that_took_a_removal_out_of_the_queue_leaves_the_filter_alone(
    kind: Any, source: Flaky
) -> None:
    """Another, that drained the same, took the key out of the filter that both use."""

    class Taken(Line):
        def done(self, items: Any) -> int:  # type: ignore[override]
            super().done(items)
            return 0

    filter, queue = kind(100, 1e-6), Taken()
    source.rows["a"] = 1
    filter.add("a")
    guard = Guard(filter, source, queue=queue, **QUIET)
    by_hand(guard)
    guard.remove("a")
    source.mode = "up"
    assert guard.drain() == 1
    assert source.rows == {}
    assert filter.count("a") == 1


def test_a_filter_without_room_shares_the_last_copy(source: Flaky, tmp_path: Path) -> None:
    """There is none for those that wait behind a key that is new: then they have the source's, and
    a removal before them leaves it."""
    queue = SqliteQueue(tmp_path / "q", fsync=False)
    filter = CuckooFilter(4, 0.01)
    guard = made(filter, source, queue)
    for what, value in (("add", 1), ("add", 2), ("remove", 0), ("add", 3)):
        guard.add("a", value) if what == "add" else guard.remove("a")
    with suppress(FilterFull):
        for number in range(100):
            filter.add(number)
    seen = []
    source.mode, source.before = "up", lambda what, key: seen.append("a" in filter)
    assert guard.drain() == 4
    assert seen == [True] * 4
    assert source.rows == {"a": 3}
    assert "a" in filter
    queue.close()
