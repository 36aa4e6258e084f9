"""`store-on-outage queue`: what is acknowledged while Redis is away waits on the node's disk."""

import pytest
import redis

from bloomery.integrations.redis import RedisFilter
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet, missing
from integration.nodes.load import reserve
from integration.servers import StartRedis, wait_until

OPTIONS = {"store_timeout_ms": 1000, "store_on_outage": "queue"}


def _known(url: str, keys: list[str]) -> int:
    with RedisFilter.open(url, "seen") as kept:
        return sum(map(bool, kept.contains_many(keys)))


@pytest.mark.parametrize("killed", ["node", "both", "neither"])
def test_queued_writes_reach_redis(
    start_fleet: StartFleet, start_redis: StartRedis, killed: str
) -> None:
    """Acknowledged in an outage, through `kill -9` of the node, and there for all afterwards."""
    server = start_redis(appendonly="yes", appendfsync="always")
    fleet = start_fleet(server.url, nodes=2, **OPTIONS)
    reserve(fleet.ports[0][0])
    keys = [f"key-{number}" for number in range(200)]
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *keys[:50])
        server.kill()
        for key in keys[50:70]:
            one.execute_command("BF.ADD", "seen", key)
        one.execute_command("BF.MADD", "seen", *keys[70:])
        assert missing(fleet.ports[0][0], "seen", keys) == 0
        assert fleet.figures(0)["queued_keys"] == 150
        with pytest.raises(redis.ResponseError, match="Redis"):
            one.execute_command("BF.RESERVE", "other", 0.01, 100, "KIND", "bloom")
    if killed in ("node", "both"):
        fleet.nodes[0].kill()
    if killed == "both":
        fleet.nodes[1].kill()
    server.start()
    for node in fleet.nodes:
        if node.process is None:
            node.start()
    fleet.wait_ready()
    assert wait_until(lambda: _known(server.url, keys) == len(keys))
    assert wait_until(lambda: fleet.answers("seen", keys) == [0, 0])
    assert wait_until(lambda: fleet.figures(0)["queued_keys"] == 0)
    fleet.nodes[0].restart()
    assert fleet.answers("seen", keys) == [0, 0]


def test_a_node_with_a_queue_starts_only_with_redis(
    start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """Killed during the outage and started before Redis is back: it waits, and then has both."""
    server = start_redis(appendonly="yes", appendfsync="always")
    fleet = start_fleet(server.url, nodes=1, **OPTIONS)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "seen", "before")
        server.kill()
        one.execute_command("BF.ADD", "seen", "meanwhile")
    fleet.nodes[0].kill()
    fleet.nodes[0].spawn()
    assert wait_until(lambda: _loading(fleet))
    server.start()
    fleet.wait_ready()
    assert fleet.answers("seen", ["before", "meanwhile"]) == [0]
    assert wait_until(lambda: _known(server.url, ["before", "meanwhile"]) == 2)


def _loading(fleet: Fleet) -> bool:
    try:
        return fleet.readyz(0)[0] == 503
    except OSError:
        return False
