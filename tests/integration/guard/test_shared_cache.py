"""Several guards, each with a filter and look-ups of its own, share one cache: what one of them has
written, none of them denies."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.guard import AsyncGuard, AsyncRedisCache, Guard, LocalCache, RedisCache
from conftest import require
from integration.servers import RedisServer, wait_until
from privates import core_of

redis = require("redis")


class Slow:
    """Rows of a database; who reads them waits with what was read until it may go on."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {"there": "old"}
        self.read, self.go_on = threading.Event(), threading.Event()
        self.slow = True

    def get_many(self, keys: Sequence[str]) -> Mapping[str, Any]:
        found = {key: self.rows[key] for key in keys if key in self.rows}
        if self.slow:
            self.slow = False
            self.read.set()
            assert self.go_on.wait(30)
        return found

    def add(self, key: str, value: Any, idempotency_key: str) -> bool:
        new = key not in self.rows
        self.rows[key] = value
        return new

    def remove(self, key: str, idempotency_key: str) -> bool:
        return self.rows.pop(key, None) is not None


class Guards:
    """Guards of one source on one cache, for threads or for asyncio, asked in the same words."""

    def __init__(self, how: str, url: str) -> None:
        self.source = Slow()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        local = LocalCache()
        self.caches: list[Any] = []

        def cache() -> Any:
            if how == "local":
                return local
            made = RedisCache(url, "t:") if how == "threads" else AsyncRedisCache(url, "t:")
            self.caches.append(made)
            return made

        kind: Any = AsyncGuard if how == "asyncio" else Guard
        self.made = [kind(self.filter(), self.source, cache=cache(), timeout=30) for _ in "AB"]
        self.first, self.second = (self.asked(guard) for guard in self.made)

    def filter(self) -> BloomFilter:
        filter = BloomFilter(100)
        filter.update(["there", "new"])
        return filter

    def wait(self, coroutine: Any) -> Any:
        if not asyncio.iscoroutine(coroutine):
            return coroutine
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def asked(self, guard: Any) -> Callable[..., Any]:
        return lambda what, *args: self.wait(getattr(guard, what)(*args))

    def close(self) -> None:
        for cache in self.caches:
            self.wait(cache.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(params=["threads", "asyncio", "local"])
def guards(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[Guards]:
    """Two of them."""
    made = Guards(request.param, f"redis://127.0.0.1:{redis_server.port}")
    yield made
    made.source.go_on.set()
    made.close()


WRITES: dict[str, tuple[Any, ...]] = {
    "a new key": ("add", "new", "now"),
    "an update": ("add", "there", "now"),
    "a removal": ("remove", "there"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("batch", [False, True], ids=["get", "get_many"])
def test_an_old_answer_is_not_cached_over_a_write_of_another_guard(
    guards: Guards, write: tuple[Any, ...], batch: bool
) -> None:
    """B has read the row, slowly; A writes it, and has its answer; then B comes to the cache."""
    key = write[1]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(guards.second, *(("get_many", [key, "x"]) if batch else ("get", key)))
        assert guards.source.read.wait(30)
        guards.first(*write)
        guards.source.go_on.set()
        late.result(30)
    for guard in (guards.first, guards.second, guards.first):
        answer = guard("get", key)
        assert (answer.found, answer.value) == (
            key in guards.source.rows,
            guards.source.rows.get(key),
        )
    assert answer.by == "cache"


@pytest.mark.parametrize("guards", ["threads", "asyncio"], indirect=True)
@pytest.mark.parametrize("lost", ["flushed", "restarted"])
def test_a_redis_that_lost_the_token_holds_no_old_answer(
    guards: Guards, redis_server: RedisServer, lost: str
) -> None:
    """Then nobody knows whether the key was written meanwhile, and it was."""
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(guards.second, "get", "new")
        assert guards.source.read.wait(30)
        guards.first("add", "new", "now")
        if lost == "flushed":
            redis_server.ask(b"FLUSHALL\r\n")
        else:
            redis_server.kill()
            redis_server.start()
        guards.source.go_on.set()
        late.result(30)
    assert guards.first("get", "new").value == "now"


@pytest.mark.parametrize("guards", ["threads", "asyncio"], indirect=True)
def test_what_is_asked_for_in_vain_is_soon_gone(guards: Guards, redis_server: RedisServer) -> None:
    """A token of a look-up that came to nothing expires; none is left beside an answer."""
    with redis.Redis(port=redis_server.port) as other:
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(guards.second, "get", "new")
            assert guards.source.read.wait(30)
            (name,) = other.keys("*")
            assert 0 < other.pttl(name) <= 60_000
            assert other.strlen(name) == 9
            guards.source.go_on.set()
            late.result(30)
        assert other.keys("*") == [name]
        assert other.strlen(name) == 23


def test_a_write_that_is_known_is_not_denied_by_an_older_look_up(guards: Guards) -> None:
    """B looks up a row; A adds it, and has its answer; whoever then asks B is not told what the
    older look-up found."""
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(guards.second, "get", "new")
        assert guards.source.read.wait(30)
        guards.first("add", "new", "now")
        late = pool.submit(guards.second, "get", "new")
        flights = core_of(guards.made[1]).flights
        assert wait_until(lambda: flights.begun == 2)
        guards.source.go_on.set()
        early.result(30)
        assert late.result(30).value == "now"
