"""Many who ask for one key at once make one query, and whoever leads them may fail. Without a cache
they make two: the first one's answer may be older than what the others know when they ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.guard import AsyncGuard, Guard, lookups
from privates import core_of
from unit.guard.table import Memory, Table
from waiting import wait_until, wait_until_async

pytestmark = pytest.mark.slow
CROWD = 200
KEYS = [f"key {n}" for n in range(10)]


def filter_of_keys() -> BloomFilter:
    """A filter that has KEYS."""
    filter = BloomFilter(100)
    filter.update(KEYS)
    return filter


def gated(table: Table) -> tuple[threading.Event, threading.Event]:
    """Let the table say that it was asked, and wait with its answer until it may go on."""
    asked, go_on = threading.Event(), threading.Event()

    def wait(what: str, keys: Sequence[Any]) -> None:
        asked.set()
        assert go_on.wait(20)

    table.before = wait
    return asked, go_on


def waiting(guard: Guard | AsyncGuard, most: int) -> Callable[[], bool]:
    """Do so many wait for the look-ups that are under way?"""

    def enough() -> bool:
        flights = set(core_of(guard).flights.table.values())
        flights |= {one for flight in flights for one in flight.following.values()}
        futures: list[Any] = [future for flight in flights if (future := flight.landed)]
        return sum(len(future._condition._waiters) for future in futures) >= most

    return enough


@pytest.mark.parametrize("cache", [None, Memory()], ids=["without a cache", "with a cache"])
@pytest.mark.parametrize("timeout", [None, 20])
def test_200_threads_on_a_cold_key_make_one_query(cache: Memory | None, timeout: Any) -> None:
    """One asks, and all have its answer from the cache; without one, one more asks for the rest."""
    table = Table({"key 1": "value"})
    asked, go_on = gated(table)
    guard = Guard(filter_of_keys(), table, cache=cache, timeout=timeout)
    if cache is not None:
        cache.held.clear()
    with ThreadPoolExecutor(CROWD) as crowd:
        answers = [crowd.submit(guard.get, "key 1") for _ in range(CROWD)]
        assert asked.wait(10)
        assert wait_until(waiting(guard, CROWD - 1))
        go_on.set()
        assert {answer.result(10).value for answer in answers} == {"value"}
    assert table.asked == [["key 1"]] * (2 if cache is None else 1)
    assert core_of(guard).flights.table == {}


def test_200_tasks_on_a_cold_key_make_one_query() -> None:
    """The same for asyncio, with a source that is a coroutine."""

    async def main() -> None:
        asked, go_on, count = asyncio.Event(), asyncio.Event(), 0

        async def one(key: str) -> str:
            nonlocal count
            count += 1
            asked.set()
            await go_on.wait()
            return "value"

        guard = AsyncGuard(filter_of_keys(), one, cache=Memory())
        tasks = [asyncio.create_task(guard.get("key 1")) for _ in range(CROWD)]
        await asked.wait()
        go_on.set()
        assert {answer.value for answer in await asyncio.gather(*tasks)} == {"value"}
        assert count == 1
        assert core_of(guard).flights.table == {}

    asyncio.run(main())


def test_batches_that_overlap_in_both_directions_do_not_wait_for_each_other() -> None:
    """Each leads for some keys and follows for others: all end, and no key is asked for twice at
    once."""
    table = Table({key: key for key in KEYS})
    under_way: set[str] = set()
    lock, twice = threading.Lock(), list[str]()

    def watch(what: str, keys: Sequence[Any]) -> None:
        with lock:
            twice.extend(under_way.intersection(keys))
            under_way.update(keys)

    class Watched(Table):
        def get_many(self, keys: Sequence[Any]) -> Any:
            found = super().get_many(keys)
            with lock:
                under_way.difference_update(keys)
            return found

    table = Watched(table.rows)
    table.before = watch
    guard = Guard(filter_of_keys(), table, timeout=10)

    def ask(number: int) -> bool:
        keys = KEYS[number % 10 :] + KEYS[: number % 10]
        keys = keys[: 2 + number % 7]
        keys = keys[::-1] if number % 2 else keys
        return [answer.value for answer in guard.get_many(keys)] == keys

    with ThreadPoolExecutor(16) as crowd:
        assert all(crowd.map(ask, range(400), timeout=60))
    assert twice == []
    assert core_of(guard).flights.table == {}


@pytest.mark.parametrize("problem", [ConnectionError("refused"), ValueError("a bug")])
def test_followers_of_one_that_fails_are_told_why(problem: Exception) -> None:
    """The question is not asked again by each of them, and the next one asks anew."""
    table = Table({"key 1": "value"})
    asked, go_on = gated(table)
    guard = Guard(filter_of_keys(), table, failures=10)
    with ThreadPoolExecutor(20) as crowd:
        answers = [crowd.submit(guard.get, "key 1") for _ in range(20)]
        assert asked.wait(10)
        assert wait_until(waiting(guard, 19))
        table.problem = problem
        go_on.set()
        for answer in answers:
            with pytest.raises((errors.SourceUnavailable, ValueError), match=r"refused|a bug"):
                answer.result(10)
    assert len(table.asked) == 1
    assert core_of(guard).flights.table == {}
    table.problem = None
    assert guard.get("key 1").value == "value"


def test_followers_of_one_that_is_interrupted_ask_themselves() -> None:
    """Ctrl-C is for the thread it hits; one of those who waited for it asks for all."""
    table = Table({"key 1": "value"})
    asked, go_on = gated(table)
    guard = Guard(filter_of_keys(), table, timeout=None)
    wait = table.before

    def interrupt(what: str, keys: Sequence[Any]) -> None:
        wait(what, keys)
        if len(table.asked) == 1:
            raise KeyboardInterrupt

    table.before = interrupt
    with ThreadPoolExecutor(5) as crowd:
        answers = [crowd.submit(guard.get, "key 1") for _ in range(5)]
        assert asked.wait(10)
        assert wait_until(waiting(guard, 4))
        go_on.set()
        problems = [answer.exception(10) for answer in answers]
    assert sorted(type(problem).__name__ for problem in problems) == (
        ["KeyboardInterrupt"] + 4 * ["NoneType"]
    )
    assert {answer.result().value for answer in answers if not answer.exception()} == {"value"}


@pytest.mark.parametrize("on_outage", ["raise", "maybe"])
def test_followers_of_a_task_that_is_cancelled_ask_themselves(on_outage: Any) -> None:
    """A client that hangs up takes nobody's answer with it, who asked for the same key."""
    asked: list[asyncio.Event] = []

    async def look(key: str) -> str:
        asked.append(asyncio.Event())
        await asked[-1].wait()
        return "value"

    async def crowd() -> None:
        guard = AsyncGuard(filter_of_keys(), look, on_outage=on_outage)
        first, *others = [asyncio.create_task(guard.get("key 1")) for _ in range(200)]
        while len(asked) < 1:
            await asyncio.sleep(0)
        first.cancel()
        assert await wait_until_async(lambda: len(asked) == 2)
        asked[1].set()
        answers = await asyncio.gather(*others)
        assert {(answer.value, answer.by) for answer in answers} == {("value", "source")}
        assert len(asked) == 2
        assert core_of(guard).flights.table == {}

    asyncio.run(asyncio.wait_for(crowd(), 20))


