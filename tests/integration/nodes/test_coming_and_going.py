"""Nodes that are started and stopped at a bad moment."""

import time

from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.servers import RedisServer, StartRedis, wait_until

KEYS = [f"k{number}" for number in range(500)]


def test_what_was_queued_before_a_restart(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """Acknowledged on the disk while Redis was away, by a node that is killed then: when both are
    back every node knows it, that one too."""
    store = start_redis(appendonly="yes")
    fleet = start_fleet(store.url, nodes=2, store_on_outage="queue")
    with fleet.client(0) as one:
        one.execute_command("BF.RESERVE", "f", 1e-6, 1000)
        store.kill()
        for key in KEYS[:5]:
            one.execute_command("BF.ADD", "f", key)
    fleet.nodes[0].kill()
    store.start()
    fleet.nodes[0].start()
    assert wait_until(lambda: fleet.answers("f", KEYS[:5]) == [0, 0])


def test_what_was_queued_and_redis_came_back_empty(
    start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """As before, and another node has to restore the filter first."""
    store = start_redis()
    fleet = start_fleet(store.url, nodes=2, store_on_outage="queue")
    with fleet.client(0) as one:
        one.execute_command("BF.RESERVE", "f", 1e-6, 1000)
        assert wait_until(lambda: _knows(fleet, 1))
        fleet.nodes[1].freeze()
        store.kill()
        for key in KEYS[:5]:
            one.execute_command("BF.ADD", "f", key)
    fleet.nodes[0].kill()
    store.start()
    fleet.nodes[0].start()  # of the filter there is nothing, and nobody
    fleet.nodes[1].thaw()
    assert wait_until(lambda: fleet.answers("f", KEYS[:5]) == [0, 0])


def _knows(fleet: Fleet, number: int) -> bool:
    with fleet.client(number) as client:
        return bool(client.exists("f"))


def test_started_before_others_restore(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """Redis comes back with nothing, and a node that has nothing either is there first: it has all
    keys once one that knows them has restored them, also those of long ago."""
    store = start_redis()
    fleet = start_fleet(store.url, nodes=2, store_replay_seconds=1)
    with fleet.client(0) as one:
        one.execute_command("BF.RESERVE", "f", 1e-6, 1000)
        one.execute_command("BF.MADD", "f", *KEYS)
        assert wait_until(lambda: fleet.answers("f", KEYS) == [0, 0])
        time.sleep(1.1)  # longer than a node keeps what was of late (store-replay-seconds)
        one.execute_command("BF.ADD", "f", "late")  # what is older is not kept for another time
    fleet.nodes[1].kill()
    fleet.nodes[0].freeze()
    store.kill()
    store.start()
    fleet.nodes[1].start()
    fleet.nodes[0].thaw()
    assert wait_until(lambda: fleet.answers("f", [*KEYS, "late"]) == [0, 0])


def test_stopped_while_redis_does_not_answer(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """However long a node may wait for Redis: it ends when it is told to, ready or loading."""
    fleet = start_fleet(redis_server.url, nodes=1, store_timeout_ms=60_000)
    redis_server.freeze()
    try:
        time.sleep(0.5)  # so that it waits for an answer: nobody can be asked about that
        assert fleet.nodes[0].stop() == 0
        fleet.nodes[0].spawn()
        assert wait_until(lambda: _loading(fleet))
        assert fleet.nodes[0].stop() == 0
    finally:
        redis_server.thaw()


def _loading(fleet: Fleet) -> bool:
    try:
        return fleet.readyz(0)[0] == 503
    except OSError:  # not even that
        return False
