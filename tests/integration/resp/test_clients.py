"""The clients of PyPI: what each asks when it connects, and what dashboards ask by it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import missing, require
from integration.resp.wire import Wire, facts, request, shown
from integration.servers import BloomeryServer, wait_until

# In a process of its own: hypothesis asks every module that was imported for all its names, and
# glide warns about some of them.
GLIDE = """
import asyncio, sys
from glide import GlideClient, GlideClientConfiguration, NodeAddress

async def main():
    address = NodeAddress("127.0.0.1", int(sys.argv[1]))
    client = await GlideClient.create(GlideClientConfiguration([address], request_timeout=10_000))
    print(await client.ping())
    print(await client.custom_command(["BF.ADD", "glide", "x"]))
    print(await client.custom_command(["BF.EXISTS", "glide", "x"]))
    print(b"role:master" in await client.info(), len(await client.time()), await client.select(0))
    await client.close()

asyncio.run(main())
"""


def test_valkey_glide_connects(empty: BloomeryServer) -> None:
    """valkey-glide asks INFO replication for the role of the server before anything else."""
    if importlib.util.find_spec("glide") is None:
        missing("valkey-glide")
    done = subprocess.run(
        [sys.executable, "-c", GLIDE, str(empty.resp_port)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["b'PONG'", "True", "True", "True 2 OK"], done.stderr


@pytest.fixture(params=["redis.Redis", "valkey.Valkey"])
def client(request: pytest.FixtureRequest, empty: BloomeryServer) -> Iterator[Any]:
    """A client of either library."""
    module, _, name = request.param.partition(".")
    with getattr(require(module), name)(port=empty.resp_port) as client:
        yield client


def test_dashboards_get_what_they_ask(client: Any, empty: BloomeryServer) -> None:
    """The methods that health checks and dashboards call work, with the values of a server that
    has just been flushed."""
    assert client.client_info()["cmd"] == "client|info"
    assert {"fd", "sub", "psub", "qbuf-free", "obl", "oll", "events"} <= client.client_info().keys()
    assert any(one["cmd"] == "client|list" for one in client.client_list())
    seconds, micros = client.time()
    assert seconds > 1_500_000_000
    assert 0 <= micros < 1_000_000
    assert client.role()[0] in (b"master", "master")
    assert client.slowlog_len() >= 0
    assert isinstance(client.slowlog_get(), list)
    assert client.slowlog_reset()
    assert client.latency_latest() == []
    assert client.latency_reset() == 0
    assert client.acl_whoami() == "default"
    assert "write" in [str(one) for one in client.acl_cat()]
    assert client.acl_list() == ["user default on nopass ~* &* +@all"]
    user = client.acl_getuser("default")
    assert sorted(map(str, user["flags"])) == ["nopass", "on"]
    assert user["enabled"]
    assert client.info("replication")["role"] == "master"
    assert client.info("replication")["connected_slaves"] == 0
    assert float(client.info("cpu")["used_cpu_user"]) > 0
    assert client.config_get("slowlog*")
    assert client.client_getredir() == -1


def test_glances_of_a_dashboard(empty: BloomeryServer) -> None:
    """Hits and misses, expired filters and the rate of commands are those of the clients."""
    with Wire(empty.resp_port) as wire:
        assert wire.ask("CONFIG", "RESETSTAT") == b"+OK\r\n"
        wire.ask("BF.ADD", "a", "x")
        for words in [("BF.EXISTS", "a", "x"), ("BF.MEXISTS", "a", *range(5000)), ("TTL", "a")]:
            wire.ask(*words)
        for words in [("BF.EXISTS", "b", "x"), ("BF.MEXISTS", "b", *range(5000)), ("TTL", "b")]:
            wire.ask(*words)
        stats = facts(wire, "stats")
        assert (stats["keyspace_hits"], stats["keyspace_misses"]) == ("3", "3")
        assert stats["expired_keys"] == "0"
        wire.ask("PEXPIRE", "a", 20)
        assert wait_until(lambda: facts(wire, "stats")["expired_keys"] == "1")

        def busy() -> bool:
            wire.send(b"PING\r\n" * 1000)
            for _ in range(1000):
                wire.reply()
            return int(facts(wire, "stats")["instantaneous_ops_per_sec"]) > 500

        assert wait_until(busy)


def test_info_of_valkey_bloom(empty: BloomeryServer) -> None:
    """INFO bf sums up the filters of BF commands, as valkey-bloom does."""
    with Wire(empty.resp_port) as wire:
        nothing = facts(wire, "bf")
        assert nothing["bf_bloom_num_objects"] == "0"
        wire.ask("BF.RESERVE", "a", "0.01", 1000)
        wire.ask("BF.RESERVE", "b", "0.01", 500)
        wire.ask("BF.MADD", "a", "x", "y")
        wire.ask("CF.ADD", "c", "z")
        assert facts(wire, "bf") == {
            "bf_bloom_total_memory_bytes": facts(wire, "bf")["bf_bloom_total_memory_bytes"],
            "bf_bloom_num_objects": "2",
            "bf_bloom_num_filters_across_objects": "2",
            "bf_bloom_num_items_across_objects": "2",
            "bf_bloom_capacity_across_objects": "1500",
            "bf_bloom_defrag_hits": "0",
            "bf_bloom_defrag_misses": "0",
        }
        sizes = [int(shown(wire.ask("BF.INFO", name, "SIZE"))[0][1:]) for name in "ab"]
        assert facts(wire, "bf")["bf_bloom_total_memory_bytes"] == str(sum(sizes))
        assert facts(wire, "bf_bloom_core_metrics").keys() < facts(wire, "modules").keys()
        assert "bf_bloom_num_objects" not in facts(wire)


def test_slow_log_has_no_keys(empty: BloomeryServer) -> None:
    """SLOWLOG GET shows the command, the names of filters and the client, but no key."""
    with Wire(empty.resp_port) as wire:
        wire.ask("CLIENT", "SETNAME", "me")
        wire.ask("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 2)
        try:
            wire.ask("SLOWLOG", "RESET")
            wire.ask("BF.INSERT", "a", "CAPACITY", 100, "ITEMS", "secret")
            wire.ask("BF.CARD", "a")
            wire.ask("BF.INFO", "a", "SIZE")
            assert shown(wire.ask("SLOWLOG", "LEN")) == ":2"
            (number, when, micros, words, address, name), *_ = [
                entry
                for entry in shown(wire.ask("SLOWLOG", "GET", -1))
                if entry[3][0] == "$BF.INFO"
            ]
            assert words == ["$BF.INFO", "$a", "$... (1 more arguments)"]
            assert address.startswith("$127.0.0.1:")
            assert name == "$me"
            assert int(when[1:]) > 1_500_000_000
            assert int(number[1:]) > 0
            assert int(micros[1:]) >= 0
            assert "secret" not in str(shown(wire.ask("SLOWLOG", "GET", -1)))
        finally:
            wire.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000, "slowlog-max-len", 128)


def test_client_reply(empty: BloomeryServer, protocol: int) -> None:
    """CLIENT REPLY OFF leaves out every reply until ON, and SKIP the next one; commands run."""
    with Wire(empty.resp_port, protocol) as wire:
        one = b":1\r\n" if protocol == 2 else b"#t\r\n"
        for words in [
            *(("CLIENT", "REPLY", "OFF"), ("BF.ADD", "a", "x"), ("PING",), ("NOSUCH",)),
            ("CLIENT", "REPLY", "SKIP"),
            ("CLIENT", "REPLY", "ON"),
        ]:
            assert_sent(wire, *words)
        assert wire.reply() == b"+OK\r\n"
        assert wire.ask("BF.EXISTS", "a", "x") == one
        assert_sent(wire, "CLIENT", "REPLY", "SKIP")
        assert_sent(wire, "BF.ADD", "a", "y")
        assert wire.ask("BF.EXISTS", "a", "y") == one
        assert wire.ask("BF.EXISTS", "a", "x") == one
        assert_sent(wire, "CLIENT", "REPLY", "OFF")
        assert_sent(wire, "PING")
        assert wire.ask("RESET") == b"+RESET\r\n"


def assert_sent(wire: Wire, *words: str) -> None:
    """Send a command whose reply is left out."""
    wire.send(request(*words))


def test_refusals_name_what_to_use(empty: BloomeryServer) -> None:
    """MONITOR, CLIENT TRACKING ON and CLIENT PAUSE are refused, and the connection stays usable."""
    with Wire(empty.resp_port) as wire:
        for words in [("MONITOR",), ("CLIENT", "TRACKING", "ON"), ("CLIENT", "PAUSE", 100)]:
            reply = wire.ask(*words)
            assert reply.startswith(b"-ERR "), words
            assert b"is not supported" in reply
            assert wire.ask("PING") == b"+PONG\r\n"
