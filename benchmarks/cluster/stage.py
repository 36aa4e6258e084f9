"""What is measured: a Redis, nodes on it, and HAProxy in front of them, each a real process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import redis

from benchmarks.service import servers
from benchmarks.service.servers import Running

NODES = 3


def url(server: Running) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


class Stage:
    """A Redis, and as many nodes on it as are asked for."""

    def __init__(self, folder: Path, store: Running, ends: contextlib.ExitStack) -> None:
        self.folder, self.store, self._ends = folder, store, ends
        self.nodes: list[Running] = []
        self.client: redis.Redis = ends.enter_context(redis.Redis(port=store.port))

    @property
    def url(self) -> str:
        return url(self.store)

    def start(self, count: int = 1, *, pinned: bool = False) -> list[Running]:
        """More nodes; they end with the stage."""
        made = [self._node(pinned)[0] for _ in range(count)]
        self.nodes += made
        for one in made:
            self._ends.callback(one.stop)
        return made

    def timed(self) -> float:
        """How many seconds a node takes to be ready; it is stopped at once."""
        node, seconds = self._node(pinned=False)
        node.stop()
        return seconds

    def _node(self, pinned: bool) -> tuple[Running, float]:
        data = self.folder / f"node-{os.urandom(4).hex()}"
        soon = "--set=store-bootstrap-seconds=0.3"  # its Redis is new
        return servers.start(data, "--store", self.url, soon, pinned=pinned)

    def cpu_seconds(self) -> dict[str, float]:
        """Time on the processor so far, of Redis and of each node."""
        found = {"Redis": self.store.cpu_seconds()}
        return found | {f"node {n}": one.cpu_seconds() for n, one in enumerate(self.nodes, 1)}


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """A Redis without nodes."""
    servers.check_tools()
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(servers.scratch())
        store = ends.enter_context(servers.redis(folder))
        # Redis is pinned for `service`; beside three nodes the kernel knows better.
        os.sched_setaffinity(store.process.pid, os.sched_getaffinity(0))
        yield Stage(folder, store, ends)


@contextlib.contextmanager
def balancer(folder: Path, nodes: list[Running]) -> Iterator[Running]:
    """HAProxy with the configuration that people are given, on the core of those who ask."""
    # The tests' own server: how HAProxy is started and asked is written once.
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from integration.servers.haproxy import HaProxy

    own = folder / "balancer"
    own.mkdir()
    proxy = HaProxy(own, [(one.port, one.http_port) for one in nodes])
    proxy.start()
    try:
        proxy.wait_for(*["UP"] * len(nodes))
        process = proxy.process
        assert isinstance(process, subprocess.Popen)
        os.sched_setaffinity(process.pid, {int(servers.cores()[1])})
        yield Running("haproxy", process, proxy.resp_port, proxy.http_port)
    finally:
        proxy.stop()


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """This process on the core of those who ask: Redis has the other."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {int(servers.cores()[1])})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
