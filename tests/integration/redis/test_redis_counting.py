"""Counting filters in a real Redis: the bytes of a CountingBloomFilter, whatever is done."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bloomery import BloomFilter, CountingBloomFilter
from bloomery.errors import (
    FilterExists,
    IncompatibleFilters,
    InvalidParameter,
    StoreUnavailable,
    UnknownFilter,
)
from bloomery.integrations.redis import AsyncRedisCountingFilter, RedisCountingFilter, RedisFilter
from bloomery.integrations.redis.transfer import reading
from conftest import effort, require
from integration.servers import RedisServer

redis = require("redis")


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """A client of an empty Redis."""
    with redis_server.client() as made:
        yield made


# Few keys in few lines: counters are shared, and some get full.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "many", "remove", "discard", "remove_many", "count"]),
        st.lists(st.integers(0, 12), min_size=1, max_size=40),
    ),
    max_size=30,
)


def done(filter: Any, what: str, keys: list[int]) -> Any:
    """What comes of a step."""
    if what == "many":
        return list(filter.add_many(keys))
    if what == "remove_many":
        return list(filter.remove_many(keys))
    if what == "count":
        return filter.count(keys[0]), keys[0] in filter, list(filter.contains_many(keys))
    try:
        return getattr(filter, what)(keys[0])
    except KeyError as problem:
        return problem.args


@settings(
    max_examples=effort(10, 30, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, bits=st.sampled_from([4, 8]), error_rate=st.sampled_from([0.1, 1e-5]))
def test_as_the_local_filter(
    client: Any, steps: list[tuple[str, list[int]]], bits: int, error_rate: float
) -> None:
    """Whatever is added and removed, answers and bytes are those of a CountingBloomFilter."""
    client.flushall()
    shared = RedisCountingFilter.create(client, "seen", 20, error_rate, counter_bits=bits)
    local = CountingBloomFilter(20, error_rate, counter_bits=bits)
    for what, keys in steps:
        assert done(shared, what, keys) == done(local, what, keys), what
    assert shared.to_local() == local


@pytest.mark.parametrize("bits", [4, 8])
def test_full_counters_stay(client: Any, bits: int) -> None:
    """A key added more often than a counter counts is never removed, and that is said."""
    shared = RedisCountingFilter.create(client, "seen", 1000, 0.001, counter_bits=bits)
    shared.add_many(["a"] * 2**bits)
    assert shared.count("a") == 2**bits - 1
    assert shared.remove("a") is False
    assert shared.discard("a") is False
    assert "a" in shared
    with pytest.raises(KeyError, match="b"):
        shared.remove("b")


def test_removed_by_many_at_once(redis_server: RedisServer) -> None:
    """Threads that remove the same keys at once get each copy once, and no other key is lost."""
    with redis_server.client() as client:
        shared = RedisCountingFilter.create(client, "seen", 4000, 1e-6)
        kept, gone = [f"kept-{i}" for i in range(300)], [f"gone-{i}" for i in range(100)]
        shared.add_many(kept + gone * 2)
        start = threading.Barrier(4)

        def remove(_: int) -> Any:
            start.wait()
            return [shared.discard(key) for key in gone]

        with ThreadPoolExecutor(4) as threads:
            found = np.array(list(threads.map(remove, range(4))))
        assert np.all(found.sum(axis=0) == 2)
        local = CountingBloomFilter(4000, 1e-6)
        local.update(kept)
        assert shared.to_local() == local


def test_pushed_and_fetched(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local one goes to Redis and comes back the same; it is merged into none."""
    monkeypatch.setattr(reading, "CHUNK", 1024)
    local = CountingBloomFilter(20_000, 0.01, counter_bits=8, seed=5)
    local.update(range(20_000))
    shared = RedisCountingFilter.push(local, client, "seen")
    assert shared.to_local() == local
    assert shared.remove(7) is True
    assert repr(shared).startswith(
        "<RedisCountingFilter('seen', capacity=20000, error_rate=0.01, counter_bits=8)"
    )
    with pytest.raises(FilterExists, match="counters cannot be merged"):
        RedisCountingFilter.push(local, client, "seen")
    with pytest.raises(IncompatibleFilters, match="only a CountingBloomFilter"):
        RedisCountingFilter.push(BloomFilter(10), client, "other")  # type: ignore[arg-type]

    def change(done: int, total: int) -> None:
        local.add("another")

    with pytest.raises(InvalidParameter, match="changed while it was pushed"):
        RedisCountingFilter.push(local, client, "other", progress=change)


