"""What one program, or one command, puts into the log does not stop the nodes."""

from __future__ import annotations

import resource
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from bloomery.service.replication.core.entries import Kind, LogEntry
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet, missing
from integration.nodes.load import reserve
from integration.servers import StartRedis, wait_until

LOG, MANIFEST = "{bloomery}:log", "{bloomery}:manifest"
PATIENCE = 40  # seconds; nodes check what is in Redis every 10


def alerts(fleet: Fleet, number: int) -> set[str]:
    """The kinds of alerts that a node has now."""
    told = httpx.get(f"{fleet.nodes[number].url}/alerts", timeout=20).json()
    return {alert["kind"] for alert in told["alerts"]}


def comes(fleet: Fleet, number: int, kind: str) -> bool:
    """Wait for an alert of a node."""
    return wait_until(lambda: kind in alerts(fleet, number), seconds=PATIENCE)


def goes(fleet: Fleet, number: int, kind: str) -> bool:
    """Wait for the end of an alert of a node."""
    return wait_until(lambda: kind not in alerts(fleet, number), seconds=PATIENCE)


def test_foreign_entries_stop_no_node(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """They are set aside, with an alert, also one whose number is the last of all, or from a time
    to come; nodes go on, and others start."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=3, store_max_lag_ms=1000)
    fleet.nodes[2].kill()
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one, server.client() as store:
        for number, id in enumerate(["*", f"{2**64 - 1}-1", "*", "9999999999999-0"]):
            store.xadd(LOG, {"x": "y"}, id=id)
            assert one.execute_command("BF.ADD", "seen", f"key-{number}") == 1
        assert one.pexpire("seen", 100_000) == 1
        keys = [f"key-{number}" for number in range(4)]
        assert missing(fleet.ports[1][0], "seen", keys, strong=True) == 0
        assert store.xlen("{bloomery}:foreign") == 4
    fleet.nodes[2].spawn()
    fleet.wait_ready()
    assert fleet.answers("seen", keys, strong=True) == [0, 0, 0]
    with fleet.client(0, strong=True) as one:
        assert one.pttl("seen") > 0
    assert wait_until(
        lambda: all("store-foreign" in fleet.told(at) for at in (0, 1)), seconds=PATIENCE
    )


def test_nodes_go_on_when_a_damaged_entry_is_deleted(
    start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """It is not skipped, for it may have been acknowledged; nobody adds to the log meanwhile; and
    no node has to be restarted."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=2, store_max_lag_ms=1000)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one, server.client() as store:
        one.execute_command("BF.ADD", "seen", "before")
        id = store.xadd(LOG, {"e": b"x" * 100})
        for at in (0, 1):
            assert comes(fleet, at, "store-damaged")
            assert id.decode() in fleet.readyz(at)[1]
            assert httpx.get(f"{fleet.nodes[at].url}/healthz").status_code == 200
        length = store.xlen(LOG)
        with pytest.raises(redis.ResponseError, match="cannot follow"):
            one.execute_command("BF.ADD", "seen", "during")
        store.xdel(LOG, id)
        fleet.wait_ready()
        assert store.xlen(LOG) - length < 20
        assert one.execute_command("BF.ADD", "seen", "after") == 1
    assert fleet.answers("seen", ["before", "after"], strong=True) == [0, 0]
    assert all(goes(fleet, at, "store-damaged") for at in (0, 1))


def test_a_newer_entry_fails_liveness(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """Only another version of the server can follow: waiting is of no use."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=1)
    data = bytearray(LogEntry(b"12345678", 1, 1, Kind.WRITE).to_bytes())
    data[44] = 99  # its kind
    data[:4] = zlib.crc32(data[4:]).to_bytes(4, "little")
    server.run("XADD", LOG, "*", "e", bytes(data))
    url = f"{fleet.nodes[0].url}/healthz"
    assert wait_until(lambda: httpx.get(url).status_code == 503)
    assert "upgrade" in httpx.get(url).text


def test_a_filter_that_one_node_has_no_memory_for(
    start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """It is made and dropped at once: the node answers nothing until the holder has made a snapshot
    without it, and is ready again then."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=2)
    reserve(fleet.ports[0][0])
    small = fleet.nodes[1].process
    assert small is not None
    used = next(
        int(line.split()[1]) << 10
        for line in Path(f"/proc/{small.pid}/status").read_text().splitlines()
        if line.startswith("VmSize")
    )
    resource.prlimit(small.pid, resource.RLIMIT_AS, (used + (600 << 20), resource.RLIM_INFINITY))
    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "seen", "before")
        one.execute_command("BF.RESERVE", "huge", 0.0001, 600_000_000, "KIND", "bloom")
        one.delete("huge")
        assert one.execute_command("BF.ADD", "seen", "after") == 1
        assert comes(fleet, 1, "memory-short")
        with fleet.client(1) as other, pytest.raises(redis.ResponseError, match="cannot follow"):
            other.execute_command("BF.EXISTS", "seen", "before")
        fleet.wait_ready(1)
        assert fleet.answers("seen", ["before", "after"], strong=True) == [0, 0]
        assert goes(fleet, 1, "memory-short")
        assert fleet.figures(1)["loads"] == 1


def manifest_of(store: Any) -> bytes:
    """The list of snapshots."""
    return bytes(store.get(MANIFEST) or b"")


@pytest.mark.parametrize("loss", ["chunks", "manifest", "garbage", "start", "all"])
def test_what_a_node_needs_to_start_is_lost(
    loss: str, start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """Live nodes raise an alert and make a snapshot at once, and a node can start."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=2)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one, server.client() as store:
        one.execute_command("BF.ADD", "seen", "before")
        holder = fleet.lease_holder()
        with fleet.client(holder) as deciding:
            deciding.execute_command("SAVE")
            before = manifest_of(store)
            assert before
            one.execute_command("BF.ADD", "seen", "middle")
            deciding.execute_command("SAVE")  # now the start of the log is trimmed
        before = manifest_of(store)
        if loss == "chunks":
            store.delete(*store.scan_iter("*:chunk:*"))
        elif loss == "manifest":
            store.delete(MANIFEST)
        elif loss == "garbage":
            store.set(MANIFEST, b"BLM1" + bytes(100))
        else:
            for number in range(6):  # nodes have applied all but the last few
                one.execute_command("BF.ADD", "seen", f"later-{number}")
            store.xtrim(LOG, maxlen=0 if loss == "all" else 4, approximate=False)
        assert wait_until(lambda: manifest_of(store) not in (before, b""), seconds=PATIENCE)
        if loss != "all":
            assert wait_until(
                lambda: any("store-incomplete" in fleet.told(at) for at in (0, 1)),
                seconds=PATIENCE,
            ), fleet.told(holder)
        assert all(goes(fleet, at, "store-incomplete") for at in (0, 1))
        fleet.nodes[1 - holder].kill()
        fleet.nodes[1 - holder].spawn()
        fleet.wait_ready()
        assert fleet.answers("seen", ["before", "middle"], strong=True) == [0, 0]


def test_a_redis_that_evicts(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """Nodes warn when they start, until it is set otherwise."""
    server = start_redis(maxmemory_policy="allkeys-lru")
    fleet = start_fleet(server.url, nodes=1)
    assert comes(fleet, 0, "store-evicts")
    assert "maxmemory-policy is allkeys-lru" in fleet.told(0)
    server.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert goes(fleet, 0, "store-evicts")
