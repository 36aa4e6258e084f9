"""What any node has acknowledged is known at once to who asks the store, through any other."""

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.load import load, reserve
from integration.servers import RedisServer


def test_shared_reads_know_every_acknowledged_write(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """Writes at random nodes, each asked for at once at another: never a no."""
    fleet = start_fleet(redis_server.url)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=0)
    with load(checker, [(at, ports[0]) for at, ports in enumerate(fleet.ports)], shared=True) as run:
        run.flows(300)
    checker.require_right(writes=1200, answers=2400)
    assert not checker.failures
