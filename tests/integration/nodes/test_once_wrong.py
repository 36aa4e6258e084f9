"""What nodes once got wrong: each was seen with nodes whose bits were in Redis."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import client_at
from integration.nodes.load import reserve
from integration.nodes.proxy import Proxy
from integration.servers import BloomeryServer, RedisServer, StartRedis, free_ports, wait_until

RESERVE = ("BF.RESERVE", "f", 1e-6, 1000, "KIND", "bloom")


def test_known_to_this_copy_is_not_yet_acknowledged(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """A and B know `alice`; B drops the filter and makes it anew; A adds `alice`, a moment later or
    cut off until then: the new filter has it, and A is told that it is new there."""
    with Proxy(redis_server.address) as proxy:
        fleet = start_fleet([proxy.url, redis_server.url], store_max_lag_ms=1000)
        with fleet.client(0) as a, fleet.client(1) as b:
            for number in range(20):
                b.execute_command(*RESERVE)
                b.execute_command("BF.ADD", "f", "alice")
                assert wait_until(lambda: fleet.answers("f", ["alice"]) == [0, 0])
                if number % 2:
                    proxy.dull()
                b.execute_command("DEL", "f")
                b.execute_command(*RESERVE)
                if number % 2:
                    threading.Timer(0.2, proxy.mend).start()
                assert a.execute_command("BF.ADD", "f", "alice") == 1, number
                assert fleet.answers("f", ["alice"], strong=True) == [0, 0], number
                assert wait_until(lambda: _done(b, "DEL", "f"))
                assert wait_until(lambda: not a.exists("f"))


def _done(client: Any, *words: Any) -> bool:
    try:
        client.execute_command(*words)
    except redis.ResponseError:
        return False
    return True


def test_too_few_replicas(start_fleet: StartFleet, start_redis: StartRedis) -> None:
    """An add fails since too few replicas have it, although Redis applied it: the node that tried
    knows the key as soon as any other does, and adding it again is acknowledged when it can be."""
    master, replica = start_redis(), start_redis()
    replica.run("REPLICAOF", "127.0.0.1", master.port)
    master.wait_for_replicas(1)
    fleet = start_fleet(master.url, nodes=2, store_min_replicas=1, store_timeout_ms=600)
    reserve(fleet.ports[0][0])
    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "seen", "before")
        replica.freeze()
        with pytest.raises(redis.ResponseError, match="may be done, or not"):
            one.execute_command("BF.ADD", "seen", "half")
        assert wait_until(lambda: fleet.answers("seen", ["before", "half"]) == [0, 0])
        with pytest.raises(redis.ResponseError):  # known here, and yet not safe
            one.execute_command("BF.ADD", "seen", "half")
        replica.thaw()
        assert wait_until(lambda: _done(one, "BF.ADD", "seen", "half"))
        assert wait_until(lambda: fleet.ready(0) and fleet.ready(1))
    assert fleet.answers("seen", ["before", "half"], strong=True) == [0, 0]


def test_after_an_outage_no_old_answers(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Redis is back for one node, which acknowledges; another, still cut off or just come back,
    does not answer from what it had: errors until it has caught up."""
    with Proxy(redis_server.address) as proxy:
        fleet = start_fleet(
            [redis_server.url, proxy.url], store_max_lag_ms=1000, store_timeout_ms=500
        )
        reserve(fleet.ports[0][0])
        with fleet.client(0) as one, fleet.client(1) as other:
            one.execute_command("BF.ADD", "seen", "early")
            assert wait_until(lambda: fleet.answers("seen", ["early"]) == [0, 0])
            proxy.bytes_a_second = 20_000.0
            proxy.cut()
            keys = [f"key-{number}" for number in range(3000)]
            for start in range(0, 3000, 10):
                one.execute_command("BF.MADD", "seen", *keys[start : start + 10])
            acknowledged = time.monotonic()
            mended = refused = 0
            while True:  # it is asked all the time, before and while it catches up slowly
                asked = time.monotonic()
                if not mended and asked > acknowledged + 1.5:
                    proxy.mend()
                    mended = 1
                try:
                    found = sum(other.execute_command("BF.MEXISTS", "seen", *keys[-50:]))
                except redis.ResponseError:
                    refused += 1
                    continue
                assert found == 50 or asked <= acknowledged + 1.0, (found, asked - acknowledged)
                if found == 50:
                    break
            assert refused
            assert not fleet.nodes[1].printed().count("Traceback")


AHEAD = """
import time
real = time.time
time.time = lambda: real() + 3600
import sys
from bloomery.cli import main
sys.exit(main(sys.argv[1:]))
"""


