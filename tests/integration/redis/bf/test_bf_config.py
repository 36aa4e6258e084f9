"""RedisFilter over BF.* where the server has strings too: the configuration is kept beside."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bloomery import errors
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.bf.filter import BfFilter
from conftest import require
from integration.conftest import open_folder
from integration.redis.bf.both import Both
from integration.servers import BloomeryServer, RedisServer

redis = require("redis")


@pytest.fixture(scope="module")
def filters() -> Iterator[BloomeryServer]:
    """A server with BF.* as RedisBloom has them."""
    with open_folder() as folder:
        server = BloomeryServer(folder, "--bf-layout", "redisbloom")
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request: Any, redis_server: RedisServer, filters: BloomeryServer) -> Iterator[Any]:
    """A client of both servers, which are empty, as of one."""
    with redis.Redis(port=filters.resp_port) as one:
        one.flushall()
    with (
        Both(redis_server.port, filters.resp_port) as both,
        redis.Redis(port=both.port, protocol=request.param) as made,
    ):
        yield made


def test_the_configuration_says_which(client: Any) -> None:
    """Whoever opens or creates it uses what it was made with, whatever `auto` would choose."""
    seen = RedisFilter.create(client, "a", 1000, backend="auto")
    assert isinstance(seen.store, BfFilter)
    assert b'"backend": "bf"' in client.get("{a}:config")
    seen.add("x")
    for other in (
        RedisFilter.open(client, "a"),
        RedisFilter.create(client, "a", 1000, backend="auto"),
        RedisFilter.create(client, "a", 1000, backend="bf"),
    ):
        assert isinstance(other.store, BfFilter)
        assert "x" in other
    with pytest.raises(errors.FilterExists, match="backend 'bf'"):
        RedisFilter.create(client, "a", 1000)
    with pytest.raises(errors.FilterExists, match="capacity"):
        RedisFilter.create(client, "a", 2000, backend="bf")
    seen.delete()
    assert client.get("{a}:config") is None
    with pytest.raises(errors.UnknownFilter):
        RedisFilter.open(client, "a")


def test_its_own_hash_function_is_of_bits(client: Any) -> None:
    """With a choice that a server's BF.* does not have, `auto` is `bits`."""
    RedisFilter.create(client, "a", 1000, backend="auto", hasher="siphash", seed=7)
    assert b'"backend": "bits"' in client.get("{a}:config")


def test_what_was_made_of_bits_stays_so(client: Any) -> None:
    """Also for who asks for `auto` later."""
    RedisFilter.create(client, "a", 1000).add("x")
    later = RedisFilter.create(client, "a", 1000, backend="auto")
    assert not isinstance(later.store, BfFilter)
    assert "x" in later
    with pytest.raises(errors.FilterExists, match="backend 'bits'"):
        RedisFilter.create(client, "a", 1000, backend="bf")


def test_shards(client: Any) -> None:
    """Keys are split by their hash, alike for everybody; answers come in the batch's order."""
    seen = RedisFilter.create(client, "a", 3000, 0.001, backend="bf", shards=3, ttl=100)
    keys = [*range(1500), *(f"key {number}" for number in range(1500))]
    assert sum(seen.add_many(keys)) > 2950
    other = RedisFilter.open(client, "a")
    mixed = [one for pair in zip(keys, range(10**6, 10**6 + 3000), strict=True) for one in pair]
    answers = other.contains_many(mixed)
    assert all(answers[::2])
    assert sum(answers[1::2]) < 30
    about = other.info()
    assert (about["shards"], about["num_layers"]) == (3, 1)
    assert 2950 < about["estimated_count"] <= 3000
    assert 0 < about["ttl"] <= 100
    items = [client.execute_command("BF.CARD", f"{{a:{shard}}}:bits") for shard in range(3)]
    assert min(items) > 800
    local = other.to_local()
    assert local.contains_many(mixed) == answers
    with pytest.raises(errors.IncompatibleFilters, match="3 shards"):
        RedisFilter.push(local, client, "b")
    client.delete("{a:1}:bits")
    with pytest.raises(errors.UnknownFilter):
        other.contains_many(keys)
    other.delete()
    assert not client.exists("{a:0}:bits")


def test_a_creator_that_died(client: Any) -> None:
    """Between the configuration and the filter: the next one goes on."""
    wanted = RedisFilter.create(client, "a", 1000, backend="bf").store.config
    half = wanted.to_json().replace(b'"made": true', b'"made": false')
    client.delete("{a}:bits")
    client.set("{a}:config", half)
    seen = RedisFilter.open(client, "a")
    with pytest.raises(errors.UnknownFilter):
        seen.add("x")
    again = RedisFilter.create(client, "a", 1000, backend="bf")
    assert again.add("x")
    assert client.get("{a}:config") == wanted.to_json()


def test_another_filter_in_its_place(client: Any) -> None:
    """One for fewer keys is not taken, and no configuration stays that says so."""
    client.execute_command("BF.RESERVE", "{a}:bits", 0.01, 10)
    with pytest.raises(errors.FilterExists, match="fewer keys"):
        RedisFilter.create(client, "a", 1000, backend="bf")
    assert client.get("{a}:config") is None


def test_many_creators_at_once(client: Any) -> None:
    """All have the same filter."""
    found: list[bool] = []

    def work(number: int) -> None:
        one = RedisFilter.create(client, "a", 1000, backend="auto", shards=2)
        one.add(number)
        found.append(number in one)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6
    assert all(RedisFilter.open(client, "a").contains_many(range(6)))


def test_a_pushed_filter_has_a_configuration(client: Any) -> None:
    """As one that was created."""
    seen = RedisFilter.create(client, "a", 1000, backend="bf")
    seen.add_many(range(100))
    made = RedisFilter.push(seen.to_local(), client, "b", ttl=100)
    assert made.backend == "bf"
    assert all(made.contains_many(range(100)))
    assert 0 < client.pttl("{b}:config") <= 100_000
    again = RedisFilter.create(client, "b", 1000, backend="auto")
    assert all(again.contains_many(range(100)))


def test_a_server_that_does_not_take_it(client: Any, redis_server: RedisServer) -> None:
    """A plain Redis takes no dump: an error says so, and nothing stays."""
    seen = RedisFilter.create(client, "a", 1000, backend="bf")
    local = seen.to_local()
    seen.delete()
    with redis.Redis(port=redis_server.port) as plain:
        with pytest.raises(errors.StoreRefused, match="does not take a RedisBloomFilter"):
            RedisFilter.push(local, plain, "b")
        assert plain.keys() == []
