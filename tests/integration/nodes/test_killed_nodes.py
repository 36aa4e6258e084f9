"""A node that is killed, or stopped for a while, behind the balancer and asked directly."""

import time
from typing import Any

import redis

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import missing
from integration.nodes.load import load, reserve
from integration.servers import RedisServer, wait_until

LAG = 1.0  # seconds: store-max-lag-ms in these tests


def test_a_node_is_killed_under_load(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """`kill -9`: each client fails at most in what it had asked that node just then, and nothing is
    wrong; the node comes back with all that was acknowledged meanwhile."""
    fleet = start_fleet(redis_server.url)
    reserve(fleet.ports[0][0])
    balancer = fleet.balancer()
    checker = Checker(lag=5.0)  # store-max-lag-ms as it is: nobody promises less
    with load(checker, [("balancer", balancer.resp_port)], count=6) as run:
        run.flows(30)
        clients = balancer.clients("resp")
        doomed = clients.index(max(clients))
        fleet.nodes[doomed].kill()
        run.flows(60)
        failed = len(checker.failures)
        assert failed <= 2 * max(clients), checker.failures  # each may have had two tries
        keys = checker.keys("seen")
        fleet.nodes[doomed].start()
        balancer.wait_for("UP", "UP", "UP")
        assert fleet.answers("seen", keys)[doomed] == 0
        run.flows(30)
        assert len(checker.failures) == failed
    assert wait_until(lambda: fleet.answers("seen", checker.keys("seen")) == [0, 0, 0])
    checker.require_right(writes=600, answers=600)


def test_a_node_is_stopped_past_the_limit(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """SIGSTOP: the balancer takes it out. When it goes on, it says no to nothing that was
    acknowledged meanwhile, from the first question on, by a connection of before."""
    fleet = start_fleet(redis_server.url, store_max_lag_ms=int(LAG * 1000))
    reserve(fleet.ports[0][0])
    balancer = fleet.balancer()
    checker = Checker(lag=LAG)
    for number in range(2):
        with fleet.client(2) as before:
            before.ping()
            fleet.nodes[2].freeze()
            began = time.monotonic()
            with load(checker, fleet.places[:2], filter="seen", seed=number, count=2) as run:
                run.flows(30)
                if number == 0:
                    balancer.wait_for("UP", "UP", "DOWN")
                time.sleep(max(0.0, began + LAG + 0.2 - time.monotonic()))
            time.sleep(LAG)
            keys = checker.keys("seen")
            fleet.nodes[2].thaw()
            assert wait_until(lambda b=before, k=keys: _known(b, k) is not None)  # type: ignore[misc]
            fleet.wait_ready(2)
            assert missing(fleet.ports[2][0], "seen", keys) == 0
    balancer.wait_for("UP", "UP", "UP")
    checker.require_right(writes=100, answers=100)


def test_the_stream_is_trimmed_while_a_node_is_stopped(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """What it missed is not in the stream any more: it loads a snapshot, and is whole."""
    fleet = start_fleet(
        redis_server.url,
        nodes=2,
        store_max_lag_ms=int(LAG * 1000),
        store_stream_bytes=1 << 16,
    )
    reserve(fleet.ports[0][0], capacity=15_000)
    holder = fleet.lease_holder()  # it goes on, and makes snapshots
    other = 1 - holder
    with fleet.client(holder) as writer, fleet.client(other) as before:
        assert wait_until(lambda: before.exists("seen") == 1)
        loads = fleet.figures(other)["loads"]
        fleet.nodes[other].freeze()
        keys: list[str] = []
        while len(keys) < 1000 or redis_server.run("XLEN", "{bloomery}:log") > len(keys) // 2:
            keys.append(f"key-{len(keys)}")  # one at a time: an entry of the stream each
            writer.execute_command("BF.ADD", "seen", keys[-1])
            assert len(keys) < 20_000
        time.sleep(1.2 * LAG)
        fleet.nodes[other].thaw()
        assert wait_until(lambda: _known(before, keys) is not None)
        assert _known(before, keys) == len(keys)
        fleet.wait_ready(other)
        assert missing(fleet.ports[other][0], "seen", keys) == 0
        assert fleet.figures(other)["loads"] > loads
    fleet.require_equal()


def _known(client: Any, keys: list[str]) -> int | None:
    """How many of them a node knows, from the first time it answers on."""
    try:
        found = client.execute_command("BF.MEXISTS", "seen", *keys)
    except redis.ResponseError:
        return None
    assert sum(found) == len(keys)
    return len(keys)


def test_a_snapshot_is_answered_from_at_once(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """A node that is started anew finds a snapshot, and behind it no entry that changes anything:
    its first answers are the snapshot's, and not those of a node without filters."""
    fleet = start_fleet(redis_server.url, nodes=1)
    reserve(fleet.ports[0][0])
    keys = [f"key-{number}" for number in range(500)]
    with fleet.client(0) as one:
        one.execute_command("BF.MADD", "seen", *keys)
    for _ in range(3):  # an entry of the clock may come between, by chance
        assert wait_until(lambda: bool(fleet.figures(0)["holds_lease"]))
        with fleet.client(0) as one:
            assert one.execute_command("SAVE")
        fleet.nodes[0].kill()
        fleet.nodes[0].start()
        assert missing(fleet.ports[0][0], "seen", keys) == 0
