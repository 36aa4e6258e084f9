"""A Redis that is full, read-only, has a password or TLS; and commands that a node refuses."""

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

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


def test_a_redis_that_is_full(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """Writes are refused at once and say why, copies stay current and answer; there is one alert,
    no heap of unfinished snapshots, and all goes on when there is room."""
    server = start_redis(maxmemory_policy="noeviction")
    fleet = start_fleet(server.url, nodes=2, store_stream_bytes=1 << 16, store_max_lag_ms=1000)
    reserve(fleet.ports[0][0], capacity=15_000)
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *KEYS[:50])
        assert wait_until(lambda: fleet.answers("seen", KEYS[:50]) == [0, 0])
        server.run("CONFIG", "SET", "maxmemory", "1mb")
        began = time.monotonic()
        with pytest.raises(redis.ResponseError, match="is full: raise its maxmemory"):
            one.execute_command("BF.MADD", "seen", *KEYS[60:])
        assert time.monotonic() - began < 1
        url = f"{fleet.nodes[0].url}/filters/seen"
        told = httpx.post(f"{url}/add", json={"keys": ["refused"]})
        assert (told.status_code, told.json()["code"]) == (507, "store-refused")
        assert "raise its maxmemory" in told.json()["detail"]
        until = time.monotonic() + 2.5  # longer than copies may be old
        while time.monotonic() < until:
            assert sum(one.execute_command("BF.MEXISTS", "seen", *KEYS[:60])) == 50
            assert not _added(one, "refused")
            assert fleet.ready(0)
        status, why = fleet.readyz(0, "")
        assert (status, "is full: raise its maxmemory" in why) == (503, True), why
        assert "does not answer" not in why
        (alert,) = httpx.get(f"{fleet.nodes[0].url}/alerts").json()["alerts"]
        assert alert["kind"] == "store-refused"
        assert fleet.answers("seen", KEYS[:50], strong=True) == [0, 0]
        printed = fleet.nodes[0].printed()
        assert (printed.count("store-refused"), printed.count("store-unavailable")) == (1, 0)
        server.run("CONFIG", "SET", "maxmemory", "0")
        assert wait_until(lambda: _added(one, *KEYS[60:]))
        assert wait_until(lambda: fleet.readyz(0, "")[0] == 200)
        assert httpx.get(f"{fleet.nodes[0].url}/alerts").json() == {"alerts": []}
    assert wait_until(lambda: fleet.answers("seen", KEYS[60:]) == [0, 0])
    fleet.require_equal()


def test_no_room_for_a_snapshot(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """What was written of it does not stay, and writes go on."""
    server = start_redis(maxmemory_policy="noeviction")
    fleet = start_fleet(server.url, nodes=1, store_stream_bytes=1 << 16)
    reserve(fleet.ports[0][0], capacity=7_000_000)  # 25 MB: seven chunks
    with fleet.client(0) as one:
        used = int(server.info("memory")["used_memory"])
        server.run("CONFIG", "SET", "maxmemory", used + (20 << 20))
        sent = 0
        while "snapshot could not be written" not in fleet.nodes[0].printed():
            _added(one, *(f"{sent}-{n}" for n in range(10_000)))  # refused while it is tried
            sent += 1
            assert sent < 1000
        assert "maxmemory" in fleet.nodes[0].printed()
        assert wait_until(lambda: server.run("KEYS", "{bloomery}:chunk:*") == [])
        assert wait_until(lambda: _added(one, "more"))
        server.run("CONFIG", "SET", "maxmemory", "0")
        assert wait_until(lambda: server.run("EXISTS", "{bloomery}:manifest"))


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
        with pytest.raises(redis.ResponseError):
            one.execute_command("BF.RESERVE", "other", 0.01, 100, "KIND", "bloom")
        server.run("REPLICAOF", "NO", "ONE")
        assert wait_until(lambda: _added(one, *KEYS[50:])), fleet.told(0)
    assert wait_until(lambda: fleet.answers("seen", KEYS) == [0, 0])


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
    assert wait_until(lambda: "invalid username-password" in node.printed()), node.printed()
    assert not fleet.ready(0)
    assert "wrong-word" not in node.printed()


def test_any_command_on_a_node(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Every command of the tables, with a name and some words: it is done or refused, and both
    nodes live and have the same."""
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
        one.execute_command("BF.ADD", "again", "a")
    assert wait_until(lambda: fleet.answers("again", ["a"]) == [0, 0])
    fleet.require_equal()
