"""A Redis that is full, read-only, has a password or TLS; and commands that a node refuses."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.wire.flow import packed
from integration.nodes.conftest import StartFleet
from integration.nodes.load import reserve
from integration.servers import RedisServer, StartRedis, wait_until
from unit.service.certificates import Pairs

LINES = ["", "new", "new 1", "new 1 2", "seen new2 0.01 100", "seen a"]
KEYS = [f"key-{number}" for number in range(100)]


def _added(client: Any, *keys: str) -> bool:
    try:
        client.execute_command("BF.MADD", "seen", *keys)
    except redis.ResponseError:
        return False
    return True


def _whole(url: str, keys: list[str]) -> bool:
    with RedisFilter.open(url, "seen") as kept:
        return all(kept.contains_many(keys))


def test_a_redis_that_is_full(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """A filter that it has no room for is refused, and so are writes; the nodes stay up, answer,
    and go on when there is room."""
    server = start_redis(maxmemory="8mb", maxmemory_policy="noeviction")
    fleet = start_fleet(server.url, nodes=2)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *KEYS[:50])
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            one.execute_command("BF.RESERVE", "large", 1e-6, 10_000_000, "KIND", "bloom")
        assert one.execute_command("BF.EXISTS", "large", "a") == 0
        assert wait_until(lambda: _added(one, *KEYS[50:60]))  # there is room as before
        assert server.run("KEYS", "*large*") == []
        server.run("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            one.execute_command("BF.MADD", "seen", *KEYS[60:])
        assert sum(one.execute_command("BF.MEXISTS", "seen", *KEYS[:60])) == 60
        assert fleet.ready(0)
        server.run("CONFIG", "SET", "maxmemory", "0")
        assert wait_until(lambda: _added(one, *KEYS[60:]))
        assert wait_until(lambda: fleet.answers("seen", KEYS) == [0, 0])
        assert _whole(server.url, KEYS)
        one.execute_command("BF.RESERVE", "large", 1e-6, 1_000_000, "KIND", "bloom")
        one.execute_command("BF.ADD", "large", "a")
    assert wait_until(lambda: fleet.answers("large", ["a"]) == [0, 0])


def test_a_redis_that_is_read_only(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """It becomes a replica of another: writes are refused, and taken again when it is none."""
    server, other = start_redis(), start_redis()
    fleet = start_fleet(server.url, nodes=2)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *KEYS[:50])
        assert wait_until(lambda: fleet.answers("seen", KEYS[:50]) == [0, 0])
        server.run("REPLICAOF", "127.0.0.1", other.port)  # which has nothing: so has this one then
        assert wait_until(lambda: not _added(one, *KEYS[50:]))
        assert sum(one.execute_command("BF.MEXISTS", "seen", *KEYS[:50])) == 50
        with pytest.raises(redis.ResponseError):
            one.execute_command("BF.RESERVE", "other", 0.01, 100, "KIND", "bloom")
        server.run("REPLICAOF", "NO", "ONE")
        assert wait_until(lambda: _added(one, *KEYS[50:])), fleet.told(0)
    assert wait_until(lambda: fleet.answers("seen", KEYS) == [0, 0])
    assert wait_until(lambda: _whole(server.url, KEYS))


def test_a_password_and_tls(
    start_fleet: StartFleet, start_redis: StartRedis, tmp_path: Path
) -> None:
    """By rediss://, with the root behind the `?`; the password is in no log and no answer."""
    pairs = Pairs(tmp_path)
    server = start_redis(password="open-sesame", tls=pairs)
    url = f"{server.url}?ssl_ca_certs={pairs.trust()}"
    fleet = start_fleet(url, nodes=2, store_timeout_ms=1000)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *KEYS)
        assert wait_until(lambda: fleet.answers("seen", KEYS) == [0, 0])
        server.kill()
        assert wait_until(lambda: not _added(one, "more"))
        with pytest.raises(redis.ResponseError) as refused:
            one.execute_command("BF.ADD", "seen", "another")
    assert "open-sesame" not in str(refused.value)
    assert all("open-sesame" not in node.printed() for node in fleet.nodes)


def test_a_wrong_password_is_told(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """A node that may not enter is not ready, and says why."""
    server = start_redis(password="open-sesame")
    fleet = start_fleet(server.url, nodes=1)
    node = fleet.nodes[0]
    node.kill()
    node.arguments = tuple(word.replace("open-sesame", "wrong-word") for word in node.arguments)
    node.spawn()
    assert wait_until(lambda: "knows no such user and password" in node.printed()), node.printed()
    assert "this node waits for it" in node.printed()
    assert not fleet.ready(0)
    assert "wrong-word" not in node.printed()


def test_any_command_on_a_node(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Every command of the tables, with a name and some words: it is done or refused, and both
    nodes live. What a node does not have says so."""
    fleet = start_fleet(redis_server.url, nodes=2)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *KEYS)
        names = sorted(one.execute_command("COMMAND"))
    assert len(names) > 50
    for name in names:
        with (
            socket.create_connection(("127.0.0.1", fleet.ports[0][0]), timeout=60) as wire,
            suppress(ConnectionError),  # after QUIT
        ):
            for line in LINES:
                wire.sendall(packed([name, *line.split()]))
            with suppress(OSError):  # closed by QUIT already: "not connected", no ConnectionError
                wire.shutdown(socket.SHUT_WR)
            while wire.recv(65_536):  # to the end: it answers all, or closes
                pass
    for at in range(2):
        assert wait_until(lambda at=at: fleet.ready(at)), fleet.told(at)  # type: ignore[misc]
        assert "Traceback" not in fleet.nodes[at].printed(), fleet.told(at)
    with fleet.client(0) as one:
        for kind in ("counting", "cuckoo", "deletable", "rotating", "scalable"):
            with pytest.raises(redis.ResponseError, match="kind bloom"):
                one.execute_command("BF.RESERVE", f"a-{kind}", 0.01, 100, "KIND", kind)
        for words in (
            ("CF.RESERVE", "cf", 100),
            ("CF.ADD", "cf", "a"),
            ("BF.LOADCHUNK", "c", 1, ""),
        ):
            with pytest.raises(redis.ResponseError, match="store"):
                one.execute_command(*words)
        one.execute_command("BF.ADD", "again", "a")
    assert wait_until(lambda: fleet.answers("again", ["a"]) == [0, 0])
