"""Redis's clock jumps by hours: time passes on nodes as it does for their users."""

from __future__ import annotations

import time

import pytest

from integration.nodes.conftest import StartFleet
from integration.nodes.test_poison import LOG, comes
from integration.servers import StartRedis, wait_until


@pytest.mark.parametrize("restarted", [False, True], ids=["they run", "all start again"])
def test_nothing_ends_before_its_time(
    restarted: bool, start_fleet: StartFleet, start_redis: StartRedis
) -> None:
    """It is two hours ahead, and numbers entries so from then on: a window of one hour and a TTL of
    ten minutes lose nothing, and a TTL that is set then ends when it should."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=2)
    ms = int(1000 * time.time()) + 7_200_000
    with fleet.client(0) as one:
        one.execute_command("BF.RESERVE", "window", 0.01, 1000, "KIND", "rotating", "WINDOW", "1h")
        one.execute_command("BF.ADD", "window", "alice")
        one.execute_command("BF.RESERVE", "brief", 0.01, 1000)
        assert one.pexpire("brief", 600_000) == 1
        server.run("XSETID", LOG, f"{ms}-0")
        one.execute_command("BF.ADD", "window", "bob")
    if restarted:
        for node in fleet.nodes:
            node.kill()
        for node in fleet.nodes:
            node.spawn()
        fleet.wait_ready()
    with fleet.client(0, strong=True) as one, fleet.client(1, strong=True) as other:
        clocks = fleet.figures(0)["entries"]
        assert wait_until(lambda: fleet.figures(0)["entries"] > clocks + 8, seconds=30)
        assert one.execute_command("BF.MEXISTS", "window", "alice", "bob") == [1, 1]
        assert 500_000 < other.pttl("brief") < 600_500
        for _ in range(3):
            one.execute_command("BF.RESERVE", "soon", 0.01, 1000)
            asked = time.monotonic()
            assert one.pexpire("soon", 1500) == 1
            assert wait_until(lambda: not other.exists("soon"), seconds=20)
            assert 1.4 < time.monotonic() - asked < 5
    assert comes(fleet, 0, "store-clock")
    assert "ahead of this machine" in fleet.told(0)