def test_opened_as_what_it_is(client: Any) -> None:
    """A filter of one kind is not opened or made as another."""
    RedisCountingFilter.create(client, "counting", 1000)
    RedisFilter.create(client, "bloom", 1000)
    with pytest.raises(IncompatibleFilters, match="open it with RedisCountingFilter"):
        RedisFilter.open(client, "counting")
    with pytest.raises(IncompatibleFilters, match="open it with RedisFilter"):
        RedisCountingFilter.open(client, "bloom")
    with pytest.raises(FilterExists, match="kind"):
        RedisCountingFilter.create(client, "bloom", 1000)
    assert RedisCountingFilter.open(client, "counting").capacity == 1000


def test_too_large_for_a_string(client: Any) -> None:
    """Counters that do not fit into one string are refused, with what to do."""
    with pytest.raises(InvalidParameter, match="one string of Redis"):
        RedisCountingFilter.create(client, "seen", 10**9)
    assert not client.keys()


def test_the_script_is_loaded_when_it_is_gone(client: Any) -> None:
    """A Redis that has forgotten the script is told it again, and nothing is removed twice."""
    shared = RedisCountingFilter.create(client, "seen", 5000, 0.001)
    keys = [f"key-{i}" for i in range(2500)]
    shared.add_many(keys * 2)
    for _ in range(2):
        client.script_flush()
        assert all(shared.remove_many(keys))
    local = shared.to_local()
    assert local.fill_ratio == 0


def test_gone(client: Any) -> None:
    """A string that is gone is an error for every question, and not an empty filter."""
    shared = RedisCountingFilter.create(client, "seen", 1000)
    shared.add("a")
    client.delete("{seen}:bits")
    for ask in (shared.remove, shared.discard, shared.count, shared.add, shared.__contains__):
        with pytest.raises(UnknownFilter, match="no longer whole"):
            ask("a")
    assert not client.exists("{seen}:bits")


def test_never_sent_twice(redis_server: RedisServer) -> None:
    """If the connection is lost after a removal was sent, it is not sent again."""
    with redis_server.client() as client:
        shared = RedisCountingFilter.create(client, "seen", 1000)
        shared.add_many(["a"] * 5)
        shared.remove("a")  # the script is known now
    with Cut(redis_server.port) as cut, redis.Redis(port=cut.port) as client:
        broken = RedisCountingFilter.open(client, "seen")
        cut.armed = True
        with pytest.raises(StoreUnavailable):
            broken.remove("a")
    with redis_server.client() as client:
        assert RedisCountingFilter.open(client, "seen").count("a") == 3


class Cut:
    """A way to Redis on which replies to EVALSHA are lost, together with the connection."""

    def __init__(self, target: int) -> None:
        self.armed = False
        self._target = target
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Cut":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._door.accept()
            except OSError:
                return
            with (  # a client that gives up resets its connection
                suppress(OSError),
                one,
                socket.create_connection(("127.0.0.1", self._target)) as other,
            ):
                while data := one.recv(1 << 16):
                    other.sendall(data)
                    replies = other.recv(1 << 16)
                    if self.armed and b"EVALSHA" in data:
                        break
                    one.sendall(replies)


def test_asyncio(redis_server: RedisServer) -> None:
    """The same for asyncio."""

    async def all_of_it() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            shared = await AsyncRedisCountingFilter.create(client, "async", 1000, counter_bits=8)
            assert await shared.add("a")
            assert list(await shared.add_many(["a", "b"])) == [False, True]
            assert await shared.count("a") == 2
            assert await shared.contains("b")
            assert await shared.remove("b")
            with pytest.raises(KeyError):
                await shared.remove("b")
            assert await shared.discard("b") is False
            assert list(await shared.remove_many(["a", "c"])) == [True, False]
            assert list(await shared.contains_many(["a", "c"])) == [True, False]
            again = await AsyncRedisCountingFilter.open(client, "async")
            local = await again.to_local()
            assert local.count("a") == 1
            pushed = await AsyncRedisCountingFilter.push(local, client, "pushed", ttl=50)
            assert await pushed.to_local() == local
            await pushed.expire(None)
            await again.delete()
            assert sorted(await client.keys()) == [b"{pushed}:bits", b"{pushed}:config"]

    asyncio.run(all_of_it())
