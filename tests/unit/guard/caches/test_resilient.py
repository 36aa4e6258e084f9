"""The cache as a guard uses it: never missed when it is away, never older than a write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.guard.caches import resilient
from bloomery.guard.protocols import Cached
from privates import core_of
from unit.clocks import Clock
from unit.guard.table import Memory, Table

Made = Callable[..., Any]
DOWN = [errors.CacheUnavailable("refused"), ConnectionError("refused"), TimeoutError("slow")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A steady clock that stands until it is moved."""
    made = Clock(1000.0)
    monkeypatch.setattr(time, "monotonic", made)
    return made


def filter_of(*keys: Any) -> BloomFilter:
    """A filter that has these keys."""
    filter = BloomFilter(1000, 1e-6)
    filter.update(keys)
    return filter


@pytest.mark.parametrize("problem", DOWN, ids=lambda problem: type(problem).__name__)
def test_without_the_cache_the_source_answers(
    guard_of: Made, clock: Clock, problem: BaseException
) -> None:
    """No error; the cache is let alone for a second, then tried again by itself."""
    table, cache = Table({"a": 1}), Memory()
    guard = guard_of(filter_of("a"), table, cache=cache, timeout=None)
    cache.problem = problem
    assert [guard.get("a").by for _ in range(5)] == ["source"] * 5
    assert cache.asked == 1
    assert guard.info()["cache_failures"] == 1
    cache.problem = None
    assert guard.get("a").by == "source"
    clock.now += 1.1
    assert (guard.get("a").by, guard.get("a").by) == ("source", "cache")


@pytest.mark.parametrize("what", ["add", "remove"])
def test_what_could_not_be_deleted_is_not_served_when_the_cache_is_back(
    guard_of: Made, clock: Clock, what: str
) -> None:
    """The cache was away when a key was written, and still has the old value: it is deleted before
    the cache is asked for anything."""
    table, cache = Table({"a": "old", "b": 1}), Memory()
    guard = guard_of(filter_of("a", "b"), table, cache=cache, timeout=None)
    guard.get_many(["a", "b"])
    cache.problem = DOWN[0]
    guard.add("a", "new") if what == "add" else guard.remove("a")
    now = table.rows.get("a")
    assert guard.get("a").value == now
    cache.problem = None
    held = cache.of("a")
    assert held is not None
    assert held.value == "old"
    clock.now += 1.1
    assert guard.get("b").by == "cache"
    assert cache.of("a") is None
    assert (guard.get("a").value, guard.get("a").by) == (now, "cache")


def test_what_was_half_stored_is_not_served(guard_of: Made, clock: Clock) -> None:
    """A `set_many` that failed may have stored some; who writes then does not know of it."""
    table = Table({"a": "old"})

    class Cut(Memory):
        cut = True

        def set_many(self, entries: Sequence[tuple[bytes, Cached]]) -> None:
            super().set_many(entries)
            if self.cut:
                raise ConnectionError("cut")

    cache = Cut()
    guard = guard_of(filter_of("a"), table, cache=cache, timeout=None)
    guard.get("a")
    assert cache.of("a") is not None
    table.rows["a"] = "new"
    cache.cut = False
    clock.now += 1.1
    assert guard.get("a").value == "new"


def test_too_much_left_undeleted_leaves_the_cache_unused(
    guard_of: Made, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all that it may hold is over: then it holds nothing old, whatever it missed."""
    monkeypatch.setattr(resilient, "_MOST_UNDELETED", 10)
    keys = [f"key {n}" for n in range(12)]
    table, cache = Table(dict.fromkeys(keys, "old")), Memory()
    guard = guard_of(filter_of(*keys), table, cache=cache, ttl=60, negative_ttl=5, timeout=None)
    guard.get_many(keys)
    cache.problem = DOWN[0]
    for key in keys:
        guard.add(key, "new")
    cache.problem = None
    for seconds in (0.0, 30.0, 29.0):
        clock.now += seconds
        assert {answer.value for answer in guard.get_many(keys)} == {"new"}
    asked = cache.asked
    clock.now += 2
    cache.held.clear()  # as its own expiry has done by now
    assert {answer.by for answer in guard.get_many(keys)} == {"source"}
    assert {answer.by for answer in guard.get_many(keys)} == {"cache"}
    assert cache.asked > asked


def test_a_write_while_the_cache_comes_back_is_deleted_too(clock: Clock) -> None:
    """The key was left undeleted once, and is written again while that is made up for."""
    from bloomery.guard.caches.resilient import ResilientCache
    from unit.guard.stepping import Steps

    cache = Memory()
    used = ResilientCache(cache, 60)
    used.outdate([b"a"])
    deleting = Steps(used.delete([b"b"]))
    deleting.step()
    deleting.step()  # both are deleted; it has not heard of it yet
    cache.held[b"a"] = Cached(True, "old", 2e9, 2e9)  # by a look-up of another process
    used.outdate([b"a"])
    deleting.finish()
    Steps(used.get([b"c"])).finish()
    assert b"a" not in cache.held


def test_a_poisoned_value_is_one_error_then_healed(guard_of: Made) -> None:
    """Who reads it is told; the cache has deleted it, and the next one asks the source."""

    class Poisoned(Memory):
        def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
            held: list[Any] = super().get_many(keys)
            if "poison" in held:
                self.held.clear()
                raise errors.PoisonedCache("not written by a guard")
            return held

    cache: Any = Poisoned()
    guard = guard_of(filter_of("a", "b"), Table({"a": 1, "b": 2}), cache=cache)
    guard.get_many(["a", "b"])
    cache.held = dict.fromkeys(cache.held, "poison")
    with pytest.raises(errors.PoisonedCache, match="not written by a guard"):
        guard.get("a")
    assert (guard.get("a").value, guard.get("a").by) == (1, "cache")
    assert core_of(guard).flights.table == {}
    assert guard.info()["cache_failures"] == 0
