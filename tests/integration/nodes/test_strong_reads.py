"""What any node has acknowledged is known at once to strong reads, through any other."""

import httpx

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.load import load, reserve
from integration.servers import RedisServer


def test_strong_reads_know_every_acknowledged_write(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """Writes at random nodes, each asked for at once at another: never a no. Nor where the nodes
    are set so that clients need not ask for it, and nor by HTTP."""
    fleet = start_fleet(redis_server.url)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=0)
    with load(checker, fleet.places, strong=True) as run:
        run.flows(200)
    checker.require_right(writes=800, answers=1600)
    assert not checker.failures

    with httpx.Client() as http, fleet.client(0) as writer:
        urls = [f"{node.url}/filters/seen/contains?consistency=strong" for node in fleet.nodes[1:]]
        for number in range(100):
            writer.execute_command("BF.ADD", "seen", f"http-{number}")
            answer = http.post(urls[number % 2], json={"key": f"http-{number}"})
            assert answer.json() == {"maybe": True}, number
            assert answer.headers["bloomery-consistency"] == "strong"


def test_strong_reads_of_filters_that_come_and_go(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """Filters made, filled and dropped at one node: another knows the keys at once, where
    `store-consistency` is strong, although it may not have heard of the filter yet."""
    fleet = start_fleet(redis_server.url, nodes=2, store_consistency="strong")
    with fleet.client(0) as one, fleet.client(1) as other:
        for number in range(60):
            name = f"f{number % 3}"
            one.execute_command("BF.RESERVE", name, 1e-6, 1000 + 100 * number, "KIND", "bloom")
            one.execute_command("BF.MADD", name, f"a{number}", f"b{number}")
            found = other.execute_command("BF.MEXISTS", name, f"a{number}", f"b{number}", "none")
            assert found == [1, 1, 0], number
            assert one.delete(name) == 1
