"""A node that is cut off from Redis: while it loads, and while the others write."""

import time

import pytest
import redis

from integration.nodes.checker import Checker
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import missing
from integration.nodes.load import load, reserve
from integration.nodes.proxy import Proxy
from integration.servers import RedisServer, wait_until

LAG = 1.0
OPTIONS = {"store_max_lag_ms": 1000, "store_timeout_ms": 1000}


def test_cut_off_in_the_middle_of_loading(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """It is not ready before it has everything, loads anew, and ends whole."""
    with Proxy(redis_server.address) as proxy:
        fleet = start_fleet([redis_server.url, proxy.url])
        late = fleet.nodes[1]
        late.kill()
        reserve(fleet.ports[0][0], capacity=18_000_000)  # 64 MB
        keys = [f"key-{number}" for number in range(5000)]
        with fleet.client(0) as one:
            one.execute_command("BF.MADD", "seen", *keys[:2500])
            proxy.carried, proxy.bytes_a_second = 0, 40e6
            late.spawn()
            for _ in range(2):
                assert wait_until(lambda: proxy.carried > 10 << 20), late.printed()
                assert not fleet.ready(1)
                proxy.cut()
                one.execute_command("BF.MADD", "seen", *keys[2500:])
                proxy.carried = 0
                proxy.mend()
            proxy.bytes_a_second = None
        fleet.wait_ready(1)
        assert fleet.answers("seen", keys) == [0, 0]


def test_partitioned_while_others_write(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Its local answers are its own and say so, whoever wants Redis to answer is told that it does
    not, writes are refused in time; afterwards nothing is missing."""
    with Proxy(redis_server.address) as proxy:
        fleet = start_fleet([redis_server.url, redis_server.url, proxy.url], **OPTIONS)
        reserve(fleet.ports[0][0])
        checker = Checker(lag=LAG)
        places = [(at, ports[0]) for at, ports in enumerate(fleet.ports)]
        with (
            load(checker, places) as run,
            load(checker, places, strong=True, seed=1, count=2, prefix="s") as two,
        ):
            run.flows(30)
            with checker.excused(2):
                proxy.dull()
                asked = len(checker.answers)
                assert wait_until(lambda: fleet.figures(2)["up"] == 0)
                run.flows(20)
                two.flows(20)
                local = [one for one in checker.answers[asked:] if one.node == 2 and not one.shared]
                assert local
                with fleet.client(2) as client:
                    began = time.monotonic()
                    with pytest.raises(redis.ResponseError, match="Redis"):
                        client.execute_command("BF.ADD", "seen", "refused")
                    assert time.monotonic() - began < 20
                with (
                    fleet.client(2, strong=True) as client,
                    pytest.raises(redis.ResponseError, match="Redis"),
                ):
                    client.execute_command("BF.EXISTS", "seen", "never")
                assert fleet.ready(2)
                proxy.mend()
                assert wait_until(lambda: fleet.figures(2)["up"] == 1)
            run.flows(30)
        keys = checker.keys("seen")
        assert wait_until(lambda: missing(fleet.ports[2][0], "seen", keys) == 0)
        checker.require_right(writes=300, answers=300)


def test_redis_is_frozen(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """It takes connections and answers nothing: as if it were away."""
    fleet = start_fleet(redis_server.url, **OPTIONS)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=LAG)
    places = [(at, ports[0]) for at, ports in enumerate(fleet.ports)]
    with load(checker, places) as run:
        run.flows(30)
        with checker.excused(0, 1, 2):
            redis_server.freeze()
            try:
                assert wait_until(lambda: all(fleet.figures(at)["up"] == 0 for at in range(3)))
                run.asks(300)
            finally:
                redis_server.thaw()
            run.flows(30)
    assert wait_until(lambda: fleet.answers("seen", checker.keys("seen")) == [0, 0, 0])
    checker.require_right(writes=200, answers=200)
