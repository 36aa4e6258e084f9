"""A process that drains is stopped (SIGSTOP) past its lease, and goes on when another has done all
of it, and more: what it had read is over."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.guard import Guard
from bloomery.guard.protocols import Item
from conftest import require
from integration.guard import doomed, paused
from integration.guard.changes import changes, log_changes
from integration.servers import PostgresServer, RedisServer, wait_until

require("sqlalchemy")
require("psycopg")
require("redis")
pytestmark = pytest.mark.slow


@contextmanager
def draining(log: Path, *arguments: object) -> Iterator[Any]:
    """That process, which is stopped in its first write."""
    with log.open("wb") as out:
        command = [sys.executable, paused.__file__, *map(str, arguments)]
        env = {"PYTHONPATH": ":".join(sys.path)}
        process = subprocess.Popen(command, stdout=out, env=env)
    try:
        assert wait_until(lambda: b"pausing\n" in log.read_bytes())
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@pytest.mark.parametrize(("when", "once"), [("after", False), ("after", True), ("before", True)])
def test_a_drainer_that_was_paused_writes_nothing_old(
    postgres: PostgresServer,
    postgres_url: str,
    redis_server: RedisServer,
    tmp_path: Path,
    kind: str,
    when: str,
    once: bool,
) -> None:
    """It read five values of a key; another writes those, and a sixth. What the paused one was
    about to write at that moment is done once by a source that keeps idempotency keys."""
    postgres.run("CREATE TABLE paused (k text PRIMARY KEY, v int)")
    log_changes(postgres, "paused")
    redis = f"redis://127.0.0.1:{redis_server.port}"
    where = redis if kind == "redis" else str(tmp_path / "queue")
    with closing(doomed.queue(where)) as queue:
        queue.put([Item("add", "k", number, f"t{number}", 0.0) for number in range(5)])
    log = tmp_path / "log"
    with (
        draining(log, postgres_url, where, when, once) as process,
        closing(paused.table(postgres_url, once)) as source,
        Guard(
            BloomFilter(100), source, queue=doomed.queue(where), **{**paused.OPTIONS, "retry": 0.05}
        ) as guard,
    ):
        assert wait_until(lambda: not guard.info()["queued"])
        assert guard.add("k", 100).by == "source"
        process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: b"drained\n" in log.read_bytes())
        assert source.get_many(["k"]) == {"k": 100}
    values = [value for _, value in changes(postgres, "paused")]
    assert values[-6:] == [0, 1, 2, 3, 4, 100]
    assert len(values) == (6 if once else 7)  # done, and not known to be done: once more


def test_nobody_waits_long_for_one_that_was_killed(redis_server: RedisServer) -> None:
    """Its lease lasts for a question to the source, and some seconds more."""
    url = f"redis://127.0.0.1:{redis_server.port}"
    leases: list[int] = []

    def look(_key: str) -> None:
        leases.append(other.pttl("{doomed}:lease"))

    with closing(require("redis").Redis(port=redis_server.port)) as other:
        queue = doomed.queue(url)
        queue.put([Item("look", "k", None, "t", 0.0)])
        with Guard(BloomFilter(9), look, queue=queue, on_outage="queue") as guard:
            guard.drain()
    assert 0 < leases[0] <= 10_000
