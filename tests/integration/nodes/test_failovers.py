"""A Redis master dies, and a replica takes over: with `store-min-replicas` nothing is lost."""

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.nodes.load import load, reserve
from integration.servers import RedisCluster, Sentinel, wait_until

LAG = 1.0
OPTIONS = {"store_min_replicas": 1, "store_max_lag_ms": 1000, "store_timeout_ms": 500}


def _require_whole(fleet: Fleet, url: str, filter: str, keys: list[str]) -> None:
    assert wait_until(lambda: not any(fleet.answers(filter, keys))), (
        fleet.answers(filter, keys),
        fleet.figures(0),
    )
    for node in fleet.nodes:
        node.kill()
    for node in fleet.nodes:
        node.start()  # with nothing but what Redis has
    assert fleet.answers(filter, keys)[0] == 0


def test_a_master_of_the_cluster_is_killed(
    start_fleet: StartFleet, redis_cluster: RedisCluster
) -> None:
    """The one with the log, under load."""
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in redis_cluster.nodes)
    url = f"redis+cluster://{hosts}"
    fleet = start_fleet(url, nodes=2, **OPTIONS)
    name = "seen"
    reserve(fleet.ports[0][0], name)
    doomed = redis_cluster.master_of("{bloomery}:log")
    checker = Checker(lag=LAG)
    places = [(at, ports[0]) for at, ports in enumerate(fleet.ports)]
    with load(checker, places, filter=name) as run:
        run.flows(30)
        redis_cluster.fail(doomed)
        redis_cluster.restart(doomed)  # as a replica: without one no write is acknowledged
        run.flows(30)
    checker.require_right(writes=200, answers=200)
    _require_whole(fleet, url, name, checker.keys(name))


def test_sentinel_fails_over(start_fleet: StartFleet, redis_sentinel: Sentinel) -> None:
    """The master is killed under load."""
    hosts = ",".join(f"{host}:{port}" for host, port in redis_sentinel.addresses)
    url = f"redis+sentinel://{hosts}/{redis_sentinel.name}"
    fleet = start_fleet(url, nodes=2, **OPTIONS)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=LAG)
    places = [(at, ports[0]) for at, ports in enumerate(fleet.ports)]
    with load(checker, places) as run:
        run.flows(30)
        redis_sentinel.fail_over()
        run.flows(30)
    checker.require_right(writes=200, answers=200)
    _require_whole(fleet, url, "seen", checker.keys("seen"))
