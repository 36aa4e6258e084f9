"""Redis is killed and comes back: with everything, without its last second, with nothing."""

import time
from pathlib import Path
from typing import Any

import pytest
import redis

from bloomery.integrations.redis import RedisFilter
from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet, client_at
from integration.nodes.load import load, reserve
from integration.servers import RedisServer, StartRedis, wait_until

LAG = 1.0
OPTIONS = {"store_max_lag_ms": 1000, "store_timeout_ms": 1000}


def _lost(url: str, keys: list[str]) -> int:
    """How many of these keys Redis does not have."""
    with RedisFilter.open(url, "seen") as kept:
        return len(keys) - sum(map(bool, kept.contains_many(keys)))


def _whole(fleet: Fleet, url: str, keys: list[str]) -> bool:
    """Whether every node and Redis have all of these keys."""
    if any(fleet.answers("seen", keys)):
        return False
    try:
        return _lost(url, keys) == 0
    except Exception:  # noqa: BLE001  # it may be on its way back
        return False


def _require_whole(fleet: Fleet, url: str, keys: list[str]) -> None:
    assert wait_until(lambda: _whole(fleet, url, keys)), (
        fleet.answers("seen", keys),
        [fleet.figures(at) for at in range(len(fleet.nodes))],
        fleet.told(0),
        _lost(url, keys),
    )
    for node in fleet.nodes:  # and one that knows nothing but what Redis has
        node.kill()
    fleet.nodes[0].start()
    assert fleet.nodes[0].process is not None
    with client_at(fleet.ports[0][0]) as client:
        found = client.execute_command("BF.MEXISTS", "seen", *keys)
    assert sum(found) == len(keys)


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_redis_is_killed_under_load(
    start_fleet: StartFleet, start_redis: StartRedis, fsync: str
) -> None:
    """Reads go on, writes are refused with an error that says why, and nothing acknowledged is lost
    when it is back."""
    server = start_redis(appendonly="yes", appendfsync=fsync)
    fleet = start_fleet(server.url, **OPTIONS)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=LAG)
    places = [(at, ports[0]) for at, ports in enumerate(fleet.ports)]
    with load(checker, places) as run:
        run.flows(50)
        with checker.excused(0, 1, 2):
            server.kill()
            assert wait_until(lambda: len(checker.failures) > 20)
            run.asks(200)  # answered, although nothing can be written
            refused = checker.failures[-1].problem
            assert isinstance(refused, redis.ResponseError), refused
            assert "Redis" in str(refused), refused
            for at in range(3):
                assert fleet.readyz(at)[0] == 200, fleet.readyz(at)
                assert wait_until(lambda node=at: fleet.figures(node)["up"] == 0)  # type: ignore[misc]
                refusing = (503, "writes are refused: Redis does not answer\n")
                assert fleet.readyz(at, "") == refusing
            server.start()
            fleet.wait_ready()
            run.flows(50)
    checker.require_right(writes=400, answers=400)
    _require_whole(fleet, server.url, checker.keys("seen"))


def test_redis_comes_back_with_nothing(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """A Redis without a disk is killed under load: the nodes give it back everything, filters and
    bits."""
    server = start_redis()
    fleet = start_fleet(server.url, **OPTIONS)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=LAG)
    places = [(at, ports[0]) for at, ports in enumerate(fleet.ports)]
    with load(checker, places) as run:
        run.flows(50)
        with checker.excused(0, 1, 2):
            server.kill()
            server.start()
            run.flows(50)
    checker.require_right(writes=400, answers=400)
    _require_whole(fleet, server.url, checker.keys("seen"))


def test_redis_comes_back_with_what_is_old(
    start_fleet: StartFleet, start_redis: StartRedis, tmp_path: Path
) -> None:
    """It has the strings of a snapshot that is older than what nodes keep of late."""
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
    _require_whole(fleet, server.url, keys)


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
    assert wait_until(lambda: _lost(server.url, keys) == 0), _lost(server.url, keys)


def test_a_string_is_gone(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Redis evicts a filter's string, or all is flushed while it runs: the nodes bring it back, and
    nobody is told no meanwhile."""
    fleet = start_fleet(redis_server.url, nodes=2)
    reserve(fleet.ports[0][0])
    keys = [str(number) for number in range(100)]
    with fleet.client(0) as one, fleet.client(0, strong=True) as shared:
        one.execute_command("BF.MADD", "seen", *keys)
        assert wait_until(lambda: fleet.answers("seen", keys) == [0, 0])
        for name, step in (("more", ("DEL", "{seen}:bits")), ("most", ("FLUSHALL",))):
            redis_server.run(*step)
            assert sum(shared.execute_command("BF.MEXISTS", "seen", *keys)) == len(keys)
            with pytest.raises(redis.ResponseError, match="restore"):
                shared.execute_command("BF.EXISTS", "seen", "never")

            assert wait_until(lambda n=name: _written(one, n))  # type: ignore[misc]
            keys.append(name)
            assert wait_until(lambda: _whole(fleet, redis_server.url, keys))


def _written(client: Any, key: str) -> bool:
    try:
        client.execute_command("BF.ADD", "seen", key)
    except redis.ResponseError:
        return False
    return True


def test_restarts_do_not_add_up(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """What nodes send again they send once a restart each, however often: it had doubled."""
    server = start_redis(appendonly="yes", appendfsync="always")
    fleet = start_fleet(server.url, nodes=2, **OPTIONS)
    reserve(fleet.ports[0][0])
    keys = [str(number) for number in range(100)]
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *keys)
    assert wait_until(lambda: fleet.answers("seen", keys) == [0, 0])
    for number in range(1, 4):
        server.kill()
        server.start()
        for at in range(2):
            assert wait_until(lambda node=at, n=number: fleet.figures(node)["restores"] >= n)  # type: ignore[misc]
            assert wait_until(lambda node=at: fleet.figures(node)["up"] == 1)  # type: ignore[misc]
    restores = [fleet.figures(at)["restores"] for at in range(2)]
    written = [fleet.figures(at)["written_keys"] for at in range(2)]
    assert written[0] <= 100 * (restores[0] + 1)
    assert 100 <= written[1] <= 100 * restores[1]
