"""An admission cache whose values are in Redis, and whose filter may be there too."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from bloomery import RotatingBloomFilter, errors
from bloomery.apps import AdmissionCache, AsyncAdmissionCache, AsyncRedisStore, RedisStore
from bloomery.integrations.redis import AsyncRedisRotatingFilter, RedisRotatingFilter
from integration.servers import RedisServer


def seen() -> RotatingBloomFilter:
    return RotatingBloomFilter(1000, 1e-9, window=None)


def test_values_are_shared_and_expire(redis_server: RedisServer) -> None:
    """Two caches with one prefix share values, which have a time to live; `dumps` and `loads` make
    bytes of them."""
    with redis.Redis.from_url(redis_server.url) as client:
        options: dict[str, Any] = {"ttl": 60, "dumps": json.dumps, "loads": json.loads}
        first, second = (
            AdmissionCache(RedisStore(client, "page:", **options), seen()) for _ in range(2)
        )
        for _ in range(2):
            assert first.get("a", lambda key: {"n": 1}) == {"n": 1}
        assert second.get("a", lambda key: 1 // 0) == {"n": 1}
        (name,) = client.keys()
        assert name.startswith(b"page:")
        assert 50_000 < client.pttl(name) <= 60_000
        second.offer("a", {"n": 2})
        assert first.find("a") == {"n": 2}
        first.delete("a")
        assert second.find("a") is None


def test_keys_of_two_types_are_two(redis_server: RedisServer) -> None:
    """5 and "5" do not share a value."""
    with redis.Redis.from_url(redis_server.url) as client:
        cache = AdmissionCache(RedisStore(client, ""), seen())
        cache.put(5, b"int")
        cache.put("5", b"str")
        assert (cache.find(5), cache.find("5")) == (b"int", b"str")


def test_a_time_to_live_by_value(redis_server: RedisServer) -> None:
    """A function says how long each value stays; 0 keeps none, and takes an old one out."""
    with redis.Redis.from_url(redis_server.url) as client:
        store = RedisStore(client, "p:", ttl=lambda key, value: len(value))
        cache = AdmissionCache(store, seen())
        cache.put("a", b"xxxxx")
        (name,) = client.keys()
        assert 4000 < client.pttl(name) <= 5000
        cache.put("a", b"")
        assert not client.keys()


def test_redis_that_is_away_is_gone_without(redis_server: RedisServer) -> None:
    """Values are loaded while Redis is down, and cached again when it is back."""
    with redis.Redis.from_url(redis_server.url) as client:
        cache = AdmissionCache(RedisStore(client, "p:", ttl=60), seen())
        redis_server.kill()
        assert [cache.get("a", lambda key: b"v") for _ in range(3)] == [b"v"] * 3
        assert cache.info()["unavailable"] == 5
        with pytest.raises(errors.CacheUnavailable, match="Redis did not do DEL"):
            cache.delete("a")
        redis_server.start()
        assert cache.get("a", lambda key: b"v") == b"v"
        assert cache.find("a") == b"v"


def test_poison_is_a_miss(redis_server: RedisServer) -> None:
    """A value that cannot be read, or a key of another type, is loaded again, and replaced."""
    with redis.Redis.from_url(redis_server.url) as client:
        store = RedisStore(client, "p:", dumps=json.dumps, loads=json.loads)
        cache = AdmissionCache(store, seen())
        cache.put("a", 1)
        (name,) = client.keys()
        client.set(name, b"{")
        assert cache.get("a", lambda key: 2) == 2
        assert cache.info()["unavailable"] == 1
        client.delete(name)
        client.rpush(name, "no string")
        assert cache.get("a", lambda key: 3) == 3
        assert cache.find("a") == 3, "SET replaces what is no string"


def test_a_filter_that_processes_share(redis_server: RedisServer) -> None:
    """With the filter in Redis too, the second request is the second of all processes."""
    with redis.Redis.from_url(redis_server.url) as client:
        filters = [
            RedisRotatingFilter.create(redis_server.url, "asked", 1000, window="1h")
            for _ in range(2)
        ]
        caches = [AdmissionCache(RedisStore(client, "p:"), filter) for filter in filters]
        for cache in caches:
            cache.get("a", lambda key: b"v")
        assert caches[0].get("a", lambda key: 1 // 0) == b"v"
        client.flushall()  # the filter is gone too: nothing is admitted, everything is loaded
        assert [caches[0].get("a", lambda key: b"w") for _ in range(3)] == [b"w"] * 3
        assert caches[0].info()["unavailable"] == 3
        for filter in filters:
            filter.close()


def test_asyncio(redis_server: RedisServer) -> None:
    """The twin for asyncio, with values and filter in Redis."""

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            filter = await AsyncRedisRotatingFilter.create(redis_server.url, "asked", 1000)
            cache = AsyncAdmissionCache(AsyncRedisStore(client, "p:", ttl=60), filter)
            asked = []

            async def load(key: str) -> bytes:
                asked.append(key)
                return b"v"

            for _ in range(4):
                assert await cache.get("a", load) == b"v"
            assert len(asked) == 2
            await cache.delete("a")
            assert await cache.find("a") is None
            await filter.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda c: AdmissionCache(c, seen()), r"wrap it, as in RedisStore\(client, 'pages:'"),
        (lambda c: RedisStore({}, "p:"), "redis is a dict, must be a client"),
        (lambda c: RedisStore(c, "p:", ttl=0), "ttl is 0, must be seconds above 0"),
        (lambda c: RedisStore(c, "p:", dumps=str), "dumps and loads go together"),
        (
            lambda c: RedisStore(redis.Redis(decode_responses=True), "p:"),
            "make it without decode_responses",
        ),
    ],
)
def test_what_is_wrong_is_said(make: Callable[[Any], Any], message: str) -> None:
    """A client without a prefix, no client, and what cannot work are refused."""
    with pytest.raises(errors.InvalidParameter, match=message):
        make(redis.Redis())
