"""Nodes of two versions side by side, and nodes that are restarted one after another."""

import sys
from pathlib import Path

import pytest
import redis

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import client_at
from integration.nodes.load import load, reserve
from integration.servers import BloomeryServer, RedisServer, free_ports, wait_until

# The next version knows an operation that this one, let us say, does not.
NEXT = """
import sys
from bloomery.service.domain import operations
from bloomery.service.replication import node
node.VERSION = 2
operations.SINCE[operations.Op.ROTATE] = 2
from bloomery.cli import main
sys.exit(main())
"""
ROTATING = ("BF.RESERVE", "r", 0.01, 1000, "KIND", "rotating", "WINDOW", "7d")


class NextServer(BloomeryServer):
    """A node of version 2."""

    fresh = True

    def command(self) -> list[str]:
        return [sys.executable, "-c", NEXT, *super().command()[3:]]


def test_an_older_node_is_there(
    start_fleet: StartFleet, redis_server: RedisServer, tmp_path: Path
) -> None:
    """What it does not know is refused before it is written, to who asked alone; all else is shared
    by both."""
    fleet = start_fleet(redis_server.url, nodes=1)
    folder = tmp_path / "next"
    folder.mkdir()
    resp, http = free_ports(2)
    doors = ("--resp-port", str(resp), "--http-port", str(http))
    new = NextServer(folder, *doors, f"--set=store={redis_server.url}")
    new.start()
    try:
        with fleet.client(0, strong=True) as old, client_at(resp, strong=True) as one:
            one.execute_command(*ROTATING)
            one.execute_command("BF.ADD", "r", "a")
            with pytest.raises(redis.ResponseError, match="older version"):
                one.execute_command("BF.ROTATE", "r")
            with one.pipeline(transaction=False) as together:  # in one turn
                together.execute_command("BF.ADD", "r", "b")
                together.execute_command("BF.ROTATE", "r")
                together.execute_command("BF.ADD", "r", "c")
                said = together.execute(raise_on_error=False)
            assert [type(answer) for answer in said] == [bool, redis.ResponseError, bool], said
            assert old.execute_command("BF.MEXISTS", "r", "a", "b", "c") == [1, 1, 1]
            assert old.execute_command("BF.ADD", "r", "d") == 1
            assert one.execute_command("BF.EXISTS", "r", "d") == 1
            assert fleet.ready(0)
    finally:
        new.kill()


def test_one_after_another_under_load(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Each node is stopped in good order and started again, behind HAProxy: clients see errors only
    in what they had under way, and nothing is lost or wrong."""
    fleet = start_fleet(redis_server.url, store_stream_bytes=1 << 16, store_max_lag_ms=1000)
    reserve(fleet.ports[0][0])
    balancer = fleet.balancer()
    checker = Checker(lag=1.0)
    with (
        load(checker, [("balancer", balancer.resp_port)]) as run,
        load(checker, [("b", balancer.resp_port)], strong=True, seed=1, prefix="s") as strong,
    ):
        for node in fleet.nodes:
            run.flows(20)
            strong.flows(20)
            assert node.stop() == 0, node.printed()
            run.flows(20)
            node.start()
            balancer.wait_for("UP", "UP", "UP")
    checker.require_right(writes=300, answers=300)
    assert len(checker.failures) <= 3 * 8 * 2, checker.failures[:5]
    assert wait_until(lambda: fleet.answers("seen", checker.keys("seen")) == [0, 0, 0])
    fleet.require_equal()
