"""One thing after another goes wrong, by a seed, under load; and the checker can tell."""

import random
import time

import pytest

from conftest import effort
from integration.nodes.checker import Answer, Checker, Write
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.nodes.load import load, reserve
from integration.servers import RedisServer, StartRedis, wait_until

LAG = 1.0


def test_the_checker_tells_wrong_from_right() -> None:
    """A no is wrong after the lag, at once with strong reads; not before. A key is new once."""
    checker = Checker(lag=1.0)
    checker.writes += [Write("f", "a", 0, 9.0, 10.0, new=True), Write("f", "a", 1, 0.0, 12.0)]
    for node, strong, asked, maybe in [
        (1, False, 10.5, False),  # it need not know yet
        (1, True, 9.9, False),  # asked before it was acknowledged
        (1, True, 10.1, True),
        (2, False, 11.1, False),  # wrong
        (2, True, 10.1, False),  # wrong
    ]:
        checker.answers.append(Answer("f", "a", node, strong, asked, asked, maybe))
    checker.answers.append(Answer("f", "unknown", 1, True, 11.0, 11.0, False))
    wrong = checker.wrong()
    assert [one.partition("and node ")[2].split(" later")[0].split(") ")[0] for one in wrong] == [
        "2 said no (local",
        "2 said no (strong",
    ]
    with pytest.raises(AssertionError, match="2 wrong answers of 6"):
        checker.require_right()
    checker.answers.clear()
    checker.require_right(answers=0)
    checker.writes.append(Write("f", "a", 2, 11.0, 13.0, new=True))
    assert checker.wrong() == ["'a' of 'f' was new 2 times"]


class Troubles:
    """What can happen to a fleet and its Redis; each ends as it began."""

    def __init__(self, fleet: Fleet, server: RedisServer, checker: Checker, seed: int) -> None:
        self.fleet, self.server, self.checker = fleet, server, checker
        self.random = random.Random(seed)
        self.all = range(len(fleet.nodes))

    def one(self) -> str:
        """Let something happen, for any while; what it was."""
        what = self.random.choice(
            [self.kill, self.freeze, self.kill_redis, self.freeze_redis, self.kill_both]
        )
        what()
        self.fleet.wait_ready()
        return what.__name__

    def kill(self) -> None:
        node = self.random.choice(self.fleet.nodes)
        node.kill()
        time.sleep(self.random.random())
        node.start()

    def freeze(self) -> None:
        node = self.random.choice(self.fleet.nodes)
        node.freeze()
        time.sleep(3 * self.random.random())
        node.thaw()

    def kill_redis(self) -> None:
        self.server.kill()
        time.sleep(self.random.random())
        self.server.start()

    def freeze_redis(self) -> None:
        self.server.freeze()
        time.sleep(2 * self.random.random())
        self.server.thaw()

    def kill_both(self) -> None:
        node = self.random.choice(self.fleet.nodes)
        node.kill()
        self.kill_redis()
        node.start()


@pytest.mark.parametrize("seed", range(effort(1, 1, 10)))
def test_anything_may_happen(start_fleet: StartFleet, start_redis: StartRedis, seed: int) -> None:
    """In the end every node and Redis have all that was acknowledged, and nobody was told no."""
    server = start_redis(appendonly="yes", appendfsync="always")
    options = {"store_max_lag_ms": int(LAG * 1000), "store_timeout_ms": 500}
    fleet = start_fleet(server.url, **options)
    reserve(fleet.ports[0][0], capacity=1_000_000)
    checker = Checker(lag=LAG)
    troubles = Troubles(fleet, server, checker, seed)
    with (
        load(checker, fleet.places, seed=seed, count=2) as run,
        load(checker, fleet.places, seed=seed + 1000, count=2, strong=True, prefix="s") as other,
    ):
        for _ in range(effort(3, 3, 30)):
            what = troubles.one()
            run.flows(10)
            other.flows(10)
            assert not checker.wrong(), (what, checker.wrong()[:3])
    keys = checker.keys("seen")
    assert wait_until(lambda: fleet.answers("seen", keys) == [0, 0, 0]), [
        fleet.figures(at) for at in range(3)
    ]
    checker.require_right(writes=100, answers=200)
