"""A new filter for a live one: what is refused, what fails, and the orders that matter by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from bloomery import BloomFilter, CountingBloomFilter, CuckooFilter, DeletableBloomFilter, errors
from bloomery.guard import Guard
from bloomery.guard.queues.draining import drain
from bloomery.guard.rebuilding import rebuild
from bloomery.guard.writes import add, remove
from privates import core_of
from unit.guard.harness import by_hand
from unit.guard.stepping import Steps
from unit.guard.table import Line, Table, away

Made = Callable[..., Any]
KINDS: list[Any] = [BloomFilter, CountingBloomFilter, CuckooFilter, DeletableBloomFilter]


def test_a_new_filter_takes_the_place_of_the_old(guard_of: Made) -> None:
    """It has what the source has, the old one is returned, and errors are counted anew."""
    table, told = Table({n: n for n in range(100)}), list[int]()
    old = BloomFilter(100, 0.01)
    old.update(range(200))
    guard = guard_of(old, table)
    assert not guard.get(150)
    assert guard.info()["false_positives"] == 1
    new = BloomFilter(1000, 1e-6)

    def batches() -> Iterator[list[int]]:
        assert core_of(guard).info()["rebuilding"] is True
        yield list(range(60))
        yield list(range(60, 100))

    assert guard.rebuild(new, batches, on_batch=told.append) is old
    assert (guard.filter is new, told) == (True, [60, 40])
    assert guard.get(150).by == "filter"
    assert guard.get(99).value == 99
    info = guard.info()
    assert (info["false_positives"], info["true_negatives"], info["rebuilding"]) == (0, 1, False)


def test_a_reading_that_fails_changes_nothing(guard_of: Made) -> None:
    """The old filter goes on, writes go to it alone, and a rebuild can be tried again."""
    table, old = Table({"a": 1}), BloomFilter(100)
    old.add("a")
    guard = guard_of(old, table)

    def batches() -> Iterator[list[str]]:
        yield ["a"]
        raise ConnectionError("cut")

    new = BloomFilter(100)
    with pytest.raises(ConnectionError, match="cut"):
        guard.rebuild(new, batches)
    guard.add("b", 2)
    assert (guard.filter is old, "b" in old, "b" in new) == (True, True, False)
    assert guard.rebuild(BloomFilter(100), lambda: [list(table.rows)]) is old
    assert guard.get("b").value == 2


def test_one_rebuild_at_a_time(guard_of: Made) -> None:
    """A second one is refused, the filter itself for a new one, and a reading that has begun; the
    first goes on."""
    guard = guard_of(BloomFilter(100), Table())
    with pytest.raises(errors.InvalidParameter, match=r"batches is a list, must be a function .*"):
        guard.rebuild(BloomFilter(100), [["a"]])
    with pytest.raises(errors.InvalidParameter, match="new is the filter itself"):
        guard.rebuild(guard.filter, list)
    core, new = core_of(guard), BloomFilter(100)
    first = Steps(rebuild(core, new, lambda: [["a"]], None))
    first.step()
    second = Steps(rebuild(core, BloomFilter(100), list, None))
    second.finish()
    assert "is being rebuilt already" in str(second.problem)
    first.finish()
    assert core.filter is new


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_began_before_is_waited_for(kind: Any) -> None:
    """It knows of one filter only: the source is read when it has ended."""
    table = Table()
    core = core_of(Guard(kind(100, 1e-6), table))
    write = Steps(add(core, "a", 1, None))
    for _ in range(3):  # into the filter; the source is next
        write.step()
    assert "a" in core.filter
    assert table.rows == {}
    building = Steps(rebuild(core, kind(100, 1e-6), lambda: [list(table.rows)], None))
    building.finish()
    assert core.filters[1] is not None
    write.finish()
    building.finish()
    assert building.ended
    assert table.rows == {"a": 1}
    assert "a" in core.filter


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("removed", [False, True])
def test_a_write_that_comes_late_is_not_denied(kind: Any, removed: bool) -> None:
    """It timed out before the rebuild, and the source does it afterwards; that the key was written
    again and removed in between says nothing of it."""
    table = Table()
    guard = Guard(kind(100, 1e-6), table)
    table.problem = TimeoutError()
    for _ in range(2):
        with pytest.raises(errors.SourceUnavailable):
            guard.add("a", 1)
    table.problem = None
    if removed:
        guard.add("a", 2)
        guard.remove("a")
    guard.rebuild(kind(100, 1e-6), lambda: [list(table.rows)])
    table.add("a", 1, "late")
    assert guard.get("a").value == 1
    guard.remove("a")
    table.add("a", 1, "later")
    assert guard.get("a").value == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_waits_is_not_denied(kind: Any) -> None:
    """It is in the queue while the filter is rebuilt, and is done afterwards."""
    table, queue = Table(), Line()
    guard = Guard(kind(100, 1e-6), table, queue=queue, on_outage="queue", failures=10**6)
    by_hand(guard)
    table.problem = away()
    assert guard.add("a", 1).by == "unconfirmed"
    assert guard.add("b", 2).by == "unconfirmed"  # behind the other: the source was not even asked
    guard.rebuild(kind(100, 1e-6), lambda: [list(table.rows)])
    table.problem = None

    def watch(what: str, keys: Sequence[Any]) -> None:
        assert keys[0] in guard.filter

    table.before = watch
    assert guard.drain() == 2
    assert [answer.value for answer in guard.get_many(["a", "b"])] == [1, 2]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_removal_meanwhile_takes_nothing_out_of_the_new_filter(kind: Any) -> None:
    """The key may not be in it: to take it out would take out another's cells."""
    table = Table({n: n for n in range(40)})
    filter = kind(40, 0.3)
    filter.update(table.rows)
    core, new = core_of(Guard(filter, table)), kind(40, 0.3)
    new.update(range(20, 40))  # as far as the reading got
    core.filters = (filter, new)
    for key in range(20):
        Steps(remove(core, key, None)).finish()
    assert all(new.contains_many(range(20, 40)))
    assert list(table.rows) == list(range(20, 40))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("what", ["remove", "update"])
