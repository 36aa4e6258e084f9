"""A cluster for a try-out: Redis, nodes and HAProxy are brought up in this order, kept running, and
ended in the order in which nobody misses another: nodes, HAProxy, Redis.

Whoever of them dies is started again: to kill one and see what becomes of clients is what a try-out
is for. One that does not come up, or dies at once five times in a row, ends all.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bloomery import errors
from bloomery.cli.trial.members import HOST, BalancerProcess, NodeProcess, RedisProcess
from bloomery.cli.trial.process import ManagedProcess
from bloomery.cli.trial.tour import Interrupted, Tour, source
from bloomery.integrations.redis.wire.link import Link
from bloomery.service.durability.folder import lock

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL = 0.1
_PATIENCE = 30.0  # seconds for one to end
_STORE_SECONDS = 5.0  # for the answer of a Redis that was given
# No node has what a Redis of our own may have lost: what it kept is in its folder.
_OWN_REDIS = "store-bootstrap-seconds=0.5"

Say = Callable[[str], None]


class Cluster:
    """The processes of a cluster, from its start to its end."""

    def __init__(self, nodes: int, folder: Path, *, show: Say, tell: Say) -> None:
        """`show` is given what it says itself, `tell` what the processes print."""
        self._folder = folder
        self._show, self._tell = show, tell
        self._members: list[ManagedProcess] = []
        self._signals = 0  # that have come
        self.nodes = [
            NodeProcess(number, folder / f"node-{number}", tell) for number in range(1, nodes + 1)
        ]
        self.redis: RedisProcess | None = None  # if it is ours
        self.store = ""  # where it is, without secrets
        self.balancer: BalancerProcess

    def prepare(
        self, store: str, settings: Sequence[str], resp_port: int, http_port: int, redis_port: int
    ) -> None:
        """See that all can be had, before anything is started; `settings` are of the nodes."""
        self.balancer = BalancerProcess(self._folder, self._tell, self.nodes, resp_port, http_port)
        try:
            if store:
                self.store = _place(store)
            else:
                self.redis = RedisProcess(self._folder / "redis", self._tell, redis_port)
        except BaseException:
            self.balancer.close()
            raise
        for node in self.nodes:
            node.store, node.settings = store, settings if store else (_OWN_REDIS, *settings)

    def run(self, tour: bool = False) -> int:
        """Run until a signal says to stop, or the tour is over; the exit code."""
        if tour:
            configuration = source(self._folder)
            for node in self.nodes:
                node.configuration = configuration
        before = [signal.signal(number, self._on_signal) for number in _SIGNALS]
        try:
            if self._bring_up():
                self._introduce(tour)
                if tour:
                    self._guide()
                while not tour and not self._over():
                    time.sleep(_POLL)
        finally:
            self._bring_down()
            self.balancer.close()
            for number, handler in zip(_SIGNALS, before, strict=True):
                signal.signal(number, handler)
        failed = [member.failed for member in self._members if member.failed]
        if failed and not self._signals:
            raise errors.ServerUnavailable(f"{failed[0]}; the cluster was stopped")
        return 0

    def _guide(self) -> None:
        resp = self.balancer.port("resp")
        with contextlib.suppress(Interrupted):
            Tour(self.nodes, resp, self._show, self._over).run()

    def _on_signal(self, number: int, frame: object) -> None:
        # No more than that: a lock may be held by what was interrupted.
        self._signals += 1

    def _over(self) -> bool:
        """Did a signal come, or was one of them given up?

        Asked again and again, and not waited for: where another thread gets the signal, the main
        thread stays in a wait that has no end.
        """
        return self._signals > 0 or any(member.failed for member in self._members)

    def _bring_up(self) -> bool:
        """Start one after the other; False if that was given up."""
        if self.redis is not None:
            if not self._start([self.redis]):
                return False
            self.store = f"{HOST}:{self.redis.port}"
            for node in self.nodes:
                node.store = self.redis.url
        return self._start(self.nodes) and self._start([self.balancer])

    def _start(self, members: Sequence[ManagedProcess]) -> bool:
        self._members += members
        for member in members:
            member.start()
        return all(member.wait(self._over) for member in members)

    def _bring_down(self) -> None:
        if self._signals:
            self._tell("stopping: requests that have begun are answered (again: at once)")
        redis = [self.redis] if self.redis else []
        groups: list[Sequence[ManagedProcess]] = [self.nodes, [self.balancer], redis]
        self.balancer.quiet = True
        for group in groups:
            for member in group:
                member.stop()
            for member in group:
                member.join(_PATIENCE, lambda: self._signals > 1)

    def _introduce(self, tour: bool) -> None:
        resp, http, stats = (self.balancer.port(service) for service in ("resp", "http", "stats"))
        self._show(
            f"bloomery cluster ready: resp={HOST}:{resp} http={HOST}:{http} "
            f"stats={HOST}:{stats} redis={self.store} nodes={len(self.nodes)}"
        )
        for node in self.nodes:
            self._show(f"{node.name}: resp={HOST}:{node.resp_port} http={HOST}:{node.http_port}")
        if not tour:
            self._show(f"try: redis-cli -p {resp} BF.ADD seen alice (Ctrl-C stops all of it)")


def _place(store: str) -> str:
    """Where a Redis that was given is, without secrets; StoreUnavailable if it does not answer."""
    link = Link(store, timeout=_STORE_SECONDS)
    with contextlib.closing(link):
        link.identity()
        return link.place


@contextlib.contextmanager
def data_folder(data: str | None) -> Iterator[Path]:
    """The folder that was named, for us alone; or one that is gone afterwards."""
    if data is not None:
        with contextlib.closing(lock(data)):
            yield Path(data).absolute()
        return
    temporary = Path(tempfile.mkdtemp(prefix="bloomery-cluster-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
