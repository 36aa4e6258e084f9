"""Writing through a guard: filter before source, one copy, no harm to others, nothing old left."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bloomery import BloomFilter, CountingBloomFilter, CuckooFilter, DeletableBloomFilter, errors
from bloomery.guard import AsyncGuard, Guard
from bloomery.guard.driver import Call
from bloomery.guard.lookups import confirm
from bloomery.guard.protocols import Item
from bloomery.guard.queues.draining import drain
from bloomery.guard.writes import add, remove
from privates import core_of
from unit.filters.together import switching_often
from unit.guard.harness import by_hand
from unit.guard.stepping import Steps, every_order
from unit.guard.table import Line, Memory, Table, away

Made = Callable[..., Any]
REMOVING: list[Any] = [CountingBloomFilter, CuckooFilter, DeletableBloomFilter]


@pytest.mark.parametrize("kind", [BloomFilter, *REMOVING])
def test_what_the_source_is_asked_to_write_is_in_the_filter(guard_of: Made, kind: Any) -> None:
    """When the source gets a key, and until it has let go of it, the filter has it."""
    table, filter, seen = Table(), kind(100), list[str]()

    def watch(what: str, keys: Sequence[Any]) -> None:
        assert keys[0] in filter
        seen.append(what)

    table.before = watch
    guard = guard_of(filter, table)
    assert guard.add("a", 1).by == "source"
    assert guard.get("a").value == 1
    assert guard.remove("a").found
    assert seen == ["add", "get", "remove"]


@pytest.mark.parametrize("kind", REMOVING)
def test_a_removed_key_leaves_a_filter_that_can_forget(guard_of: Made, kind: Any) -> None:
    """After `remove` the filter itself says no."""
    guard = guard_of(kind(100, 1e-6), Table(), cache=Memory())
    guard.add("a", 1)
    assert guard.remove("a").found is True
    assert guard.get("a").by == "filter"
    assert guard.remove("a").found is False


@pytest.mark.parametrize("kind", [CountingBloomFilter, CuckooFilter])
def test_an_update_leaves_one_copy(guard_of: Made, kind: Any) -> None:
    """However often a value is written, one removal takes its key out of the filter."""
    guard = guard_of(kind(100, 1e-6), Table())
    for value in range(5):
        assert guard.add("a", value).value == value
    assert guard.filter.count("a") == 1
    guard.remove("a")
    assert "a" not in guard.filter


def test_a_second_try_keeps_its_copy(guard_of: Made) -> None:
    """Of a second try under the same idempotency key nobody knows whose key it found there."""
    table = Table()
    guard = guard_of(CountingBloomFilter(100, 1e-6), table)
    table.problem = away()
    with pytest.raises(errors.SourceUnavailable):
        guard.add("a", 1, idempotency_key="once")
    table.problem = None
    guard.add("a", 1, idempotency_key="once")
    guard.add("a", 1, idempotency_key="once")
    assert table.done == {"once": True}
    assert guard.filter.count("a") == 3


@pytest.mark.parametrize("kind", REMOVING)
def test_removing_what_was_never_there_harms_nobody(guard_of: Made, kind: Any) -> None:
    """The filter errs about an absent key; to remove it takes nothing from the others."""
    table, filter = Table({n: n for n in range(60)}), kind(60, 0.2)
    filter.update(table.rows)
    wrong = [n for n in range(1000, 2000) if n in filter]
    guard = guard_of(filter, table)
    assert len(wrong) > 10
    for key in wrong:
        assert not guard.remove(key)
    assert all(filter.contains_many(list(table.rows)))


def test_a_late_write_is_not_denied_by_a_filter_without_copies() -> None:
    """A write that timed out may come after a later write and a removal of the same key."""
    table, late = Table(), list[Callable[[], object]]()
    guard = Guard(DeletableBloomFilter(100, 1e-6), table)
    core = core_of(guard)

    def hold(what: str, keys: Sequence[Any]) -> None:
        late.append(lambda: table.rows.setdefault(keys[0], "late"))
        raise TimeoutError("no answer within 5 s")

    table.before = hold
    with pytest.raises(errors.SourceUnavailable, match="no answer within 5 s"):
        guard.add("a", 1)
    table.before = lambda what, keys: None
    guard.add("a", 2)
    guard.remove("a")
    late[0]()
    assert guard.get("a").value == "late"
    assert core.writers.doubtful() == ["a"]


def test_only_what_the_source_was_asked_is_in_doubt(guard_of: Made) -> None:
    """A breaker that is open asks nothing, and a refusal is an answer: neither can come late."""
    table = Table()
    guard = guard_of(BloomFilter(100), table, failures=1, retry=100, most_retry=100)
    table.problem = errors.InvalidSource("no such column")
    with pytest.raises(errors.InvalidSource):
        guard.add("refused", 1)
    table.problem = away()
    for key in ("asked", "not asked"):
        with pytest.raises(errors.SourceUnavailable):
            guard.add(key, 1)
    assert core_of(guard).writers.doubtful() == ["asked"]


def test_a_second_try_that_is_answered_ends_the_doubt(guard_of: Made) -> None:
    """The same idempotency key, answered: the first try changes nothing any more."""
    table = Table()
    guard = guard_of(BloomFilter(100), table)
    table.problem = away()
    with pytest.raises(errors.SourceUnavailable):
        guard.add("a", 1, idempotency_key="once")
    table.problem = None
    guard.add("a", 1)
    assert core_of(guard).writers.doubtful() == ["a"]
    guard.add("a", 1, idempotency_key="once")
    assert core_of(guard).writers.doubtful() == []


@pytest.mark.parametrize(
    "problem",
    [away(), TimeoutError(), errors.InvalidSource("?"), KeyError("a bug"), KeyboardInterrupt()],
    ids=lambda problem: type(problem).__name__,
)
@pytest.mark.parametrize("what", ["add", "remove"])
def test_a_write_that_fails_leaves_nothing_old_in_the_cache(what: str, problem: Any) -> None:
    """The source may have done it before it failed: what was cached is not served again."""
    table, cache = Table({"a": "old"}), Memory()
    filter = BloomFilter(100)
    filter.add("a")
    guard = Guard(filter, table, cache=cache, timeout=None)

    def do_it_and_fail(asked: str, keys: Sequence[Any]) -> None:
        if asked != "get":
            table.rows["a"] = "new"
            raise problem

    assert (guard.get("a").by, guard.get("a").by) == ("source", "cache")
    table.before = do_it_and_fail
    with pytest.raises((errors.SourceUnavailable, type(problem))):
        guard.add("a", "new") if what == "add" else guard.remove("a")
    assert guard.get("a").value == "new"


def test_a_cancelled_write_leaves_nothing_old_in_the_cache() -> None:
    """A task that is cancelled while the source writes: the source may go on with it."""

    async def main() -> None:
        filter, cache, began = BloomFilter(100), Memory(), asyncio.Event()
        rows = {"a": "old"}
        filter.add("a")

        class Slow:
            async def get_many(self, keys: Sequence[Any]) -> Any:
                return {key: rows[key] for key in keys}

            async def add(self, key: Any, value: Any, idempotency_key: str) -> None:
                rows[key] = value
                began.set()
                await asyncio.sleep(60)

        guard = AsyncGuard(filter, Slow(), cache=cache)
        assert (await guard.get("a")).value == "old"
        task = asyncio.create_task(guard.add("a", "new"))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await guard.get("a")).value == "new"
        assert core_of(guard).writers.under_way() == []

    asyncio.run(main())


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("what", ["add", "remove"])
def test_no_order_of_a_look_up_and_a_write_leaves_an_old_answer(what: str, was_there: bool) -> None:
    """Every interleaving of the two, call by call: from the moment that the write has ended the
    cache holds nothing old."""
    made: dict[str, Any] = {}

    def begin() -> tuple[list[Steps], Callable[[], None]]:
        table, cache = Table({"a": "old"} if was_there else {}), Memory()
        filter = BloomFilter(10)
        filter.add("a")
        core = core_of(Guard(filter, table, cache=cache))
        made.update(table=table, cache=cache, core=core)
        write = Steps(add(core, "a", "new", None) if what == "add" else remove(core, "a", None))
        for _ in range(3 if what == "add" else 1):  # it is in the filter, where nobody minds it
            write.step()

        def check() -> None:
            held, now = cache.of("a"), table.rows.get("a")
            assert not write.ended or held is None or held.value == now

        return [Steps(confirm(core, ["a"])), write], check

    seen = set()
    for order, (look, write) in every_order(begin):
        assert look.problem is None, order
        assert write.problem is None, order
        cached, now = made["cache"].of("a"), made["table"].rows.get("a")
        assert cached is None or (cached.found, cached.value) == (now is not None, now), order
        assert made["core"].flights.table == {}, order
        assert made["core"].writers.under_way() == [], order
        seen.add((look.result[0].value, cached is not None))
    old = "old" if was_there else None
    new = "new" if what == "add" else None
    # It was tried for real: answers of before and after, left in the cache and not.
    assert {(old, False), (new, False), (new, True)} <= seen


@pytest.mark.parametrize("pair", [*itertools.product(("add", "remove"), repeat=2)], ids="-".join)
@pytest.mark.parametrize("kind", [CountingBloomFilter, DeletableBloomFilter])
def test_no_order_of_two_writes_makes_the_filter_deny(pair: tuple[str, str], kind: Any) -> None:
    """Two writes of one key in every order: at no moment the filter denies what the source has."""

    def begin() -> tuple[list[Steps], Callable[[], None]]:
        table, filter = Table({"a": 0}), kind(10, 1e-6)
        filter.add("a")
        core = core_of(Guard(filter, table))

        def check() -> None:
            assert "a" not in table.rows or "a" in filter

        return [
            Steps(add(core, "a", n, None) if what == "add" else remove(core, "a", None))
            for n, what in enumerate(pair, 1)
        ], check

    orders = list(every_order(begin))
    assert all(flow.problem is None and flow.ended for _, flows in orders for flow in flows)
    assert len(orders) > 2


@pytest.mark.parametrize("kind", REMOVING)
def test_threads_that_write_one_key(kind: Any) -> None:
    """Threads that add and remove the same few keys: what the source has then, the filter has."""
    table, filter = Table(), kind(100, 1e-3)
    guard = Guard(filter, table, cache=Memory(), timeout=None)
    problems: list[BaseException] = []

    def watch(what: str, keys: Sequence[Any]) -> None:
        if keys[0] not in filter and (what == "add" or keys[0] in table.rows):
            problems.append(AssertionError(what))

    def work(number: int) -> None:
        for n in range(60):
            key = f"key {n % 3}"
            guard.add(key, n) if (n + number) % 3 else guard.remove(key)

    table.before = watch
    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
    assert all(filter.contains_many(list(table.rows)))
    for key in list(table.rows):
        guard.remove(key)
    if kind is not DeletableBloomFilter:  # which forgets what it can, and has no copies to count
        assert not any(filter.contains_many([f"key {n}" for n in range(3)]))


def test_a_look_up_that_waited_leaves_no_old_answer() -> None:
    """It is drained while another asks for the same key, and while that key is written: a write
    tells only the one that came first."""
    table, cache, told = Table({"a": "old"}), Memory(), list[Any]()
    filter = BloomFilter(10)
    filter.add("a")
    guard = Guard(filter, table, cache=cache, queue=Line(), on_outage="queue", failures=10**6)
    by_hand(guard)
    core = core_of(guard)
    assert core.queue is not None
    core.queue.put([Item("look", "a", None, "1", 0.0)])
    core.on_answer = lambda key, answer: told.append(answer.value)
    first = Steps(confirm(core, ["a"]))
    first.step()
    draining = Steps(drain(core))
    while not table.asked:
        draining.step()  # it has read, and not heard of it yet
    table.rows["a"] = "new"
    core.flights.spoil(b"\0a")
    draining.finish()
    assert told == ["old"]
    assert cache.of("a") is None
    first.finish()
    assert first.result[0].value == "new"
    assert cache.of("a") is None


def test_no_order_of_a_look_up_and_a_lost_write_leaves_an_old_answer() -> None:
    """The source does it, and the answer is lost: nobody waits, yet nothing old is served then."""
    made: dict[str, Any] = {}

    def begin() -> tuple[list[Steps], Callable[[], None]]:
        table, cache = Table({"a": "old"}), Memory()
        core = core_of(Guard(BloomFilter(10), table, cache=cache))
        made.update(core=core)

        def lose(wanted: Call) -> Any:
            what: Any = wanted.what
            what(*wanted.args)
            if what == table.add:
                raise ConnectionError("cut")

        write = Steps(add(core, "a", "new", None), lose)
        for _ in range(3):
            write.step()
        return [Steps(confirm(core, ["a"])), write], lambda: None

    for order, (look, write) in every_order(begin):
        assert look.problem is None, order
        assert isinstance(write.problem, errors.SourceUnavailable), order
        after = Steps(confirm(made["core"], ["a"]))
        after.finish()
        assert after.result[0].value == "new", order


def test_a_cuckoo_filter_takes_a_key_that_fails_again_and_again(guard_of: Made) -> None:
    """It holds seven copies of a key at most: one that is written often while the source is down is
    written all the same when it is back, and no other key leaves with it."""
    table = Table({"b": 2})
    filter = CuckooFilter(100, 1e-6)
    filter.add("b")
    guard = guard_of(filter, table, failures=10**6)
    table.problem = away()
    for _ in range(20):
        with pytest.raises(errors.SourceUnavailable):
            guard.add("a", 1)
    table.problem = None
    for value in range(20):
        assert guard.add("a", value).by == "source"
        assert guard.get("a").value == value
    assert guard.remove("a").found
    assert guard.get("b").value == 2


@pytest.mark.parametrize("kind", [CountingBloomFilter, CuckooFilter])
def test_a_write_that_the_source_never_heard_of_leaves_no_copy(guard_of: Made, kind: Any) -> None:
    """While the source counts as down it is not asked, so that its key need not stay."""
    table, filter = Table({"b": 2}), kind(100, 1e-6)
    filter.add("b")
    guard = guard_of(filter, table, failures=1, retry=600, most_retry=600)
    table.problem = away()
    with pytest.raises(errors.SourceUnavailable):
        guard.get("b")  # now it counts as down
    for key in "ab" * 10:
        with pytest.raises(errors.SourceUnavailable):
            guard.add(key, 1)
    assert (filter.count("a"), filter.count("b")) == (0, 1)


def test_updates_that_wait_in_a_queue_do_not_fill_a_cuckoo_filter() -> None:
    """Twenty of one key wait, are in a new filter, and are done; and so is the next."""
    table = Table()
    guard = Guard(CuckooFilter(100, 1e-6), table, queue=Line(), on_outage="queue", failures=10**6)
    by_hand(guard)
    table.problem = away()
    for value in range(20):
        assert guard.add("a", value).by == "unconfirmed"
    guard.rebuild(CuckooFilter(100, 1e-6), lambda: [["b"]])
    assert "a" in guard.filter
    table.problem = None
    assert guard.drain() == 20
    assert guard.add("a", 20).by == "source"
    assert guard.get("a").value == 20
    guard.close()