def test_a_write_across_the_swap_takes_nothing_out_of_the_new_filter(kind: Any, what: str) -> None:
    """A write that began with the old filter, and ends with the new one in its place."""
    table = Table({n: n for n in range(40)})
    filter, new = kind(40, 0.3), kind(40, 0.3)
    filter.update(table.rows)
    core = core_of(Guard(filter, table))
    writes = [
        Steps(remove(core, key, None) if what == "remove" else add(core, key, 0, None))
        for key in range(20)
    ]
    for write in writes:
        for _ in range(2 if what == "remove" else 4):  # until the source has done it
            write.step()
    new.update(table.rows)
    core.filters = (new, None)
    for write in writes:
        write.finish()
        assert write.ended
    assert all(new.contains_many(list(table.rows)))


def test_a_write_that_is_drained_again_and_again_has_one_copy() -> None:
    """After a restart the filter may lack it; a long outage must not fill the filter with it."""
    table, queue = Table(), Line()
    before = Guard(CuckooFilter(100, 1e-6), table, queue=queue, on_outage="queue", failures=10**6)
    by_hand(before)
    table.problem = away()
    before.add("a", 1)
    after = Guard(CuckooFilter(100, 1e-6), table, queue=queue, on_outage="queue", failures=10**6)
    by_hand(after)
    for _ in range(20):
        Steps(drain(core_of(after))).finish()
    assert after.filter.count("a") == 1
    table.problem = None
    assert after.drain() == 1
    assert (table.rows, queue.aside) == ({"a": 1}, [])


def test_a_restart_with_an_older_filter_does_not_deny_what_waits() -> None:
    """Whoever wrote it was told that it will be there: from the first moment on it may be."""
    table, queue = Table(), Line()
    before = Guard(BloomFilter(100), table, queue=queue, on_outage="queue", failures=10**6)
    by_hand(before)
    table.problem = away()
    before.add("a", 1)
    after = Guard(BloomFilter(100), table, queue=queue, on_outage="queue", failures=10**6)
    by_hand(after)
    assert after.get("a").by == "unconfirmed"


def test_a_source_that_has_batches_needs_none() -> None:
    """A table can be read from end to end by itself; a function must be told how."""
    table = Table({"a": 1})
    guard = Guard(BloomFilter(10), table)
    with pytest.raises(errors.InvalidParameter, match="batches"):
        guard.rebuild(BloomFilter(100))
    table.batches = lambda: [list(table.rows)]  # type: ignore[attr-defined]
    guard.rebuild(BloomFilter(100))
    assert (guard.filter.capacity, "a" in guard.filter) == (100, True)
