"""The server: runs its parts (`parts.py`) from start to shutdown, and hands them to both protocols.

run: lock the folder ─> open HTTP (health only) ─> recover ─> open RESP ─> import the rest
     ─> HTTP answers everything, the registry is written ─> ready ─> SIGTERM
     ─> not ready ─> take no more connections ─> drain ─> snapshot ─> end

FastAPI, Jinja2, SQLAlchemy and prometheus-client take half of a start to import, and RESP clients
need none of them. So they are imported once RESP answers (`_import_rest`), on a thread: clients
wait for a few milliseconds at most. tests/integration/operation/test_start.py checks both.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bloomery import __version__, errors
from bloomery.service.access.shared_users import user_source
from bloomery.service.config.configuration import Configuration
from bloomery.service.config.settings import Settings
from bloomery.service.config.sources import SourceSettings
from bloomery.service.domain.state import State
from bloomery.service.durability.folder import lock
from bloomery.service.durability.preload import Preload
from bloomery.service.durability.recovery import Recovery, recover
from bloomery.service.http.server import HttpServer
from bloomery.service.network import binding
from bloomery.service.network.listening import Acceptor
from bloomery.service.network.systemd import notify, watched
from bloomery.service.network.tls import Tls
from bloomery.service.observe import logs
from bloomery.service.observe.server_figures import ServerFigures
from bloomery.service.parts import Parts, Shutdown
from bloomery.service.policy.alerts import Alerts
from bloomery.service.resp.server import RespServer

if TYPE_CHECKING:
    from bloomery.service.observe.metrics import Metrics
    from bloomery.service.replication.node import Node

_DRAIN_SECONDS = 5.0
_OLDEST = 1000  # collections of the younger objects, before the oldest are looked at too
# Imported after RESP answers.
_REST = ("http.app", "observe.metrics", "registry.registry")
# Packages that only those import: without one, the server does not start.
_REST_PACKAGES = (
    *("alembic", "fastapi", "jinja2", "prometheus_client", "pydantic", "sqlalchemy"),
    "starlette",
)


class Phase(Enum):
    """What a server does."""

    LOADING = "loading"  # until both ports answer
    SERVING = "serving"
    DRAINING = "draining"


class Server:
    """One running server."""

    def __init__(
        self,
        settings: Settings,
        *,
        accept_loss: bool = False,
        config: Path | None = None,
        sources: Mapping[str, SourceSettings] | None = None,
        filters: Mapping[bytes, Mapping[str, Any]] | None = None,
        read: Callable[[], Configuration] | None = None,
        preload: Preload | None = None,
    ) -> None:
        self.settings = settings
        self._preload = preload
        self.sources = sources or {}  # that filters may be bound to
        self.filters = filters or {}  # that the configuration declares
        self.config = config  # the file that settings came from, if there was one
        self.read = read  # reads the configuration again
        self.data = Path(settings.data)
        self.accept_loss = accept_loss
        self.started = time.time()
        self.phase = Phase.LOADING
        self.http_address = ""
        self.alerts = Alerts(self.say)
        self.certificate: Tls | None = None
        self.node: Node | None = None  # with a store
        self._served = 0, time.monotonic()  # commands, when the other nodes were last told
        self._reload = asyncio.Event()  # of the certificate
        self._reconfigure = asyncio.Event()

    # Set by run().
    parts: Parts
    metrics: Metrics
    http: HttpServer
    resp: RespServer

    say = staticmethod(logs.tell)

    async def run(self) -> int:
        """Serve until a signal says to stop; the exit code."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        _require_rest()
        loop.set_exception_handler(logs.complain)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        bound = binding.require(self.settings, await self._has_users(), self.say)
        if self.settings.tls_cert:
            self.certificate = Tls(self.settings.tls_cert, self.settings.tls_key, self.say)
        with contextlib.closing(lock(self.data)):
            self.http = HttpServer(
                self.settings, self.say, self.certificate, self.not_ready, self.broken
            )
            http = await self.http.open(bound, self.settings.http_port)
            self.http_address = http.address
            background = [self._repeat(self._sweep_http, "the limits of HTTP could not be kept")]
            if not await self._load(stop):
                return 0
            await self.parts.declared.make()  # before a client creates another of that name
            await self.parts.rebuilds.drop_unfinished()
            await self.parts.lookups.start(self.say)
            self.http.hold()
            resp = await self._listen(bound)
            background.append(self._repeat(self._tick, "what is due each second failed"))
            syncing = self._begin_syncing()
            if self.certificate is not None:
                background.append(asyncio.create_task(self.certificate.watch(self._reload)))
            background.append(asyncio.create_task(self._follow_configuration()))
            self.parts.sampler.start()
            try:
                await self._open_rest()
                if self.node is not None:
                    self.node.introduce()
                self.phase = Phase.SERVING
                self._print_ready()
                notify("READY=1", f"STATUS=resp={self.parts.resp_address} http={self.http_address}")
                await stop.wait()
            finally:
                self.phase = Phase.DRAINING
                self.say("stopping: requests that have begun are answered, then a snapshot is made")
                notify("STOPPING=1")
                await asyncio.sleep(self.settings.drain_seconds)
                resp.close()
                http.close()
                for task in background:
                    task.cancel()
                shutdown = Shutdown(self.say)
                await shutdown.step("requests that have begun are answered", self._drain())
                await shutdown.step("rebuilds are stopped", self.parts.rebuilds.stop())
                await self.parts.close(shutdown, syncing)
            return shutdown.code

    async def _open_rest(self) -> None:
        """Answer HTTP requests, and write the registry: what RESP clients do not wait for."""
        await asyncio.to_thread(_import_rest)
        from bloomery.service.http.app import Application
        from bloomery.service.observe.metrics import Metrics

        parts = self.parts
        self.metrics = Metrics(
            parts.commands,
            parts.sequencer,
            parts.snapshots,
            parts.publisher,
            parts.sampler,
            self.alerts,
            self._figures,
        )
        self.http.serve(Application(parts, self.not_ready, self.metrics.render, self._figures))
        await asyncio.to_thread(parts.publisher.open)
        _collect_garbage()

    async def _load(self, stop: asyncio.Event) -> bool:
        """Load the filters; False if the server is to stop before they are there. HTTP answers
        meanwhile that the server is not ready."""
        if not self.settings.store:
            recovered = await asyncio.to_thread(
                recover, self.data, accept_loss=self.accept_loss, preload=self._preload
            )
            self._preload = None
            self._open(recovered)
            return True
        from bloomery.service.replication.node import Node  # 0.15 s that others need not wait for

        self.node = Node(self.settings, self.say, self.alerts, self._describe)
        self._open(Recovery(self.data, State(), 1, 0, 0, 0))
        started = asyncio.ensure_future(self.node.start())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if started.done():
            await started
            await self.parts.access.refresh()
            return True
        started.cancel()
        await self.parts.close(Shutdown(self.say))
        return False

    async def _has_users(self) -> bool:
        """Whether there are users; of nodes whose Redis does not answer, there may be."""
        source = user_source(self.settings)
        try:
            return bool(await asyncio.to_thread(source.load))
        except errors.StoreUnavailable:
            return True

    @property
    def ready(self) -> bool:
        """May clients ask it?"""
        return not self.not_ready(writes=False)

    def broken(self) -> str:
        """Return why only a restart can help; "" if that is not so."""
        return "" if self.node is None else self.node.broken

    def not_ready(self, writes: bool) -> str:
        """Why clients may not use it: loading, draining or unfit; and, for those who write too,
        that it refuses writes; "" if they may."""
        if self.phase is not Phase.SERVING:
            phase: str = self.phase.value
            return phase
        # Who balances cuts clients off a node that is unfit, which at "draining" it does not.
        why = None if self.node is None else self.node.unfit()
        if why is not None:
            return f"unfit: {why}"
        if writes and self.node is not None and self.node.refusal:
            return f"writes are refused: {self.node.refusal}"
        if writes and self.parts.engine.problem is not None:
            return "writes are refused: the log cannot be written"
        return ""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of HTTP; None without TLS. Workers use rustls."""
        return self.certificate.context if self.certificate else None

    @property
    def tls_expires(self) -> float | None:
        """When the certificate expires, as Unix time; None without one."""
        return self.certificate.expires if self.certificate else None

    def _open(self, recovered: Recovery) -> None:
        self.parts = Parts(
            recovered,
            self.settings,
            self.sources,
            self.filters,
            self.alerts,
            self.say,
            self.node,
            started=self.started,
            file=self.config,
            read=self.read,
        )
        self.resp = RespServer(self.parts)

    def _figures(self) -> ServerFigures:
        _, refused, native, rare, *_ = self.resp.clients.figures()
        return ServerFigures(
            ready=self.ready,
            started=self.started,
            recovery_problems=len(self.parts.problems),
            tls_expires=self.tls_expires,
            connections={
                "resp": len(self.resp.clients.connections),
                "http": len(self.http.connections),
            },
            connections_refused={"resp": refused, "http": self.http.refused},
            commands={"native": native, "python": rare},
            store={} if self.node is None else self.node.figures(),
            latency={"resp": self.parts.engine.shelf.latency, "http": self.http.latency},
        )

    def _describe(self) -> dict[str, Any]:
        """What this node tells the others of itself."""
        now, served = time.monotonic(), self.resp.clients.figures()
        commands, (before, since) = served[2] + served[3], self._served
        self._served = commands, now
        return {
            "resp": self.parts.resp_address,
            "http": self.http_address,
            "version": __version__,
            "requests_a_second": round((commands - before) / max(now - since, 0.001), 1),
        }

    def _begin_syncing(self) -> asyncio.Future[None] | None:
        """Bring a log on a disk there each second."""
        log = self.parts.file_log
        return None if log is None else asyncio.ensure_future(log.flush_each_second())

    async def _listen(self, bound: list[str]) -> Acceptor:
        resp = await self.resp.open(bound, self.settings.resp_port, self.certificate)
        self.parts.resp_address = resp.address
        self.say(f"RESP answers at {resp.address}; HTTP is being loaded", level="debug")
        return resp

    def _print_ready(self) -> None:
        where = f"resp={self.parts.resp_address} http={self.http_address} data={self.data}"
        with contextlib.suppress(OSError):
            print(f"bloomery ready: {where}", flush=True)
        if os.isatty(2) and self.tls is None and not self.parts.access.required:
            port = self.parts.resp_address.rpartition(":")[2]
            look = f", or look: http://{self.http_address}/" if self.settings.dashboard else ""
            self.say(f"try: redis-cli -p {port} BF.ADD seen alice{look} (Ctrl-C stops the server)")

    # While it runs.

    def _repeat(self, work: Callable[[], Awaitable[None]], failure: str) -> asyncio.Task[None]:
        """Start a task that does something each second; one that fails is logged."""

        async def each_second() -> None:
            while True:
                await asyncio.sleep(1)
                try:
                    await work()
                except Exception as problem:  # noqa: BLE001  # or there would be no next second
                    self.say(failure, level="error", problem=problem)

        return asyncio.create_task(each_second())

    async def _tick(self) -> None:
        """What is due each second, and what could not be done before."""
        if watched():
            notify("WATCHDOG=1")
        if await self.parts.tick():
            self.resp.follow_users()
        self.resp.sweep()

    def _hang_up(self) -> None:
        """SIGHUP: everything that comes from files is read again."""
        self._reload.set()
        self._reconfigure.set()

    async def _follow_configuration(self) -> None:
        """Read the configuration and the users again whenever that is asked for."""
        while True:
            await self._reconfigure.wait()
            self._reconfigure.clear()
            try:
                await self.parts.live.reload()
                if await self.parts.access.refresh():
                    self.resp.follow_users()
            except Exception as problem:  # noqa: BLE001  # or nobody would look again
                self.say("the configuration was not read again", level="error", problem=problem)

    async def _sweep_http(self) -> None:
        """Keep the limits of HTTP, also while the server is loading."""
        self.http.sweep()

    # Shutdown.

    async def _drain(self) -> None:
        """Let requests that have begun end, and their replies go out."""
        until = time.monotonic() + _DRAIN_SECONDS
        await asyncio.gather(self.http.drain(until), self.resp.drain(until))


def _require_rest() -> None:
    """Raise ModuleNotFoundError if a package that is imported later is not installed."""
    for name in _REST_PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _import_rest() -> None:
    for name in _REST:
        import_module(f"bloomery.service.{name}")


def _collect_garbage() -> None:
    """Collect garbage from now on, but not among what the start has made: it stays, and to walk a
    million objects would block all clients."""
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _OLDEST)
    gc.enable()  # the command has disabled it for the start
