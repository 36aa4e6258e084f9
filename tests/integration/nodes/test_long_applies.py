"""A node whose event loop stands still while it applies something large: nobody is answered from a
copy that is older than it may be, and what it decides meanwhile counts for nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import client_at
from integration.nodes.load import load, reserve
from integration.servers import BloomeryServer, RedisServer, free_ports, wait_until

LAG = 0.5
SECONDS = 2  # that the slow node takes to clear a filter, as one of some gigabytes would
SLOWLY = f"""
import sys, time
from bloomery.service.domain.operations import Op
from bloomery.service.engine import Engine
apply = Engine.apply_shared

def slowly(self, op, number, *rest):
    if op == Op.CLEAR:
        time.sleep(8 if self.state.filters[number].name == b"largest" else {SECONDS})
    return apply(self, op, number, *rest)

Engine.apply_shared = slowly
from bloomery.cli import main
sys.exit(main(sys.argv[1:]))
"""


class SlowServer(BloomeryServer):
    """A node that takes long to clear a filter, and does nothing else meanwhile."""

    fresh = True

    def command(self) -> list[str]:
        return [sys.executable, "-c", SLOWLY, *super().command()[3:]]


@pytest.fixture
def slow(tmp_path: Path, redis_server: RedisServer) -> Iterator[tuple[SlowServer, int]]:
    """Such a node, the first of its log, and where it is."""
    folder = tmp_path / "slow"
    folder.mkdir()
    resp, http = free_ports(2)
    settings = {"store": redis_server.url, "store-max-lag-ms": int(1000 * LAG)}
    settings |= {"store-bootstrap-seconds": 0.1}
    chosen = [f"--set={name}={value}" for name, value in settings.items()]
    server = SlowServer(folder, "--resp-port", str(resp), "--http-port", str(http), *chosen)
    server.start()
    yield server, resp
    server.kill()


def test_a_node_that_stands_still(
    start_fleet: StartFleet, redis_server: RedisServer, slow: tuple[SlowServer, int]
) -> None:
    """It is the one that decides, and clears filters under load: every local answer has what was
    acknowledged longer ago than the bound. Then it stands still for longer than a lease lasts:
    another decides, what the first one had to say is fenced, and all have the same."""
    server, port = slow
    fleet = start_fleet(redis_server.url, nodes=1, store_max_lag_ms=int(1000 * LAG))
    other_port = fleet.ports[0][0]
    reserve(other_port)
    with client_at(other_port, strong=True) as one, client_at(port, strong=True) as still:
        assert still.info("store")["holds_lease"] == 1
        for name in ("large", "largest"):
            one.execute_command("BF.RESERVE", name, 0.01, 1000)
        checker = Checker(lag=LAG)
        with load(checker, [("other", other_port), ("still", port)], count=6) as run:
            run.flows(20)
            for _ in range(2):
                one.execute_command("BF.CLEAR", "large")
                run.flows(20)
            run.flows(20)
        checker.require_right(writes=200, answers=200)
        assert wait_until(lambda: still.info("store")["holds_lease"] == 1)
        one.execute_command("BF.CLEAR", "largest")
        one.execute_command("BF.RESERVE", "brief", 0.01, 1000)
        one.pexpire("brief", 500)
        assert wait_until(lambda: one.info("store")["holds_lease"] == 1)
        assert wait_until(lambda: one.exists("brief") == 0)
        assert wait_until(lambda: still.info("store")["holds_lease"] == 0)
        assert still.exists("brief") == 0
        assert one.exists("large", "largest") == 2
    assert "Traceback" not in server.printed()
