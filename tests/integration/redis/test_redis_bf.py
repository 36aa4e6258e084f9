"""RedisFilter over a server's own BF.*: `bloomery serve` in both layouts, both protocols."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bloomery import errors
from bloomery.filters.redisbloom import RedisBloomFilter
from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter
from bloomery.integrations.redis.bf import BfFilter
from bloomery.integrations.redis.bf_copy import copied, pushed
from bloomery.integrations.redis.bf_keys import MARK
from bloomery.integrations.redis.link import Link
from bloomery.integrations.redis.naming import Keys
from conftest import require
from integration.conftest import open_folder
from integration.servers import BloomeryServer, RedisServer

redis = require("redis")
LAYOUTS = ("bloomery", "redisbloom")
# Distinct for filters, and some of them alike as text or as bytes.
ODD: list[Any] = [5, "5", (5,), ("5",), -5, 2**80, "", "\x00", b"\xff", MARK, MARK + b"\1\5", "ä"]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, BloomeryServer]]:
    """One of each layout."""
    with open_folder() as one, open_folder() as other:
        found = {
            layout: BloomeryServer(folder, "--bf-layout", layout)
            for layout, folder in zip(LAYOUTS, (one, other), strict=True)
        }
        try:
            for server in found.values():
                server.start()
            yield found
        finally:
            for server in found.values():
                server.kill()


@pytest.fixture(params=[(layout, version) for layout in LAYOUTS for version in (2, 3)], ids=str)
def client(request: Any, servers: dict[str, BloomeryServer]) -> Iterator[Any]:
    """A client of an empty server."""
    layout, version = request.param
    with redis.Redis(port=servers[layout].resp_port, protocol=version) as made:
        made.flushall()
        yield made


def store_of(one: RedisFilter) -> BfFilter:
    """What does the work, which is BF.*."""
    assert isinstance(one._strings, BfFilter)
    return one._strings


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


def test_a_name_that_looks_like_a_reply(client: Any) -> None:
    """Opened without a configuration, it is what it was made as."""
    name = "a capacity:5 error_rate:0.5\nratio:0.5"
    RedisFilter.create(client, name, 1000, 0.02, backend="bf")
    found = store_of(RedisFilter.open(client, name))
    assert (found.capacity, found.error_rate) == (1000, 0.02)


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


def test_creating_again(client: Any) -> None:
    """The same is the same filter; another one is an error that says what differs."""
    seen = RedisFilter.create(client, "a", 1000, 0.003, backend="bf", ttl=100)
    seen.add("x")
    assert "x" in RedisFilter.create(client, "a", 1000, 0.003, backend="auto")
    assert 0 < client.pttl("{a}:bits") <= 100_000
    with pytest.raises(errors.FilterExists, match=r"capacity 1000 \(not 2000\): open"):
        RedisFilter.create(client, "a", 2000, 0.003, backend="bf")
    with pytest.raises(errors.FilterExists, match=r"with error_rate 0.003 \(not 0.01\)"):
        RedisFilter.create(client, "a", 1000, 0.01, backend="bf")


def test_many_creators_at_once(client: Any) -> None:
    """All have the same filter, and what each adds is there."""
    found: list[bool] = []

    def work(number: int) -> None:
        one = RedisFilter.create(client, "a", 1000, backend="bf")
        one.add(number)
        found.append(number in one)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8
    assert all(RedisFilter.open(client, "a").contains_many(range(8)))


def test_what_cannot_be(client: Any) -> None:
    """One clear error each."""
    create: Any = RedisFilter.create
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"backend": "both"}, errors.InvalidParameter, "must be 'bits', 'auto' or 'bf'"),
        ({"backend": "bf", "hasher": "siphash"}, errors.InvalidParameter, "leave layout"),
        ({"backend": "bf", "shards": 0}, errors.InvalidParameter, "shards is 0"),
        ({"backend": "bf", "shards": 2}, errors.InvalidParameter, "keeps no strings"),
        ({"backend": "bf", "capacity": 2**31}, errors.InvalidParameter, "capacity must be"),
        ({"backend": "bits"}, errors.StoreRefused, "take backend='bf'"),
    ]
    for options, error, said in cases:
        with pytest.raises(error, match=said):
            create(client, "a", **{"capacity": 1000, **options})
    assert client.keys() == []


def test_others_filters(client: Any) -> None:
    """One that is not to grow is FilterFull at its end; one that forgets is none of these."""
    client.execute_command("BF.RESERVE", "{a}:bits", 0.001, 2, "NONSCALING")
    seen = RedisFilter.open(client, "a")
    with pytest.raises(errors.FilterFull, match="make a larger one"):
        seen.add_many(["a", "b", "c", "d"])
    assert seen.contains_many(["a", "b", "c"]) == [True, True, False]
    client.execute_command("BF.RESERVE", "{b}:bits", 0.01, 100, "KIND", "rotating", "WINDOW", "1h")
    with pytest.raises(errors.IncompatibleFilters, match="rotating"):
        RedisFilter.open(client, "b")


def test_about_and_over(client: Any) -> None:
    """What it tells, its time to live, and its end."""
    seen, link = RedisFilter.create(client, "a", 1000, backend="bf"), Link(client)
    store = store_of(seen)
    seen.add_many(range(10))
    about = link.run(store.info())
    assert {key: about[key] for key in ("capacity", "error_rate", "estimated_count", "ttl")} == {
        "capacity": 1000,
        "error_rate": 0.01,
        "estimated_count": 10,
        "ttl": None,
    }
    link.run(store.expire(50))
    assert 49 < (link.run(store.ttl()) or 0) <= 50
    link.run(store.clear())
    assert not any(seen.contains_many(range(10)))
    assert 0 < link.run(store.info())["ttl"] <= 50
    link.run(store.expire(None))
    assert link.run(store.ttl()) is None
    seen.delete()
    for flow in (store.info(), store.ttl()):
        with pytest.raises(errors.UnknownFilter):
            link.run(flow)


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


def test_a_plain_redis(redis_server: RedisServer) -> None:
    """`auto` keeps bits where there is no BF.*; `bf` says so, and leaves nothing behind."""
    with redis.Redis(port=redis_server.port) as client:
        with pytest.raises(errors.InvalidParameter, match=r"no BF\.\* commands"):
            RedisFilter.create(client, "a", 1000, backend="bf")
        assert client.keys() == []
        seen = RedisFilter.create(client, "a", 1000, backend="auto")
        assert not isinstance(seen._strings, BfFilter)
        assert seen.add("x")
        assert "x" in RedisFilter.open(client, "a")
        with pytest.raises(errors.UnknownFilter):
            RedisFilter.open(client, "b")
