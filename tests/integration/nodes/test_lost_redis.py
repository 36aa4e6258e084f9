"""Redis is killed and comes back: with everything, without its last second, with nothing."""

import time
from pathlib import Path

import pytest
import redis

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet, missing
from integration.nodes.load import load, reserve
from integration.servers import StartRedis, wait_until

LAG = 1.0
OPTIONS = {"store_max_lag_ms": 1000, "store_timeout_ms": 1000}


def _require_whole(fleet: Fleet, keys: list[str]) -> None:
    """All nodes have all of these keys, and so has one that begins with what Redis has."""
    fleet.wait_ready()
    assert wait_until(lambda: not any(fleet.answers("seen", keys, strong=True))), (
        fleet.answers("seen", keys),
        [fleet.figures(at) for at in range(len(fleet.nodes))],
        fleet.told(0),
    )
    fleet.require_equal()
    for node in fleet.nodes:
        node.kill()
    fleet.nodes[0].start()
    assert missing(fleet.ports[0][0], "seen", keys) == 0


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_redis_is_killed_under_load(
    start_fleet: StartFleet, start_redis: StartRedis, fsync: str
) -> None:
    """Writes, and reads once the copies are too old, are refused with an error that says why; and
    nothing acknowledged is lost when it is back."""
    server = start_redis(appendonly="yes", appendfsync=fsync)
    fleet = start_fleet(server.url, **OPTIONS)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=LAG)
    with load(checker, fleet.places) as run:
        run.flows(50)
        server.kill()
        assert wait_until(lambda: len(checker.failures) > 20)
        assert wait_until(lambda: not any(fleet.ready(at) for at in range(3)))  # too old by now
        refused = checker.failures[-1].problem
        assert isinstance(refused, redis.ResponseError), refused
        assert "Redis" in str(refused), refused
        for at in range(3):
            assert fleet.figures(at)["up"] == 0
            status, told = fleet.readyz(at)
            assert status == 503
            assert "Redis does not answer" in told
        server.start()
        fleet.wait_ready()
        run.flows(50)
    checker.require_right(writes=400, answers=400)
    _require_whole(fleet, checker.keys("seen"))


def test_redis_comes_back_with_nothing(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """A Redis without a disk is killed under load: the nodes give it back everything."""
    server = start_redis()
    fleet = start_fleet(server.url, **OPTIONS)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=LAG)
    with load(checker, fleet.places) as run:
        run.flows(50)
        server.kill()
        server.start()
        run.flows(50)
    checker.require_right(writes=400, answers=400)
    _require_whole(fleet, checker.keys("seen"))


def test_redis_comes_back_with_what_is_old(
    start_fleet: StartFleet, start_redis: StartRedis, tmp_path: Path
) -> None:
    """It has less than nodes have applied, and keep of late: they put all of it back."""
    server = start_redis(dbfilename="old.rdb")
    fleet = start_fleet(server.url, **OPTIONS, store_replay_seconds=1)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "seen", "before")
        server.run("SAVE")
        one.execute_command("BF.MADD", "seen", *map(str, range(500)))
        time.sleep(1.2)  # longer than a node keeps what was of late (store-replay-seconds)
        one.execute_command("BF.ADD", "seen", "late")
    keys = ["before", "late", *map(str, range(500))]
    assert wait_until(lambda: fleet.answers("seen", keys) == [0, 0, 0])
    server.kill()
    server.start()
    _require_whole(fleet, keys)


def test_what_a_dead_node_wrote_last(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """A node acknowledges, and dies with Redis, which loses it: the other node heard of it."""
    server = start_redis(appendonly="yes", appendfsync="no")
    fleet = start_fleet(server.url, nodes=2, **OPTIONS)
    reserve(fleet.ports[0][0])
    log = next((server.folder / "appendonlydir").glob("*.incr.aof"))
    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "seen", "kept")
        size = log.stat().st_size
        one.execute_command("BF.MADD", "seen", *map(str, range(100)))
    keys = ["kept", *map(str, range(100))]
    assert wait_until(lambda: fleet.answers("seen", keys) == [0, 0])
    fleet.nodes[0].kill()
    server.kill()
    with log.open("r+b") as file:
        assert log.stat().st_size > size
        file.truncate(size)
    server.start()
    fleet.wait_ready(1)
    fleet.nodes[0].start()  # it may join before the other node looks what Redis has: not at once
    assert wait_until(lambda: fleet.answers("seen", keys) == [0, 0])
    _require_whole(fleet, keys)


@pytest.mark.parametrize("lost", ["FLUSHALL", "log", "last", "manifest", "chunks"])
def test_keys_are_gone(start_fleet: StartFleet, start_redis: StartRedis, lost: str) -> None:
    """Somebody deletes all, or some of it, while Redis and nodes run: nobody is told no, and a node
    that starts afterwards has everything."""
    server = start_redis()
    fleet = start_fleet(
        server.url, nodes=2, **OPTIONS, store_stream_bytes=1 << 16, store_bootstrap_seconds=3
    )
    reserve(fleet.ports[0][0], capacity=15_000)
    checker = Checker(lag=LAG)
    with load(checker, fleet.places, count=2, pause=0) as run:
        if lost in ("manifest", "chunks"):
            assert wait_until(lambda: server.run("EXISTS", "{bloomery}:manifest"))
        run.flows(30)
        known = server.run("GET", "{bloomery}:manifest")
        if lost == "FLUSHALL":
            server.run("FLUSHALL")
        elif lost == "chunks":
            server.run("DEL", *server.run("KEYS", "{bloomery}:chunk:*"))
        else:
            server.run("DEL", f"{{bloomery}}:{lost}")
        run.flows(200)
        if lost in ("manifest", "chunks"):  # until there is another, a new node would have nothing
            assert wait_until(lambda: server.run("GET", "{bloomery}:manifest") not in (None, known))
    checker.require_right(writes=200, answers=200)
    _require_whole(fleet, checker.keys("seen"))
