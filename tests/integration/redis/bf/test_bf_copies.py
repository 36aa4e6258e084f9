"""Filters of BF.* as local copies, and local ones into a server."""

import threading
from typing import Any

import pytest

from bloomery import errors
from bloomery.filters.redisbloom import RedisBloomFilter
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.bf_copy import copied, pushed
from bloomery.integrations.redis.link import Link
from bloomery.integrations.redis.naming import Keys
from integration.redis.bf.stores import ODD, store_of


def test_copies(client: Any) -> None:
    """A local copy answers alike, and makes the same filter again; nothing else is left."""
    seen, link = RedisFilter.create(client, "a", 1000, 0.001, backend="bf"), Link(client)
    keys = [*ODD, *range(3000)]
    seen.add_many(keys)
    told: list[tuple[int, int]] = []
    local = link.run(copied(store_of(seen), lambda done, total: told.append((done, total))))
    assert told[-1][0] == told[-1][1] > 1000
    absent = [f"absent {number}" for number in range(3000)]
    assert all(local.contains_many(keys))
    assert 5 in local
    assert local.contains_many(absent) == seen.contains_many(absent)
    link.run(pushed(Keys("b"), local, 100))
    again = RedisFilter.open(client, "b")
    assert again.contains_many([*keys, *absent]) == local.contains_many([*keys, *absent])
    assert sorted(client.keys()) == [b"{a}:bits", b"{b}:bits"]
    assert client.ttl("{b}:bits") > 0
    with pytest.raises(errors.FilterExists):
        link.run(pushed(Keys("b"), local))
    with pytest.raises(errors.IncompatibleFilters, match="layers of their own"):
        link.run(store_of(again).merge(store_of(seen)))


def test_redisbloom_is_pushed(client: Any) -> None:
    """RedisBloom's own filter goes in as it is; ours might hold ints, which would be denied."""
    from bloomery import BloomFilter

    local, link = RedisBloomFilter(0.01, 100), Link(client)
    for number in range(500):
        local.add(b"%d" % number)
    link.run(pushed(Keys("a"), local))
    seen = RedisFilter.open(client, "a")
    assert all(seen.contains_many([str(number) for number in range(500)]))
    assert seen.add("new")
    ours: Any = BloomFilter(100)
    with pytest.raises(errors.IncompatibleFilters, match="ints"):
        link.run(pushed(Keys("b"), ours))


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
        link = Link(client)
        for _ in range(10):
            assert all(link.run(copied(store_of(seen))).contains_many(range(1000)))
    finally:
        stop.set()
        thread.join()
