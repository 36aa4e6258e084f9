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
        fleet = start_fleet([redis_server.url, proxy.url], store_stream_bytes=1 << 16)
        late = fleet.nodes[1]
        late.kill()
        reserve(fleet.ports[0][0], capacity=2_500_000)  # 9 MB
        keys = [f"key-{number}" for number in range(5000)]
        with fleet.client(0) as one:
            one.execute_command("BF.MADD", "seen", *keys[:2500])
            assert wait_until(lambda: fleet.figures(0)["holds_lease"])
            for start in range(0, 1_000_000, 10_000):  # half of the filter's bytes, and more
                one.execute_command("BF.MADD", "seen", *range(start, start + 10_000))
            assert wait_until(lambda: redis_server.run("EXISTS", "{bloomery}:manifest"))
            proxy.carried, proxy.bytes_a_second = 0, 40e6
            late.spawn()
            for _ in range(2):
                assert wait_until(lambda: proxy.carried > 4 << 20), late.printed()
                assert not fleet.ready(1)
                proxy.cut()
                one.execute_command("BF.MADD", "seen", *keys[2500:])
                proxy.carried = 0
                proxy.mend()
            proxy.bytes_a_second = None
        fleet.wait_ready(1)
        assert fleet.answers("seen", keys) == [0, 0]


def test_partitioned_while_others_write(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Once its copy is too old it answers nothing, in time, and is not ready; afterwards nothing is
    missing."""
    with Proxy(redis_server.address) as proxy:
        fleet = start_fleet([redis_server.url, redis_server.url, proxy.url], **OPTIONS)
        reserve(fleet.ports[0][0])
        checker = Checker(lag=LAG)
        with (
            load(checker, fleet.places) as run,
            load(checker, fleet.places, strong=True, seed=1, count=2, prefix="s") as two,
        ):
            run.flows(30)
            proxy.dull()
            assert wait_until(lambda: not fleet.ready(2))
            failed = len(checker.failures)
            assert wait_until(lambda: len(checker.failures) > failed + 10)
            for strong, words in (
                (False, ("BF.ADD", "seen", "refused")),
                (False, ("BF.EXISTS", "seen", "never")),
                (True, ("BF.EXISTS", "seen", "never")),
            ):
                with fleet.client(2, strong=strong) as client:
                    began = time.monotonic()
                    with pytest.raises(redis.ResponseError, match="Redis"):
                        client.execute_command(*words)
                    assert time.monotonic() - began < 20
            proxy.mend()
            fleet.wait_ready(2)
            run.flows(30)
            two.flows(30)
        keys = checker.keys("seen")
        assert wait_until(lambda: missing(fleet.ports[2][0], "seen", keys) == 0)
        checker.require_right(writes=300, answers=300)


def test_redis_is_frozen(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """It takes connections and answers nothing: as if it were away."""
    fleet = start_fleet(redis_server.url, **OPTIONS)
    reserve(fleet.ports[0][0])
    checker = Checker(lag=LAG)
    with load(checker, fleet.places) as run:
        run.flows(30)
        redis_server.freeze()
        try:
            assert wait_until(lambda: not any(fleet.ready(at) for at in range(3)))
            failed = len(checker.failures)
            assert wait_until(lambda: len(checker.failures) > failed + 10)
        finally:
            redis_server.thaw()
        run.flows(30)
    assert wait_until(lambda: fleet.answers("seen", checker.keys("seen")) == [0, 0, 0])
    checker.require_right(writes=200, answers=200)
