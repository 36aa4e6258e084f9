"""Nodes that are started and stopped at a bad moment."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.nodes.load import reserve
from integration.servers import RedisServer, StartRedis, wait_until

KEYS = [f"k{number}" for number in range(500)]


def test_started_before_others_restore(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """Redis comes back with nothing, and a node that has nothing either is there first: it has all
    keys once one that knows them has restored them, also those of long ago."""
    store = start_redis()
    fleet = start_fleet(store.url, nodes=2, store_replay_seconds=1, store_bootstrap_seconds=8)
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
    fleet.nodes[1].spawn()
    assert wait_until(lambda: _loading(fleet, 1))
    fleet.nodes[0].thaw()  # within store-bootstrap-seconds
    fleet.wait_ready()
    assert fleet.answers("f", [*KEYS, "late"]) == [0, 0]


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
        assert wait_until(lambda: _loading(fleet, 0))
        assert fleet.nodes[0].stop() == 0
    finally:
        redis_server.thaw()


def _loading(fleet: Fleet, number: int) -> bool:
    try:
        return fleet.readyz(number)[0] == 503
    except OSError:  # not even that
        return False


def test_stopped_while_a_snapshot_is_written(
    start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """Redis hangs while a process of the node writes a snapshot to it: both end when the node is
    told to."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=1, store_stream_bytes=1 << 16)
    reserve(fleet.ports[0][0], capacity=10_000_000)  # 36 MB: half of it is the stream before one
    node = fleet.nodes[0]
    keys = [f"key-{number}" for number in range(20_000)]
    with fleet.client(0) as client:
        assert wait_until(lambda: fleet.figures(0)["holds_lease"])
        sent = 0
        while not _children(node.pid):
            client.execute_command("BF.MADD", "seen", *(f"{sent}-{key}" for key in keys))
            sent += 1
            assert sent < 500
    server.freeze()
    children = _children(node.pid)
    assert node.stop() == 0
    assert wait_until(lambda: not any(map(_lives, children)))
    server.thaw()


def test_a_snapshot_writer_that_is_killed(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """What writes a snapshot dies, or its node does: the next one is written, nobody notices."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=2, store_stream_bytes=1 << 16)
    reserve(fleet.ports[0][0], capacity=15_000)
    holder = fleet.lease_holder()
    node = fleet.nodes[holder]
    with fleet.client(1 - holder) as client:
        number = 0
        killed = False
        while not server.run("EXISTS", "{bloomery}:manifest"):
            client.execute_command("BF.ADD", "seen", f"key-{number}")
            number += 1
            assert number < 20_000
            for child in _children(node.pid) if not killed else []:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                    killed = True
    fleet.wait_ready()
    assert wait_until(lambda: not _children(node.pid)), "a zombie"
    assert fleet.answers("seen", [f"key-{at}" for at in range(number)], strong=True) == [0, 0]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
