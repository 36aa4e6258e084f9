"""A log in Redis that is not the one that nodes have: too old, another cluster's, or begun anew."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.nodes.load import reserve
from integration.servers import RedisServer, StartRedis, wait_until
from waiting import PATIENCE

OPTIONS = {"store_max_lag_ms": 1000, "store_timeout_ms": 1000}
_HISTORY = 10_000  # entries that a node keeps


def _alerts(fleet: Fleet, number: int) -> list[str]:
    """The texts of a node's alert that the log differs."""
    found = httpx.get(f"http://127.0.0.1:{fleet.ports[number][1]}/alerts").json()["alerts"]
    return [alert["text"] for alert in found if alert["kind"] == "store-differs"]


def _recover(fleet: Fleet, option: str) -> subprocess.CompletedProcess[str]:
    """Decide for the first node, by the command line."""
    server = f"http://127.0.0.1:{fleet.ports[0][1]}"
    command = [sys.executable, "-m", "bloomery", "nodes", "recover", option, "--server", server]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _swap_contents(server: RedisServer, other: RedisServer) -> None:
    """Let one Redis have what another one has, in one step."""
    with server.client() as ours, other.client() as theirs:
        keys = {key: theirs.dump(key) for key in theirs.scan_iter()}
        with ours.pipeline(transaction=True) as pipeline:
            pipeline.flushall()
            for key, value in keys.items():
                pipeline.restore(key, 0, value)
            pipeline.execute()


def test_redis_loses_more_than_nodes_keep(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """A replica that lags by more entries than nodes keep takes over: they restore their copy."""
    server = start_redis(dbfilename="old.rdb")
    fleet = start_fleet(server.url, nodes=2, **OPTIONS, store_replay_seconds=1)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "seen", "before")
        server.run("SAVE")
        keys = [f"late-{number}" for number in range(_HISTORY + 200)]
        for key in keys:
            one.execute_command("BF.ADD", "seen", key)
    assert wait_until(lambda: fleet.answers("seen", [keys[-1]]) == [0, 0])
    server.kill()
    server.start()
    fleet.wait_ready()
    checked = ["before", *keys[::100], keys[-1]]
    assert wait_until(lambda: fleet.answers("seen", checked, strong=True) == [0, 0])
    fleet.require_equal()
    assert not server.run("EXISTS", "{bloomery}:claim")
    assert wait_until(lambda: not _alerts(fleet, 0) + _alerts(fleet, 1))
    fleet.nodes[1].kill()  # one that starts has all of it too
    fleet.nodes[1].start()
    fleet.wait_ready()
    assert fleet.answers("seen", checked) == [0, 0]


@pytest.mark.parametrize("option", ["--keep", "--discard"])
def test_another_log_waits_for_an_operator(
    start_fleet: StartFleet, start_redis: StartRedis, option: str
) -> None:
    """The log of another cluster appears in Redis: a node with filters neither follows nor writes
    to it until an operator decides."""
    server, other = start_redis(), start_redis()
    strangers = start_fleet(other.url, nodes=1, **OPTIONS)
    reserve(strangers.ports[0][0], "theirs")
    fleet = start_fleet(server.url, nodes=1, **OPTIONS)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one, strangers.client(0) as another:
        one.execute_command("BF.ADD", "seen", "ours")
        another.execute_command("BF.ADD", "theirs", "foreign")
        assert _recover(fleet, option).returncode != 0  # nothing to decide
        _swap_contents(server, other)
        length = server.run("XLEN", "{bloomery}:log")
        assert wait_until(lambda: bool(_alerts(fleet, 0)))
        assert "bloomery nodes recover" in _alerts(fleet, 0)[0]
        assert wait_until(lambda: not fleet.ready(0))
        assert "another one" in fleet.readyz(0)[1]
        assert server.run("XLEN", "{bloomery}:log") == length  # nothing was written there
        assert not server.run("EXISTS", "{bloomery}:claim")
        told = _recover(fleet, option)
        assert told.returncode == 0, told.stderr
        fleet.wait_ready()
        kept, dropped = ("seen", "theirs") if option == "--keep" else ("theirs", "seen")
        assert wait_until(lambda: one.execute_command("BF.EXISTS", kept, "no") == 0)
        assert one.execute_command("EXISTS", dropped) == 0
        assert one.execute_command("BF.ADD", kept, "more") == 1
    assert wait_until(lambda: not _alerts(fleet, 0))


def test_a_claim_keeps_a_new_node_from_beginning_a_log(
    tmp_path: Path, start_redis: StartRedis
) -> None:
    """While a node restores an empty Redis, however long that takes, a new one waits."""
    server = start_redis()
    server.run("HSET", "{bloomery}:claim", "seen", "1")
    fleet = Fleet(tmp_path, server.url, nodes=1, **OPTIONS)
    node = fleet.nodes[0]
    try:
        node.spawn()
        assert wait_until(lambda: _appends(server) > 0)
        before = _appends(server)
        # It tries to begin one again and again, each time after `store-bootstrap-seconds`.
        assert wait_until(lambda: _appends(server) > before + 20)
        assert not server.run("EXISTS", "{bloomery}:log")
        server.run("DEL", "{bloomery}:claim")
        fleet.wait_ready()
    finally:
        node.kill()


def _appends(server: RedisServer) -> int:
    """How many scripts Redis has run."""
    return int(server.run("INFO", "commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


def test_a_node_of_another_cluster_does_not_join(
    tmp_path: Path, start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """The name in the settings is not that of the log: the node says so and does not start."""
    server = start_redis()
    start_fleet(server.url, nodes=1, **OPTIONS, store_cluster="eu")
    for name in ("us", ""):
        folder = tmp_path / f"wrong-{name}"
        folder.mkdir()
        wrong = Fleet(folder, server.url, nodes=1, **OPTIONS, store_cluster=name).nodes[0]
        wrong.spawn()
        assert wrong.process is not None
        assert wrong.process.wait(PATIENCE) == 2
        assert "'eu'" in wrong.printed()
        assert "store-cluster" in wrong.printed()
