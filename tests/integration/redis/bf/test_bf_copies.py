"""Filters of BF.* as local copies, and local ones into a server."""

import threading
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.filters.redisbloom import RedisBloomFilter
from bloomery.integrations.redis import RedisFilter
from conftest import require
from integration.redis.bf.stores import ODD

redis = require("redis")


def test_copies(client: Any) -> None:
    """A local copy answers alike, and makes the same filter again; nothing else is left."""
    seen = RedisFilter.create(client, "a", 1000, 0.001, backend="bf")
    keys = [*ODD, *range(3000)]
    seen.add_many(keys)
    told: list[tuple[int, int]] = []
    local = seen.to_local(lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 1000
    absent = [f"absent {number}" for number in range(3000)]
    assert all(local.contains_many(keys))
    assert 5 in local
    assert local.contains_many(absent) == seen.contains_many(absent)
    RedisFilter.push(local, client, "b", ttl=100)
    again = RedisFilter.open(client, "b")
    assert again.contains_many([*keys, *absent]) == local.contains_many([*keys, *absent])
    assert sorted(client.keys()) == [b"{a}:bits", b"{b}:bits"]
    assert client.ttl("{b}:bits") > 0
    with pytest.raises(errors.FilterExists):
        RedisFilter.push(local, client, "b")
    with pytest.raises(errors.InvalidParameter, match="shards is 2"):
        RedisFilter.push(local, client, "c", shards=2)


def test_merging_is_refused(client: Any) -> None:
    """With the reason, whatever the other is."""
    seen, other = (RedisFilter.create(client, name, 1000, backend="bf") for name in ("a", "b"))
    with pytest.raises(errors.IncompatibleFilters, match="layers of their own"):
        seen.merge(other)
    with pytest.raises(errors.IncompatibleFilters, match="hashes keys in another way"):
        seen.merge(BloomFilter(1000))
    with (
        redis.Redis(port=client.get_connection_kwargs()["port"]) as another,
        pytest.raises(errors.IncompatibleFilters, match="the same client"),
    ):
        seen.merge(RedisFilter.open(another, "b"))


def test_redisbloom_is_pushed(client: Any) -> None:
    """RedisBloom's own filter goes in as it is; ours might hold ints, which would be denied."""
    local = RedisBloomFilter(0.01, 100)
    for number in range(500):
        local.add(b"%d" % number)
    seen = RedisFilter.push(local, client, "a")
    assert all(seen.contains_many([str(number) for number in range(500)]))
    assert seen.add("new")
    with pytest.raises(errors.StoreRefused, match="no strings to keep bits in"):
        RedisFilter.push(BloomFilter(100), client, "b")
    assert client.keys() == [b"{a}:bits"]


def test_a_copy_while_others_add(client: Any) -> None:
    """It has all that was there before it began."""
    seen = RedisFilter.create(client, "a", 1000, backend="bf")
    seen.add_many(range(1000))
    stop = threading.Event()

    def add() -> None:
        number = 1000
        while not stop.is_set():
            seen.add_many(range(number, number + 500))
            number += 500

    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(10):
            assert all(seen.to_local().contains_many(range(1000)))
    finally:
        stop.set()
        thread.join()
