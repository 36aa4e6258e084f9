"""A node whose event loop stands still while it applies something large: nobody is answered from a
copy that is older than it may be, and what it decides meanwhile counts for nothing."""

from __future__ import annotations

import socket
import sys
import threading
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bloomery.integrations.redis.wire.flow import packed
from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import client_at
from integration.nodes.load import reserve
from integration.servers import BloomeryServer, RedisServer, free_ports, wait_until

LAG = 0.5
SECONDS = 2  # that the slow node takes to clear a filter, as one of some gigabytes would
SLOWLY = f"""
import sys, time
from bloomery.service.domain.operations import Op
from bloomery.service.engine import Engine
apply = Engine.apply

def slowly(self, op, number, *rest):
    if op == Op.CLEAR:
        time.sleep(8 if self.state.filters[number].name == b"largest" else {SECONDS})
    return apply(self, op, number, *rest)

Engine.apply = slowly
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


class Writer(threading.Thread):
    """Adds one key after another, and knows when each was acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[float] = []  # of the key of each number
        self.ending = threading.Event()
        self._port = port

    def run(self) -> None:
        with client_at(self._port) as client:
            while not self.ending.is_set():
                client.execute_command("BF.ADD", "seen", len(self.acknowledged))
                self.acknowledged.append(time.monotonic())
                time.sleep(0.002)

    def oldest_sure(self) -> int:
        """The last key that was acknowledged so long ago that every node must know it."""
        return bisect(self.acknowledged, time.monotonic() - LAG - 0.02) - 1


class Asker:
    """Asks on one connection, whether or not what it asked before was answered."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._asked = 0

    def ask(self, key: int) -> None:
        """Send a question."""
        self._socket.sendall(packed(["BF.EXISTS", "seen", str(key)]))
        self._asked += 1

    def replies(self) -> Counter[bytes]:
        """How often each reply was given; errors are one."""
        with self._socket, self._socket.makefile("rb") as lines:
            given = [lines.readline() for _ in range(self._asked)]
        return Counter(b"error" if line.startswith(b"-") else line for line in given)


def test_nobody_is_answered_from_a_copy_that_is_too_old(
    start_fleet: StartFleet, redis_server: RedisServer, slow: tuple[SlowServer, int]
) -> None:
    """Questions come all the time, also while the node stands still: none is answered without what
    was acknowledged longer before it than the bound."""
    server, port = slow
    fleet = start_fleet(redis_server.url, nodes=1, store_max_lag_ms=int(1000 * LAG))
    reserve(fleet.ports[0][0])
    writer, askers = Writer(fleet.ports[0][0]), [Asker(port) for _ in range(20)]
    writer.start()
    assert wait_until(lambda: writer.oldest_sure() >= 0)
    with fleet.client(0) as one:
        one.execute_command("BF.RESERVE", "large", 0.01, 1000)
        for _ in range(3):
            one.execute_command("BF.CLEAR", "large")
            until = time.monotonic() + SECONDS + 0.5
            while time.monotonic() < until:
                for asker in askers:
                    asker.ask(writer.oldest_sure())
                time.sleep(0.005)
    writer.ending.set()
    writer.join()
    told = sum((asker.replies() for asker in askers), Counter[bytes]())
    assert told[b":1\r\n"] > 1000
    assert told[b":0\r\n"] == 0, told
    assert "Traceback" not in server.printed()


def test_it_is_replaced_and_fenced(
    start_fleet: StartFleet, redis_server: RedisServer, slow: tuple[SlowServer, int]
) -> None:
    """The node that decides stands still for longer than a lease lasts: another decides, what the
    first one had to say counts for nothing, and both have the same."""
    server, port = slow
    fleet = start_fleet(redis_server.url, nodes=1, store_max_lag_ms=int(1000 * LAG))
    with fleet.client(0, strong=True) as one, client_at(port, strong=True) as still:
        assert still.info("store")["holds_lease"] == 1
        for name in ("largest", "brief"):
            one.execute_command("BF.RESERVE", name, 0.01, 1000)
        one.execute_command("BF.CLEAR", "largest")
        one.pexpire("brief", 500)
        assert wait_until(lambda: one.info("store")["holds_lease"] == 1)
        assert wait_until(lambda: one.exists("brief") == 0)
        assert wait_until(lambda: still.info("store")["holds_lease"] == 0)
        assert still.exists("brief", "largest") == 1
        assert one.info("store")["holds_lease"] == 1
    assert "Traceback" not in server.printed()
