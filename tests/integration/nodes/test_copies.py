"""All kinds of filters and all that can be done to them, through any node, while nodes come and go:
nothing acknowledged is missing, and in the end all copies are the same."""

import time

import pytest

from conftest import effort
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.nodes.operators import KINDS, Operator, operators
from integration.servers import StartRedis, wait_until

OPTIONS = {"store_stream_bytes": 1 << 16, "store_max_lag_ms": 1000}


def _goes_on(workers: list[Operator], commands: int) -> None:
    goal = [one.done + commands for one in workers]

    def reached() -> bool:
        pairs = zip(workers, goal, strict=True)
        return all(one.done >= wanted or one.problem or one.wrong for one, wanted in pairs)

    assert wait_until(reached), [(one.kind, one.done, one.problem) for one in workers]
    _require_right(workers)


def _require_right(workers: list[Operator]) -> None:
    found = [problem for one in workers for problem in one.wrong]
    assert not found, found[:5]


def _require_all(fleet: Fleet, workers: list[Operator]) -> None:
    """Every node has what each filter must have, and all have the same."""
    fleet.wait_ready()
    copy = fleet.require_equal()
    assert {one["kind"] for one, _ in copy.values()} >= {*KINDS} - {"cf"} | {"rediscuckoo"}
    for one in workers:
        for name, keys in one.must.items():
            command = "CF.MEXISTS" if one.kind == "cf" else "BF.MEXISTS"
            for at in range(len(fleet.nodes)):
                with fleet.client(at, strong=True) as client:
                    found = client.execute_command(command, name, *sorted(keys)) if keys else []
                assert all(found), (name, at, len(found) - sum(found))
    for at, node in enumerate(fleet.nodes):
        assert "Traceback" not in node.printed(), fleet.told(at)


@pytest.mark.parametrize("seed", range(effort(1, 1, 6)))
def test_all_kinds_while_nodes_are_killed(
    start_fleet: StartFleet, start_redis: StartRedis, seed: int
) -> None:
    """`kill -9` of the node that makes snapshots, then SIGSTOP of one beyond the limit, then a
    restart in good order: each comes back by a snapshot and the stream."""
    server = start_redis()
    fleet = start_fleet(server.url, **OPTIONS)
    with operators([resp for resp, _ in fleet.ports], seed) as workers:
        for _ in range(effort(1, 1, 10)):
            _goes_on(workers, 15)
            holder = fleet.lease_holder()
            fleet.nodes[holder].kill()
            _goes_on(workers, 15)
            fleet.nodes[holder].start()
            stopped = fleet.nodes[(holder + 1) % 3]
            stopped.freeze()
            time.sleep(1.2)  # beyond store-max-lag-ms
            stopped.thaw()
            _goes_on(workers, 15)
            assert wait_until(lambda: server.run("EXISTS", "{bloomery}:manifest"))
            assert fleet.nodes[(holder + 2) % 3].stop() == 0
            fleet.nodes[(holder + 2) % 3].start()
    _require_right(workers)
    _require_all(fleet, workers)
    assert sum(fleet.figures(at)["loads"] for at in range(3)) >= 1