def test_a_cancelled_leader_and_a_cancelled_follower_leave_nobody_waiting() -> None:
    """A task that is cancelled ends alone: its followers are told to ask again, its leader goes on
    for the others."""

    async def main() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def one(key: str) -> str:
            asked.set()
            await go_on.wait()
            return "value"

        guard = AsyncGuard(filter_of_keys(), one, timeout=0.5)
        leader, *others = [asyncio.create_task(guard.get("key 1")) for _ in range(5)]
        await asked.wait()
        others[0].cancel()
        await asyncio.sleep(0)
        leader.cancel()
        done = await asyncio.gather(leader, *others, return_exceptions=True)
        assert [type(problem).__name__ for problem in done] == 2 * ["CancelledError"] + 3 * [
            "SourceUnavailable"
        ]
        assert core_of(guard).flights.table == {}
        go_on.set()
        assert (await guard.get("key 1")).value == "value"

    asyncio.run(main())


def test_a_look_up_that_never_ends_is_not_waited_for_by_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever led it is gone without a word: who waited is told, and the next one asks anew."""
    monkeypatch.setattr(lookups, "_SOME_SECONDS", 0.01)
    guard = Guard(filter_of_keys(), Table({"key 1": "value"}), timeout=1)
    core_of(guard).flights.claim(dict.fromkeys([b"\0key 1"]))
    with pytest.raises(errors.SourceUnavailable, match="does not end"):
        guard.get("key 1")
    assert guard.get("key 1").value == "value"
