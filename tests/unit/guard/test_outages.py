"""A source that is away, slow or wrong, without a server: who hears what, and who asks again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.guard import AsyncGuard, CallSource, Guard
from privates import core_of
from unit.clocks import Clock
from unit.guard.harness import by_hand, guards
from unit.guard.table import Line, Memory, Table, away

Made = Callable[..., Any]


def filter_of(*keys: Any) -> BloomFilter:
    """A filter that has these keys."""
    filter = BloomFilter(1000, 1e-6)
    filter.update(keys)
    return filter


def test_a_slow_source_is_not_waited_for(guard_of: Made) -> None:
    """After its time it is an outage, which names the seconds."""
    go_on = threading.Event()
    guard = guard_of(filter_of("a"), CallSource(lambda key: go_on.wait(10)), timeout=0.02)
    with pytest.raises(errors.SourceUnavailable, match=r"no answer within 0\.02 s") as raised:
        guard.get("a")
    assert isinstance(raised.value.__cause__, TimeoutError)
    go_on.set()


def test_a_slow_coroutine_is_not_waited_for() -> None:
    """The same for a coroutine, which is cancelled."""
    import asyncio

    async def slow(key: Any) -> None:
        await asyncio.sleep(60)

    guard = AsyncGuard(filter_of("a"), slow, timeout=0.02)
    with pytest.raises(errors.SourceUnavailable, match=r"no answer within 0\.02 s"):
        asyncio.run(guard.get("a"))


@pytest.mark.parametrize(
    "problem",
    [
        away(),
        TimeoutError("late"),
        asyncio.TimeoutError("late"),  # before Python 3.11 another
        ConnectionResetError("reset"),
        OSError(113, "no route"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_what_says_that_the_source_is_away(guard_of: Made, problem: BaseException) -> None:
    """Each is SourceUnavailable with its words, and counts for the breaker."""
    table = Table({"a": 1})
    guard = guard_of(filter_of("a"), table, failures=2)
    table.problem = problem
    for _ in range(2):
        with pytest.raises(errors.SourceUnavailable, match=r"away|late|reset|no route"):
            guard.get("a")
    with pytest.raises(errors.SourceUnavailable, match=r"table is down, and is tried again in"):
        guard.get("a")
    assert len(table.asked) == 2
    assert guard.info()["source"] == "open"


def test_a_source_that_is_wrong_is_not_away(guard_of: Made) -> None:
    """Its own error comes through, and the breaker stays closed."""
    table = Table({"a": 1})
    guard = guard_of(filter_of("a"), table, failures=1)
    table.problem = ZeroDivisionError("a bug")
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="a bug"):
            guard.get("a")
    info = guard.info()
    assert (info["source"], info["source_failures"], len(table.asked)) == ("closed", 0, 3)


def test_one_caller_tries_a_source_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the try is under way all others hear at once that it is down; then it answers all."""
    clock = Clock(1000.0)
    table, keys = Table(), [f"key {n}" for n in range(9)]
    table.rows = dict.fromkeys(keys, 1)
    guard = Guard(filter_of(*keys), table, failures=1, retry=1, timeout=None)
    table.problem = away()
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", clock)
        with pytest.raises(errors.SourceUnavailable):
            guard.get(keys[0])
        clock.now += 1.1
        table.problem = None
        asked, go_on, answers = threading.Event(), threading.Event(), list[Any]()

        def wait(what: str, keys: Sequence[Any]) -> None:
            asked.set()
            assert go_on.wait(10)

        table.before = wait
        probe = threading.Thread(target=lambda: answers.append(guard.get(keys[1])))
        probe.start()
        assert asked.wait(10)
        assert guard.info()["source"] == "half-open"
        for key in keys[2:]:
            with pytest.raises(errors.SourceUnavailable, match="is down"):
                guard.get(key)
        go_on.set()
        probe.join()
    assert answers[0].value == 1
    assert len(table.asked) == 2
    assert (guard.get(keys[2]).value, guard.info()["source"]) == (1, "closed")


@pytest.mark.parametrize(
    ("garbage", "says"),
    [
        ([("a", 1)], "answered a list, must be a mapping"),
        (None, "answered a NoneType, must be a mapping"),
        ("a", "answered a str, must be a mapping"),
        ({"b": 1}, "answered for 1 keys that it was not asked for (of 1)"),
        ({b"a": 1}, "a key must come back as it was given, of the same type"),
        ({"a": 1, "b": 2}, "answered for 1 keys that it was not asked for (of 1)"),
    ],
)
def test_a_mapping_that_is_none_is_refused(guard_of: Made, garbage: Any, says: str) -> None:
    """Nothing of it is cached; the breaker stays closed; the message shows no key."""
    cache = Memory()

    class Garbage(Table):
        def get_many(self, keys: Sequence[Any]) -> Any:
            return garbage

    guard = guard_of(filter_of("a"), Garbage(), cache=cache, failures=1)
    for ask, given in ((guard.get, "a"), (guard.get_many, ["a", "no"])):
        with pytest.raises(errors.InvalidSource) as raised:
            ask(given)
        assert says in str(raised.value)
    assert cache.held == {}
    assert guard.info()["source"] == "closed"


