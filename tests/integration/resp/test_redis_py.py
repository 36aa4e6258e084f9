"""redis-py as people use it: every command, both protocols, pipelines and asyncio."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import require
from integration.servers import BloomeryServer
from waiting import wait_until

redis = require("redis")


@pytest.fixture
def client(empty: BloomeryServer, protocol: int) -> Iterator[Any]:
    """A client of an empty server."""
    with redis.Redis(port=empty.resp_port, protocol=protocol) as one:
        yield one


def test_bloom_filters(client: Any) -> None:
    """All that `client.bf()` can do gives what it gives with RedisBloom."""
    bf = client.bf()
    assert bf.create("a", 0.01, 1000)
    assert bf.reserve("b", 0.01, 1000, expansion=4)
    assert bf.create("c", 0.01, 1000, noScale=True)
    with pytest.raises(redis.ResponseError, match="item exists"):
        bf.create("a", 0.01, 1000)
    assert bf.add("a", "x") == 1
    assert bf.add("a", "x") == 0
    assert bf.madd("a", "x", "y", "z") == [0, 1, 1]
    assert bf.insert("d", ["x", "y"], capacity=500, error=0.001, expansion=2) == [1, 1]
    with pytest.raises(redis.ResponseError, match="not found"):
        bf.insert("missing", ["x"], noCreate=True)
    assert bf.insert("e", ["x"], noScale=True) == [1]
    assert bf.exists("a", "x") == 1
    assert bf.exists("a", "nosuch") == 0
    assert bf.mexists("a", "x", "nosuch") == [1, 0]
    assert bf.card("a") == 3
    assert bf.card("missing") == 0
    info = bf.info("b")
    figures = info if isinstance(info, dict) else vars(info)
    assert 1000 in figures.values()
    assert 4 in figures.values()


def test_bloom_filters_are_dumped_and_loaded(client: Any) -> None:
    """A dump taken part by part makes the same filter again."""
    bf = client.bf()
    bf.madd("a", *range(1000))
    parts, iterator = [], 0
    while True:
        iterator, data = bf.scandump("a", iterator)
        if iterator == 0:
            break
        parts.append((iterator, data))
    for iterator, data in parts:
        assert bf.loadchunk("b", iterator, data)
    assert bf.mexists("b", *range(1000)) == [1] * 1000
    assert bf.card("b") == bf.card("a")


def test_cuckoo_filters(client: Any) -> None:
    """All that `client.cf()` can do gives what it gives with RedisBloom."""
    cf = client.cf()
    assert cf.create("a", 1000)
    assert cf.reserve("b", 1000, expansion=4, bucket_size=4, max_iterations=50)
    assert cf.add("a", "x") == 1
    assert cf.add("a", "x") == 1
    assert cf.addnx("a", "x") == 0
    assert cf.addnx("a", "y") == 1
    assert cf.insert("c", ["x", "y"]) == [1, 1]
    assert cf.insertnx("c", ["x", "z"]) == [0, 1]
    with pytest.raises(redis.ResponseError, match="not found"):
        cf.insert("missing", ["x"], nocreate=True)
    assert cf.exists("a", "x") == 1
    assert cf.exists("a", "nosuch") == 0
    assert cf.mexists("a", "x", "nosuch") == [1, 0]
    assert cf.count("a", "x") == 2
    assert cf.delete("a", "x") == 1
    assert cf.count("a", "x") == 1
    with pytest.raises(redis.ResponseError, match="Not found"):
        cf.delete("missing", "x")
    info = cf.info("b")
    figures = info if isinstance(info, dict) else vars(info)
    assert 50 in figures.values()
    parts, iterator = [], 0
    while True:
        iterator, data = cf.scandump("a", iterator)
        if iterator == 0:
            break
        parts.append((iterator, data))
    for iterator, data in parts:
        assert cf.loadchunk("copy", iterator, data)
    assert cf.count("copy", "x") == 1


def test_names(client: Any) -> None:
    """Filters are found, renamed, copied, ended and dropped like any key."""
    for name in ("a", "b", "c"):
        client.bf().add(name, "x")
    client.cf().add("d", "x")
    assert sorted(client.keys()) == [b"a", b"b", b"c", b"d"]
    assert sorted(client.scan_iter(count=1)) == [b"a", b"b", b"c", b"d"]
    assert list(client.scan_iter(_type="MBbloomCF")) == [b"d"]
    assert list(client.scan_iter(match="[a]")) == [b"a"]
    assert client.randomkey() in (b"a", b"b", b"c", b"d")
    assert client.type("a") == b"MBbloom--"
    assert client.type("d") == b"MBbloomCF"
    assert client.object("encoding", "a") == b"raw"
    assert client.memory_usage("a") > 0
    assert client.memory_usage("missing") is None
    assert client.exists("a", "b", "missing") == 2
    assert client.touch("a") == 1
    assert client.rename("a", "e")
    assert client.renamenx("e", "b") is False
    assert client.renamenx("e", "a") is True
    assert client.copy("a", "copy") is True
    assert client.bf().exists("copy", "x") == 1
    assert client.expire("a", 100) is True
    assert client.pexpire("a", 100_000, xx=True) is True
    assert client.expireat("a", 4_000_000_000) is True
    assert client.pexpireat("a", 4_000_000_000_000) is True
    assert client.expiretime("a") == 4_000_000_000
    assert client.pexpiretime("a") == 4_000_000_000_000
    assert client.ttl("a") > 0
    assert client.pttl("a") > 0
    assert client.persist("a") is True
    assert client.ttl("a") == -1
    assert client.dbsize() == 5
    assert client.delete("a", "missing") == 1
    assert client.unlink("b") == 1
    assert client.flushdb()
    assert client.flushall(asynchronous=True)
    assert client.dbsize() == 0


def test_a_filter_ends_when_its_time_is_over(client: Any) -> None:
    """A filter that has expired is gone for every command, and its name is free."""
    client.bf().add("a", "x")
    assert client.pexpire("a", 50)
    assert wait_until(lambda: client.exists("a") == 0)
    assert client.bf().exists("a", "x") == 0
    assert client.keys() == []
    assert client.bf().add("a", "x") == 1
    assert client.ttl("a") == -1


def test_about_the_server(client: Any) -> None:
    """INFO, CONFIG, COMMAND and CLIENT are understood by the client that parses them."""
    client.bf().add("a", "x")
    info = client.info()
    assert info["redis_version"] == "7.4.0"
    assert info["db0"]["keys"] == 1
    assert info["filters"] == 1
    clients = {"connected_clients", "maxclients", "blocked_clients"}
    assert set(client.info("clients")) == clients | {"cluster_connections", "tracking_clients"}
    assert client.config_get("bf-*")["bf-error-rate"] == "0.01"
    assert client.config_set("timeout", 0)
    assert client.config_resetstat()
    assert client.info("stats")["total_connections_received"] == 0
    assert client.command_count() == len(client.command())
    assert client.command()["bf.add"]["arity"] == 3
    assert b"bf.add" in [bytes(name) for name in client.command_list(module="bf")]
    assert client.client_setname("me")
    assert client.client_getname() in ("me", b"me")
    assert client.client_info()["name"] == "me"
    assert client.client_info()["id"] == client.client_id()
    assert "me" in {one["name"] for one in client.client_list()}
    assert client.ping()
    assert client.echo("a") == b"a"

    def no_snapshot() -> bool:
        return not client.info("persistence")["rdb_bgsave_in_progress"]

    assert wait_until(no_snapshot)  # that the server has started itself
    assert client.bgsave()
    assert wait_until(no_snapshot)
    assert client.save()
    assert abs(client.lastsave().timestamp() - time.time()) < 60


@pytest.mark.parametrize("transaction", [True, False])
def test_pipelines(client: Any, transaction: bool) -> None:
    """Many commands go out at once, with a transaction around them or without."""
    with client.pipeline(transaction=transaction) as pipe:
        for number in range(1000):
            pipe.execute_command("BF.ADD", "a", number)
        pipe.execute_command("BF.MEXISTS", "a", 1, 999, "nosuch")
        pipe.delete("missing")
        *added, asked, dropped = pipe.execute()
    assert sum(map(bool, added)) >= 985
    assert asked[:2] == [1, 1]
    assert dropped == 0


def test_errors_inside_a_pipeline_stay_where_they_are(client: Any) -> None:
    """A command that fails does not keep the others of its transaction from being done."""
    with client.pipeline() as pipe:
        pipe.execute_command("BF.ADD", "a", "x")
        pipe.execute_command("BF.RESERVE", "a", 0.01, 100)
        pipe.execute_command("BF.EXISTS", "a", "x")
        first, second, third = pipe.execute(raise_on_error=False)
    assert (first, third) == (1, 1)
    assert isinstance(second, redis.ResponseError)


def test_a_watched_filter_that_changed_stops_the_transaction(client: Any) -> None:
    """WATCH sees an add, by another client, that native code has done."""
    client.bf().add("a", "x")
    with client.pipeline() as pipe:
        pipe.watch("a")
        client.bf().add("a", "other")
        pipe.multi()
        pipe.execute_command("BF.ADD", "a", "mine")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.bf().exists("a", "mine") == 0
    with client.pipeline() as pipe:
        pipe.watch("a")
        client.bf().exists("a", "other")  # asking changes nothing
        pipe.multi()
        pipe.execute_command("BF.ADD", "a", "mine")
        assert pipe.execute() == [1]


def test_asyncio(empty: BloomeryServer, protocol: int) -> None:
    """The client for asyncio works alike, many commands at a time."""

    async def work() -> None:
        one = redis.asyncio.Redis(port=empty.resp_port, protocol=protocol)
        async with one:
            async with one.pipeline(transaction=True) as pipe:
                pipe.execute_command("BF.RESERVE", "a", 0.001, 10_000)
                pipe.execute_command("BF.ADD", "a", "first")
                assert (await pipe.execute())[1] == 1
            adds = (one.bf().madd("a", *range(at, at + 100)) for at in range(0, 2000, 100))
            added = await asyncio.gather(*adds)
            assert sum(map(sum, added)) >= 1990
            assert await one.bf().mexists("a", *range(2000)) == [1] * 2000
            assert await one.cf().add("c", "x") == 1
            assert await one.dbsize() == 2

    asyncio.run(work())