class AheadServer(BloomeryServer):
    """A node whose clock is an hour ahead."""

    fresh = True

    def command(self) -> list[str]:
        return [sys.executable, "-c", AHEAD, *super().command()[3:]]


def test_a_clock_that_is_an_hour_ahead(
    start_fleet: StartFleet, redis_server: RedisServer, tmp_path: Path
) -> None:
    """It drops nothing that has a TTL, for itself or for all, also while it decides for all; and a
    TTL that is set there ends when it should."""
    fleet = start_fleet(redis_server.url, nodes=1)
    folder = tmp_path / "ahead"
    folder.mkdir()
    resp, http = free_ports(2)
    ahead = AheadServer(
        folder,
        "--resp-port",
        str(resp),
        "--http-port",
        str(http),
        f"--set=store={redis_server.url}",
    )
    ahead.start()
    try:
        with fleet.client(0, strong=True) as one, client_at(resp, strong=True) as other:
            one.execute_command(*RESERVE)
            one.execute_command("BF.ADD", "f", "alice")
            assert one.pexpire("f", 1_200_000) == 1
            assert 1_190_000 < other.pttl("f") <= 1_200_500
            fleet.nodes[0].kill()  # so that the other takes the lease
            assert wait_until(lambda: other.info("store")["holds_lease"])
            before = other.info("store")["entries"]
            assert wait_until(lambda: other.info("store")["entries"] > before + 1)  # time passed
            assert other.execute_command("BF.EXISTS", "f", "alice") == 1
            other.execute_command("BF.RESERVE", "brief", 1e-6, 1000)
            assert other.pexpire("brief", 1500) == 1
            assert wait_until(lambda: other.exists("brief") == 0, seconds=20)
            assert other.exists("f") == 1
    finally:
        ahead.kill()


@pytest.mark.parametrize("damage", ["cut", "turned"])
def test_damaged_entries_are_never_skipped(
    start_fleet: StartFleet, start_redis: StartRedis, damage: str
) -> None:
    """Whoever meets an entry that is none says so and answers no more: what it was may have been
    acknowledged."""
    server = start_redis()
    fleet = start_fleet(server.url, nodes=2, store_max_lag_ms=1000)
    log = "{bloomery}:log"
    with fleet.client(0) as one, fleet.client(1) as other, server.client() as store:
        one.execute_command(*RESERVE)
        one.execute_command("BF.ADD", "f", "before")
        assert wait_until(lambda: fleet.answers("f", ["before"]) == [0, 0])
        ((_, fields),) = store.xrevrange(log, count=1)
        name, data = next(iter(fields.items()))
        if damage == "cut":
            store.xadd(log, {name: data[:-3]})
        else:
            store.xadd(log, {name: data[:30] + bytes([data[30] ^ 1]) + data[31:]})
        for at, client in enumerate((one, other)):
            assert wait_until(lambda at=at: fleet.readyz(at)[0] == 503), fleet.told(at)  # type: ignore[misc]
            assert wait_until(lambda at=at: "cannot follow" in fleet.nodes[at].printed())  # type: ignore[misc]
            for words in (
                ("BF.EXISTS", "f", "never"),
                ("BF.MEXISTS", "f", "never", "before"),
                ("BF.ADD", "f", "before"),
                ("BF.RESERVE", "g", 0.01, 100),
                ("EXISTS", "g"),
                ("BF.CARD", "g"),
                ("BF.INFO", "g"),
            ):
                with pytest.raises(redis.ResponseError, match="cannot follow"):
                    client.execute_command(*words)
            assert fleet.nodes[at].stop() == 0, fleet.told(at)


def test_a_new_filter_while_redis_hangs(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """One BF.ADD that makes a filter waits; all other clients of that node are answered."""
    fleet = start_fleet(redis_server.url, nodes=1, store_timeout_ms=3000, store_max_lag_ms=20_000)
    reserve(fleet.ports[0][0])
    said: list[Any] = []

    def add() -> None:
        with fleet.client(0) as client:
            try:
                said.append(client.execute_command("BF.ADD", "new", "a"))
            except redis.ResponseError as problem:
                said.append(problem)

    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "seen", "a")
        redis_server.freeze()
        try:
            thread = threading.Thread(target=add)
            began = time.monotonic()
            thread.start()
            slowest = asked = 0.0
            while not said:
                before = time.monotonic()
                assert one.execute_command("BF.EXISTS", "seen", "a") == 1
                slowest = max(slowest, time.monotonic() - before)
                asked += 1
            waited = time.monotonic() - began
            thread.join()
        finally:
            redis_server.thaw()
    assert isinstance(said[0], redis.ResponseError), said
    assert "may be done, or not" in str(said[0])
    assert 2 < waited < 20
    assert asked > 20
    assert slowest < 1.5, (slowest, waited)  # half of what Redis is waited for
