"""A Redis master dies, and a replica takes over: with `store-min-replicas` nothing is lost; without
it, nodes write again what the replica has not got."""

from typing import Any

import redis

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.nodes.load import RATE, load, reserve
from integration.nodes.proxy import Proxy
from integration.servers import RedisCluster, RedisServer, Sentinel, StartRedis, wait_until

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
    with load(checker, fleet.places, filter=name) as run:
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
    with load(checker, fleet.places) as run:
        run.flows(30)
        redis_sentinel.fail_over()
        run.flows(30)
    checker.require_right(writes=200, answers=200)
    _require_whole(fleet, url, "seen", checker.keys("seen"))


def test_a_replica_without_the_last_writes_takes_over(
    start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """Without `store-min-replicas`. The master acknowledges what its replica has not got, and dies;
    the replica is promoted by hand. The nodes put back what it lacks, as it was, and go on."""
    master, replica = _with_replica(start_redis)
    with Proxy(master.address) as near, Proxy(master.address) as far:
        fleet = _two_nodes(start_fleet, near, far)
        with fleet.client(0) as one, fleet.client(1) as other:
            one.execute_command("BF.ADD", "seen", "before")
            master.wait_for_replicas(1)
            replica.run("REPLICAOF", "NO", "ONE")
            lost = [f"lost {number}" for number in range(50)]
            for client, keys in ((one, lost[:25]), (other, lost[25:])):
                assert all(client.execute_command("BF.ADD", "seen", key) for key in keys)
            assert wait_until(lambda: fleet.answers("seen", lost) == [0, 0])
            tail = _entries(master)[-50:]
            assert not set(tail) & set(_entries(replica))
            _move([near, far], master, replica)
            assert wait_until(lambda: _added(one, "after") and _added(other, "after too"))
        kept = ["before", "after", "after too", *lost]
        assert wait_until(lambda: set(tail) <= set(_entries(replica)))  # where they were
        _require_whole(fleet, replica.url, "seen", kept)


def test_others_write_to_the_new_master_first(
    start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """One node alone has what the dead master acknowledged, and comes when another has written to
    the new one: its history is no beginning of that log. It takes the log as it is, and writes what
    it acknowledged once more; nothing of either is lost, and both have the same."""
    master, replica = _with_replica(start_redis)
    with Proxy(master.address) as near, Proxy(master.address) as far:
        fleet = _two_nodes(start_fleet, near, far)
        with fleet.client(0) as one, fleet.client(1) as other:
            one.execute_command("BF.ADD", "seen", "before")
            assert wait_until(lambda: fleet.answers("seen", ["before"]) == [0, 0])
            master.wait_for_replicas(1)
            replica.run("REPLICAOF", "NO", "ONE")
            far.cut()
            lost = [f"lost {number}" for number in range(50)]
            assert all(one.execute_command("BF.ADD", "seen", key) for key in lost)
            one.execute_command("BF.RESERVE", "made", RATE, 100)
            one.execute_command("BF.ADD", "made", "too")
            tail = _entries(master)[-20:]
            near.cut()
            _move([far], master, replica)
            assert wait_until(lambda: _added(other, "first"))
            assert other.execute_command("BF.EXISTS", "seen", lost[0]) == 0
            _move([near], master, replica)
            kept = ["before", "first", *lost]
            assert wait_until(lambda: fleet.answers("seen", kept, strong=True) == [0, 0])
            assert wait_until(lambda: fleet.answers("made", ["too"], strong=True) == [0, 0])
        assert not set(tail) & set(_entries(replica))  # other entries, behind those of the other
        fleet.require_equal()
        _require_whole(fleet, replica.url, "seen", kept)


def _entries(server: RedisServer) -> list[bytes]:
    """The positions of the log's entries."""
    found: list[tuple[bytes, Any]] = server.run("XRANGE", "{bloomery}:log", "-", "+")
    return [position for position, _ in found]


def _with_replica(start_redis: StartRedis) -> tuple[RedisServer, RedisServer]:
    """A master and its replica."""
    master, replica = start_redis(), start_redis()
    replica.run("REPLICAOF", "127.0.0.1", master.port)
    return master, replica


def _two_nodes(start_fleet: StartFleet, *proxies: Proxy) -> Fleet:
    """Nodes that reach the master each by a way of its own, with a filter."""
    urls = [proxy.url for proxy in proxies]
    fleet = start_fleet(urls, store_max_lag_ms=1000, store_timeout_ms=500)
    reserve(fleet.ports[0][0])
    return fleet


def _move(proxies: list[Proxy], master: RedisServer, to: RedisServer) -> None:
    """Let the master be dead, and nodes find the other one."""
    if master.process is not None:
        master.kill()
    for proxy in proxies:
        proxy.cut()
        proxy.place = to.address
        proxy.mend()


def _added(client: Any, key: str) -> bool:
    try:
        client.execute_command("BF.ADD", "seen", key)
    except redis.ResponseError:
        return False
    return True
