"""An admission cache keeps a value at its second request, whatever its store and filter do."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from cachetools import LRUCache, TTLCache, cached

from bloomery import BloomFilter, RotatingBloomFilter, errors
from bloomery.apps import AdmissionCache, AsyncAdmissionCache
from unit.clocks import Clock, timed


class Origin:
    """What is slow: it counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def load(self, key: Any) -> str:
        self.asked.append(key)
        return f"value of {key}"


class Away(dict[Any, Any]):
    """A store that cannot be reached."""

    def __getitem__(self, key: Any) -> Any:
        raise ConnectionError("away")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TimeoutError("away")


def cache_of(store: Any) -> AdmissionCache:
    return AdmissionCache(store, RotatingBloomFilter(1000, 1e-9, window=None))


def test_the_second_request_is_cached() -> None:
    """The first request goes past the cache, the second fills it, the third is answered by it."""
    origin, store = Origin(), dict[str, str]()
    cache = cache_of(store)
    for held in (0, 1, 1):
        assert cache.get("a", origin.load) == "value of a"
        assert len(store) == held
    assert origin.asked == ["a", "a"]
    counts = cache.info()
    assert (counts["hits"], counts["misses"]) == (1, 2)
    assert (counts["admitted"], counts["passed_by"]) == (1, 1)
    assert counts["hit_ratio"] == pytest.approx(1 / 3)


def test_none_is_a_value() -> None:
    """A value of None, or any other that is false, is cached as others are."""
    asked: list[str] = []
    cache = cache_of({})
    for _ in range(4):
        assert cache.get("k", asked.append) is None
    assert len(asked) == 2


def test_a_first_request_fades() -> None:
    """What was asked for once is forgotten after the window: a later request is a first again, and
    one within it is cached though generations turned over in between."""
    origin, store = Origin(), dict[str, str]()
    filter, clock = timed(100, 4)
    cache = AdmissionCache(store, filter)
    cache.get("soon", origin.load)
    clock.now += 99  # four rotations, within the window
    cache.get("soon", origin.load)
    assert "soon" in store
    cache.get("late", origin.load)
    clock.now += 126
    cache.get("late", origin.load)
    assert "late" not in store


def test_what_was_evicted_comes_back_at_once() -> None:
    """A value that left the store is cached at its next request, as long as the filter knows it."""
    origin, store = Origin(), dict[str, str]()
    cache = cache_of(store)
    for _ in range(2):
        cache.get("a", origin.load)
    del store["a"]
    cache.get("a", origin.load)
    assert "a" in store


