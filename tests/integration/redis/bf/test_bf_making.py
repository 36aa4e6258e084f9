"""Making and opening filters of BF.* where nothing can be kept beside them."""

import threading
from typing import Any

import pytest

from bloomery import errors
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.bf.filter import BfFilter
from conftest import require
from integration.redis.bf.stores import store_of
from integration.servers import RedisServer

redis = require("redis")


def test_a_name_that_looks_like_a_reply(client: Any) -> None:
    """Opened without a configuration, it is what it was made as."""
    name = "a capacity:5 error_rate:0.5\nratio:0.5"
    RedisFilter.create(client, name, 1000, 0.02, backend="bf")
    found = store_of(RedisFilter.open(client, name))
    assert (found.capacity, found.error_rate) == (1000, 0.02)


def test_creating_again(client: Any) -> None:
    """The same is the same filter; another one is an error that says what differs."""
    seen = RedisFilter.create(client, "a", 1000, 0.003, backend="bf", ttl=100)
    seen.add("x")
    assert "x" in RedisFilter.create(client, "a", 1000, 0.003, backend="auto")
    assert 0 < client.pttl("{a}:bits") <= 100_000
    with pytest.raises(errors.FilterExists, match=r"capacity 1,000 and not 2,000: open"):
        RedisFilter.create(client, "a", 2000, 0.003, backend="bf")
    with pytest.raises(errors.FilterExists, match=r"with error_rate 0.003 and not 0.01"):
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


def test_a_plain_redis(redis_server: RedisServer) -> None:
    """`auto` keeps bits where there is no BF.*; `bf` says so, and leaves nothing behind."""
    with redis.Redis(port=redis_server.port) as client:
        with pytest.raises(errors.InvalidParameter, match=r"no BF\.\* commands"):
            RedisFilter.create(client, "a", 1000, backend="bf")
        assert client.keys() == []
        seen = RedisFilter.create(client, "a", 1000, backend="auto")
        assert not isinstance(seen.store, BfFilter)
        assert seen.add("x")
        assert "x" in RedisFilter.open(client, "a")
        with pytest.raises(errors.UnknownFilter):
            RedisFilter.open(client, "b")
