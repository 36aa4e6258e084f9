"""What clients of RedisBloom ask besides BF and CF, and cuckoo filters at their limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import require
from integration.servers import BloomeryServer

redis = require("redis")


@pytest.fixture
def client(empty: BloomeryServer) -> Iterator[Any]:
    """A client of an empty server, whose replies come as they are."""
    with redis.Redis(port=empty.resp_port, protocol=2) as one:
        yield one


@pytest.mark.parametrize("kind", ["BF", "CF"])
@pytest.mark.parametrize("layout", ["redisbloom", "bloomery"])
def test_dumped_and_restored(client: Any, kind: str, layout: str) -> None:
    """What DUMP gave, RESTORE takes, under any name and with any time to live."""
    client.config_set("bf-layout", layout)
    keys = [f"key {number}" for number in range(500)]
    client.execute_command(f"{kind}.INSERT", "a", "ITEMS", *keys)
    dumped = client.dump("a")
    assert client.restore("b", 0, dumped)
    assert client.execute_command(f"{kind}.MEXISTS", "b", *keys) == [1] * len(keys)
    assert client.type("b") == client.type("a")
    assert client.pttl("b") == -1
    with pytest.raises(redis.ResponseError, match="BUSYKEY"):
        client.restore("b", 0, dumped)
    with client.pipeline(transaction=False) as pipeline:  # also within one millisecond
        for _ in range(50):
            pipeline.restore("b", 60_000, dumped, replace=True).pttl("b")
        assert all(0 < left <= 60_000 for left in pipeline.execute()[1::2])
    until = int(time.time() * 1000) + 60_000
    assert client.restore("c", until, dumped, absttl=True)
    assert 0 < client.pttl("c") <= 60_000
    assert client.dump("b") == dumped
    assert client.dump("missing") is None


def test_what_is_no_dump_is_refused(client: Any) -> None:
    """A payload with any byte changed or missing is refused, and changes nothing."""
    client.bf().madd("a", *range(100))
    dumped = client.dump("a")
    for at in range(0, len(dumped), 7):
        for wrong in (
            dumped[:at],
            dumped[:at] + bytes([dumped[at] ^ 1]) + dumped[at + 1 :],
            dumped + b"x",
        ):
            with pytest.raises(redis.ResponseError, match="payload version or checksum"):
                client.restore("a", 0, wrong, replace=True)
    assert client.bf().mexists("a", *range(100)) == [1] * 100
    with pytest.raises(redis.ResponseError, match="Invalid TTL"):
        client.restore("b", -1, dumped)
    with pytest.raises(redis.ResponseError, match="syntax"):
        client.execute_command("RESTORE", "b", 0, dumped, "SOON")


def test_restore_that_does_not_fit_leaves_the_filter(client: Any) -> None:
    """RESTORE with REPLACE is refused when memory is short, and the filter keeps its keys."""
    client.execute_command("BF.RESERVE", "large", 0.01, 2_000_000, "NONSCALING")
    dumped = client.dump("large")
    client.delete("large")
    client.bf().madd("small", *range(100))
    client.config_set("maxmemory", 1 << 20)
    with pytest.raises(redis.ResponseError, match="memory"):
        client.restore("small", 0, dumped, replace=True)
    assert client.bf().mexists("small", *range(100)) == [1] * 100
    client.config_set("maxmemory", 0)
    assert client.restore("small", 0, dumped, replace=True)
    assert client.execute_command("BF.CARD", "small") == 0
    assert client.keys() == [b"small"]


def test_modules(client: Any) -> None:
    """The module is listed, in MODULE LIST and in INFO, and there is no cluster."""
    [module] = client.module_list()
    assert module[b"name"] == b"bf"
    info = client.info()
    assert info["cluster_enabled"] == 0
    assert info["modules"][0]["name"] == "bf"


def test_where_names_stand(client: Any) -> None:
    """COMMAND GETKEYS and COMMAND INFO tell which words of a command are names."""
    assert client.command_getkeys("BF.MADD", "a", "x", "y") == ["a"]
    assert client.command_getkeys("BF.MERGE", "a", "b", "c") == ["a", "b", "c"]
    assert client.command_getkeys("MEMORY", "USAGE", "a") == ["a"]
    for words, problem in (
        (("PING",), "no key arguments"),
        (("NOSUCH", "a"), "Invalid command"),
        (("BF.ADD",), "Invalid number of arguments"),
    ):
        with pytest.raises(redis.ResponseError, match=problem):
            client.execute_command("COMMAND", "GETKEYS", *words)
    client.response_callbacks.clear()
    [add] = client.execute_command("COMMAND", "INFO", "BF.ADD")
    assert b"denyoom" in add[2]
    [spec] = add[8]
    assert spec[:2] == [b"flags", [b"RW", b"access", b"update"]]
    assert spec[3] == [b"type", b"index", b"spec", [b"index", 1]]
    assert spec[5] == [b"type", b"range", b"spec", [b"lastkey", 0, b"keystep", 1, b"limit", 0]]


def test_objects(client: Any) -> None:
    """OBJECT answers for filters; what is not kept is refused and not made up."""
    client.bf().add("a", "x")
    assert client.object("refcount", "a") == 1
    assert client.object("refcount", "missing") is None
    for what in ("idletime", "freq"):
        with pytest.raises(redis.ResponseError, match="is not kept"):
            client.object(what, "a")


def test_wait(client: Any) -> None:
    """There are no replicas: WAIT says so, at once for none and after its time for some."""
    assert client.wait(0, 0) == 0
    began = time.monotonic()
    assert client.wait(1, 50) == 0
    assert time.monotonic() - began >= 0.05
    with pytest.raises(redis.ResponseError, match="negative"):
        client.wait(1, -1)
    port = client.connection_pool.connection_kwargs["port"]
    once = Retry(NoBackoff(), 0)  # else the client asks again, some seconds later
    other = redis.Redis(port=port, socket_timeout=0.2, retry=once)
    with other, pytest.raises(redis.TimeoutError):
        other.wait(1, 0)  # for ever
    assert client.ping()


def test_a_cuckoo_filter_that_may_not_grow_further(client: Any) -> None:
    """As in RedisBloom the limit is looked at once, before the first item of a command; then even
    an item that is there is refused."""
    client.config_set("cf-max-expansions", 4)
    try:
        client.cf().reserve("a", 4, expansion=1, bucket_size=1)
        replies = client.execute_command("CF.INSERTNX", "a", "ITEMS", *range(300))
        assert len(replies) == 300
        assert set(replies) == {0, 1}
        assert client.cf().info("a")["filterNum"] > 4
        for words in (
            ("CF.ADDNX", "a", 0),
            ("CF.ADD", "a", 0),
            ("CF.INSERT", "a", "ITEMS", 0),
            ("CF.INSERTNX", "a", "ITEMS", 0),
        ):
            with pytest.raises(redis.ResponseError, match="Maximum expansions reached"):
                client.execute_command(*words)
        there = [key for key, reply in enumerate(replies) if reply == 1]
        assert client.cf().mexists("a", *there) == [1] * len(there)
    finally:
        client.config_set("cf-max-expansions", 32)


@pytest.mark.parametrize("command", ["CF.INSERT", "CF.INSERTNX"])
def test_a_growth_that_fails_is_told_of_each_item(client: Any, command: str) -> None:
    """Without memory to grow, items that have no room are -1 and the others are in."""
    client.cf().reserve("a", 65_536, expansion=32_768)
    used = int(client.info("memory")["used_memory"])
    client.config_set("maxmemory", used + (1 << 20))
    try:
        keys = list(range(70_000))
        replies = []
        for start in range(0, len(keys), 1000):
            replies += client.execute_command(command, "a", "ITEMS", *keys[start : start + 1000])
        assert len(replies) == len(keys)
        assert -1 in replies
        there = [key for key, reply in zip(keys, replies, strict=True) if reply == 1]
        for start in range(0, len(there), 1000):
            assert set(client.cf().mexists("a", *there[start : start + 1000])) == {1}
    finally:
        client.config_set("maxmemory", 0)