@pytest.mark.parametrize("what", ["add", "remove"])
def test_a_write_that_returns_garbage_is_refused(guard_of: Made, what: str) -> None:
    """Only True, False and None say what came of it."""

    class Garbage(Table):
        def add(self, key: Any, value: Any, idempotency_key: str) -> Any:
            return 1

        def remove(self, key: Any, idempotency_key: str) -> Any:
            return 1

    guard = guard_of(filter_of("a"), Garbage())
    with pytest.raises(errors.InvalidSource, match=f"{what} of the source table returned a int"):
        guard.add("a", 1) if what == "add" else guard.remove("a")
    assert core_of(guard).writers.under_way() == []


@pytest.mark.parametrize("how", ["threads", "asyncio"])
@pytest.mark.parametrize("many", [False, True])
def test_a_coroutine_for_an_answer_is_refused(how: str, many: bool) -> None:
    """A plain function that returns one: no guard knows of it before."""

    async def value(key: Any) -> int:
        return 1

    source = CallSource(many=lambda keys: value(keys)) if many else (lambda key: value(key))
    with guards(how) as made:
        guard = made(filter_of("a"), source)
        with pytest.raises(errors.InvalidSource, match="answered a coroutine"):
            guard.get("a")


def test_a_source_that_cannot_write_says_so(guard_of: Made) -> None:
    """What it lacks, and what to do."""
    guard = guard_of(filter_of("a"), CallSource(lambda key: key))
    for write, what in ((guard.add, "add"), (guard.remove, "remove")):
        with pytest.raises(errors.InvalidSource, match=f"has no {what}: give it one"):
            write("a")


@pytest.mark.parametrize("policy", ["raise", "stale", "maybe", "queue"])
def test_what_each_policy_says_of_one_key_and_of_many(guard_of: Made, policy: str) -> None:
    """Fresh answers of the cache and the filter's no are given under each of them."""
    table, cache, queue = Table({"a": 1, "b": 2, "c": 3}), Memory(), Line()
    options = {"queue": queue} if policy == "queue" else {}
    guard = guard_of(
        filter_of("a", "b", "c", "gone", "cold"),
        table,
        cache=cache,
        on_outage=policy,
        stale_for=1000,
        **options,
    )
    guard.close()  # nothing is drained meanwhile
    guard.get_many(["a", "b", "gone"])
    cache.age(400)
    guard.get("b")  # fresh again
    table.problem = away()
    assert [answer.by for answer in guard.get_many(["b", "no"])] == ["cache", "filter"]
    if policy == "raise":
        for ask, given in ((guard.get, "a"), (guard.get_many, ["a", "b", "no"])):
            with pytest.raises(errors.SourceUnavailable, match="the table is away"):
                ask(given)
    elif policy == "stale":
        answers = guard.get_many(["a", "b", "gone", "no"])
        assert [(a.found, a.value, a.by, a.confirmed) for a in answers] == [
            (True, 1, "stale", False),
            (True, 2, "cache", True),
            (False, None, "stale", False),
            (False, None, "filter", True),
        ]
        with pytest.raises(errors.SourceUnavailable, match="1 of 2 keys are not in the cache"):
            guard.get_many(["a", "b", "cold"])
    else:
        answers = guard.get_many(["a", "b", "cold", "no"])
        maybe = "unconfirmed"
        assert [answer.by for answer in answers] == [maybe, "cache", maybe, "filter"]
        assert [answer.found for answer in answers] == [True, True, True, False]
        assert [answer.queued is not None for answer in answers] == [
            policy == "queue",
            False,
            policy == "queue",
            False,
        ]
        assert [item.key for item in queue.items] == (["a", "cold"] if policy == "queue" else [])


def test_a_write_while_the_source_is_down_is_an_error_or_waits(guard_of: Made) -> None:
    """Only a queue keeps it; then a look-up of that key is unconfirmed until it is done."""
    table, queue, told = Table({"a": 1}), Line(), list[Any]()
    for policy in ("raise", "stale", "maybe"):
        guard = guard_of(filter_of("a"), table, on_outage=policy)
        table.problem = away()
        with pytest.raises(errors.SourceUnavailable):
            guard.add("b", 2)
        with pytest.raises(errors.SourceUnavailable):
            guard.remove("a")
    guard = guard_of(
        filter_of("a"),
        table,
        queue=queue,
        on_outage="queue",
        cache=Memory(),
        failures=10**6,
        on_answer=lambda key, answer: told.append((key, answer.value)),
    )
    by_hand(guard)
    assert guard.add("b", 2).queued == queue.items[0].idempotency_key
    table.problem = None
    assert guard.add("a", 3).by == "unconfirmed"  # behind the one that waits
    assert guard.get("a").by == "unconfirmed"
    assert [item.what for item in queue.items] == ["add", "add", "look"]
    assert guard.drain() == 3
    assert table.rows == {"a": 3, "b": 2}
    assert told == [("a", 3)]
    assert (guard.get("a").by, guard.get("b").by) == ("cache", "source")
