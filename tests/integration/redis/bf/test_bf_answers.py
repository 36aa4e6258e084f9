"""RedisFilter over a server's own BF.*: `bloomery serve` in both layouts, both protocols."""

from typing import Any

import pytest

from bloomery import errors
from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter
from conftest import require
from integration.redis.bf.stores import ODD, store_of
from integration.servers import BloomeryServer

redis = require("redis")


def test_answers(client: Any) -> None:
    """What was added is there, by one key or many, of any type, for everybody who opens it."""
    seen = RedisFilter.create(client, "a {b}", 10_000, 0.001, backend="auto")
    store_of(seen)
    assert [seen.add(key) for key in ODD] == [True] * len(ODD)
    assert [seen.add(key) for key in ODD] == [False] * len(ODD)
    assert all(key in seen for key in ODD)
    other = RedisFilter.open(client, "a {b}")
    assert other.contains_many(ODD) == [True] * len(ODD)
    assert sum(other.contains_many([f"absent {n}" for n in range(1000)])) < 20
    keys = [f"key {number}" for number in range(2500)]
    added = other.add_many([*keys, "key 7"])
    assert sum(added) >= 2490
    assert added[-1] is False
    assert seen.contains_many(iter(keys)) == [True] * 2500
    assert other.add_many([]) == []
    assert other.contains_many(["x" * 700_000, "y" * 700_000]) == [False, False]


def test_long_keys(client: Any) -> None:
    """Few of them go at a time."""
    seen = RedisFilter.create(client, "a", 100, backend="bf")
    keys = [b"%d" % number * 6_000_000 for number in range(5)]
    assert seen.add_many(keys) == [True] * 5
    assert seen.contains_many([*keys, keys[0][1:]]) == [True] * 5 + [False]


def test_other_clients_mean_the_same_keys(client: Any) -> None:
    """Text and bytes are sent as they are."""
    seen = RedisFilter.create(client, "a", 100, 0.001, backend="bf")
    seen.add("alice")
    assert client.execute_command("BF.EXISTS", "{a}:bits", "alice") == 1
    assert client.execute_command("BF.ADD", "{a}:bits", b"\xfe") == 1
    assert b"\xfe" in seen


def test_columns(client: Any) -> None:
    """A column is its rows, and its mask an array."""
    numpy, arrow = require("numpy"), require("pyarrow")
    seen = RedisFilter.create(client, "a", 100, 0.0001, backend="bf")
    mask = seen.add_many(numpy.arange(3))
    assert isinstance(mask, numpy.ndarray)
    assert mask.tolist() == [True] * 3
    assert [2 in seen, "2" in seen] == [True, False]
    assert list(seen.contains_many(arrow.array([3, 2]))) == [False, True]


def test_more_than_its_capacity(client: Any) -> None:
    """It grows: everything is taken, is there, and errors stay rare."""
    seen = RedisFilter.create(client, "a", 100, 0.01, backend="bf")
    keys = [f"key {number}" for number in range(5000)]
    seen.add_many(keys)
    assert all(seen.contains_many(keys))
    assert sum(seen.contains_many([f"absent {n}" for n in range(5000)])) < 150


def test_a_lost_filter_denies_nothing(client: Any) -> None:
    """Deleted, or made anew by another's BF.ADD, it is UnknownFilter; nothing is left behind."""
    seen = RedisFilter.create(client, "a", 1000, backend="bf")
    seen.add("x")
    client.delete("{a}:bits")
    for ask in (lambda: "x" in seen, lambda: seen.add("x"), lambda: seen.add_many(["x", "y"])):
        with pytest.raises(errors.UnknownFilter, match="deleted"):
            ask()
    assert client.keys() == []
    client.execute_command("BF.ADD", "{a}:bits", "y")  # which makes one for 100 keys
    for ask in (lambda: "x" in seen, lambda: seen.add("x")):
        with pytest.raises(errors.UnknownFilter, match="another is in its place"):
            ask()
    with pytest.raises(errors.UnknownFilter):
        RedisFilter.open(client, "other")


def test_about_and_over(client: Any) -> None:
    """What it tells, its time to live, and its end."""
    seen = RedisFilter.create(client, "a", 1000, backend="bf")
    seen.add_many(range(10))
    about = seen.info()
    assert {key: about[key] for key in ("capacity", "error_rate", "estimated_count", "ttl")} == {
        "capacity": 1000,
        "error_rate": 0.01,
        "estimated_count": 10,
        "ttl": None,
    }
    seen.expire(50)
    assert 49 < (seen.ttl() or 0) <= 50
    seen.clear()
    assert not any(seen.contains_many(range(10)))
    assert 0 < seen.info()["ttl"] <= 50
    seen.expire(None)
    assert seen.ttl() is None
    seen.delete()
    for ask in (seen.info, seen.ttl):
        with pytest.raises(errors.UnknownFilter):
            ask()


def test_what_it_does_not_have(client: Any) -> None:
    """What the server chose is not told as if it were ours."""
    seen = RedisFilter.create(client, "a", 1000, backend="bf")
    assert (seen.capacity, seen.error_rate, seen.shards, seen.backend) == (1000, 0.01, 1, "bf")
    assert "1 filter of BF.* at" in repr(seen)
    for name in ("layout", "num_bits", "num_hashes", "lines_per_key", "hasher", "seed", "nbytes"):
        with pytest.raises(AttributeError, match=r"see info\(\)"):
            getattr(seen, name)
    expire: Any = seen.expire
    for seconds in (0, -1, float("nan"), "1"):
        with pytest.raises(errors.InvalidParameter, match="must be None or in the range"):
            expire(seconds)


async def _async_work(port: int) -> None:
    client = redis.asyncio.Redis(port=port)
    async with client:
        await client.flushall()
        seen = await AsyncRedisFilter.create(client, "a", 1000, backend="auto")
        assert await seen.add("x")
        assert await seen.contains("x")
        assert await seen.add_many([1, "x"]) == [True, False]
        other = await AsyncRedisFilter.open(client, "a")
        assert await other.contains_many([1, 2, "x"]) == [True, False, True]
        await other.delete()
        with pytest.raises(errors.UnknownFilter):
            await seen.contains("x")


def test_asyncio(servers: dict[str, BloomeryServer]) -> None:
    """The same on an event loop."""
    import asyncio

    asyncio.run(_async_work(servers["bloomery"].resp_port))