def test_a_failed_load_is_no_request() -> None:
    """What `load` raises is raised; the next request that succeeds is the first."""
    store = dict[str, str]()
    cache = cache_of(store)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            cache.get("a", lambda key: 1 // 0)
    cache.get("a", Origin().load)
    assert not store


def test_a_store_that_is_away_is_gone_without() -> None:
    """Values are loaded and returned while the store raises; the figures say so."""
    cache, origin = cache_of(Away()), Origin()
    assert [cache.get("a", origin.load) for _ in range(3)] == ["value of a"] * 3
    assert cache.info()["unavailable"] == 5  # three look-ups, two writes
    with pytest.raises(TypeError, match="unhashable"):  # a mistake of the caller is not hidden
        cache_of({}).get([], origin.load)


def test_a_value_too_large_for_the_store_is_returned() -> None:
    """cachetools refuses what is larger than the whole cache: it is loaded each time."""
    cache = cache_of(LRUCache(10, getsizeof=len))
    for _ in range(3):
        assert cache.get("a", lambda key: "x" * 11) == "x" * 11
    assert cache.info()["refused"] == 2


def test_the_time_to_live_is_the_stores() -> None:
    """With a TTLCache a value leaves when its time is over, and one request brings it back."""
    clock = Clock()
    cache, origin = cache_of(TTLCache(10, ttl=60, timer=clock)), Origin()
    for _ in range(3):
        cache.get("a", origin.load)
    clock.now = 61
    for _ in range(2):
        cache.get("a", origin.load)
    assert len(origin.asked) == 3


@pytest.mark.parametrize("lock", [None, threading.Lock()], ids=["no lock", "lock"])
def test_it_stands_in_for_a_mapping(lock: Any) -> None:
    """`@cached` of cachetools uses it as it uses its own caches."""
    asked = []

    def square_of(number: int) -> int:
        asked.append(number)
        return number**2

    cache: Any = cache_of({})
    square = cached(cache, lock=lock)(square_of)

    assert [square(3) for _ in range(4)] == [9] * 4
    assert len(asked) == 2


@pytest.mark.parametrize("key", [1.5, None, frozenset({1}), "\ud800", (1, None, str)])
def test_keys_that_no_filter_takes(key: Any) -> None:
    """Whatever can be a key of the store can be a key of the cache."""
    asked: list[Any] = []
    cache = cache_of({})
    for _ in range(4):
        cache.get(key, asked.append)
        cache.get("other", str)
    assert asked == [key] * 2


def test_keyword_arguments() -> None:
    """`@cached` makes a key of keyword arguments that no filter would take."""
    cache: Any = cache_of({})
    square = cached(cache)(lambda number: number**2)
    assert [square(number=3) for _ in range(3)] == [9] * 3
    assert cache.info()["hits"] == 1


def test_mapping_operations() -> None:
    """Setting offers, asking and deleting are as of a dict."""
    cache = cache_of({})
    cache["a"] = 1
    assert "a" not in cache
    with pytest.raises(KeyError):
        cache["a"]
    cache["a"] = 1
    assert cache["a"] == 1
    del cache["a"]
    assert cache.find("a", "nothing") == "nothing"


def test_a_new_value_replaces_an_old_one_though_the_filter_forgot() -> None:
    """An offer after the filter has rotated does not leave the old value to be served."""
    store: dict[str, int] = {}
    filter, clock = timed(100, 4)
    cache = AdmissionCache(store, filter)
    cache.offer("a", 1)
    cache.offer("a", 1)
    clock.now += 1000
    assert cache.offer("a", 2)
    assert store == {"a": 2}
    clock.now += 1000
    assert not cache.offer("b", 2)
    assert store == {"a": 2}


def test_put_and_delete() -> None:
    """`put` does not ask the filter; what was deleted is loaded again."""
    cache, origin = cache_of({}), Origin()
    assert cache.put("a", 1)
    assert cache.get("a", origin.load) == 1
    cache.delete("a")
    cache.delete("never there")
    assert cache.get("a", origin.load) == "value of a"


def test_a_load_that_a_delete_overtook_is_not_kept() -> None:
    """What was loaded before a change, and comes after it, is returned and not cached."""
    store: dict[str, str] = {}
    cache = cache_of(store)

    def load(key: str) -> str:
        cache.delete(key)  # by another thread, while this one loads
        return "old"

    for _ in range(3):
        assert cache.get("a", load) == "old"
    assert not store


def test_delete_says_when_the_store_is_away() -> None:
    """A value that could not be deleted may still be served, so the caller hears of it."""

    class Stuck(dict[Any, Any]):
        def pop(self, *_: Any) -> Any:
            raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        cache_of(Stuck()).delete("a")


def test_keys_that_collide_in_the_filter_are_two_values() -> None:
    """With a filter that says maybe to everything, every first request is cached, each its own."""
    full = BloomFilter.with_shape(512, 1, layout="classic")
    full.update(range(10_000))
    store = dict[int, str]()
    cache, origin = AdmissionCache(store, full), Origin()
    for key in range(100):
        assert cache.get(key, origin.load) == f"value of {key}"
    assert store == {key: f"value of {key}" for key in range(100)}


def test_threads() -> None:
    """Many threads get the right values; the store stays within its size and the figures add up."""
    store: LRUCache[int, str] = LRUCache(50)
    cache, origin = cache_of(store), Origin()
    wrong = []

    def work(seed: int) -> None:
        for step in range(1500):
            key = (seed + step * 37) % 80
            if cache.get(key, origin.load) != f"value of {key}":
                wrong.append(key)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = cache.info()
    assert not wrong
    assert len(store) <= 50
    assert counts["hits"] + counts["misses"] == 4 * 1500
    assert counts["misses"] == len(origin.asked) == counts["admitted"] + counts["passed_by"]
    assert counts["passed_by"] == 80, "of several that ask for a key first, one is the first"


def test_a_mapping_is_used_by_one_thread_at_a_time() -> None:
    """cachetools' caches have no lock of their own: no two threads are ever inside one."""
    inside: list[int] = []
    most: list[int] = []

    class Alone(dict[Any, Any]):
        def used(self) -> None:
            inside.append(1)
            time.sleep(0.0005)  # others run meanwhile
            most.append(len(inside))
            inside.pop()

        def __getitem__(self, key: Any) -> Any:
            self.used()
            return super().__getitem__(key)

        def __setitem__(self, key: Any, value: Any) -> None:
            self.used()
            super().__setitem__(key, value)

        def pop(self, *args: Any) -> Any:
            self.used()
            return super().pop(*args)

        def __contains__(self, key: object) -> bool:
            self.used()
            return super().__contains__(key)

    cache = cache_of(Alone())

    def work(seed: int) -> None:
        for step in range(20):
            key = (seed + step) % 3
            cache.get(key, str)
            cache.offer(step + 100 * seed, step)
            cache.put(key, step)
            cache.delete(key)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdmissionCache(5, BloomFilter(10)), "store is a int, must be a mapping"),
        (lambda: AdmissionCache({}, {}), "filter is a dict, must be a filter"),
        (lambda: AdmissionCache({}, set()), "filter is a set, must be a filter"),
        (
            lambda: cache_of({}).get("a", cast("Any", None)),
            r"load is None.*`find\(key, default\)` only looks",
        ),
    ],
)
def test_what_is_wrong_is_said(make: Callable[[], Any], message: str) -> None:
    """A store, a filter or a function that is none is refused with what would be right."""
    with pytest.raises(errors.InvalidParameter, match=message):
        make()


def test_asyncio() -> None:
    """The twin for asyncio does the same, with a coroutine to load."""

    async def load(key: str) -> str:
        asked.append(key)
        await asyncio.sleep(0)
        return key * 2

    async def main() -> None:
        cache = AsyncAdmissionCache({}, RotatingBloomFilter(1000, window=None))
        for _ in range(3):
            assert await cache.get("a", load) == "aa"
        assert await cache.find("b", 5) == 5
        await asyncio.gather(*(cache.get("c", load) for _ in range(10)))
        assert await cache.find("c") == "cc"

    asked: list[str] = []
    asyncio.run(main())
    assert asked.count("a") == 2


def test_a_filter_that_is_awaited() -> None:
    """A filter whose `add` is a coroutine, as one in Redis has for asyncio, is waited for."""

    class Remote:
        def __init__(self) -> None:
            self.known: set[str] = set()

        async def add(self, key: str) -> bool:
            new = key not in self.known
            self.known.add(key)
            return new

    async def main() -> dict[str, Any]:
        cache = AsyncAdmissionCache({}, Remote())

        async def load(key: str) -> str:
            return key

        for _ in range(3):
            await cache.get("a", load)
        return cache.info()

    counts = asyncio.run(main())
    assert (counts["hits"], counts["admitted"], counts["passed_by"]) == (1, 1, 1)
