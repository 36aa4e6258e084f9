"""The server: makes its parts, hands each what it uses, and runs them from start to shutdown.

run: lock the folder ─> open HTTP (not ready) ─> recover ─> open RESP ─> ready ─> SIGTERM
     ─> not ready ─> take no more connections ─> drain ─> snapshot ─> end
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
from functools import partial
from pathlib import Path
from typing import cast

from bloomery import _native
from bloomery.service.access import users
from bloomery.service.access.audit import Audit
from bloomery.service.access.authentication import Access
from bloomery.service.background import Background
from bloomery.service.clock import Clock, HighWaterMark
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.config.sources import SourceSettings
from bloomery.service.domain.state import State
from bloomery.service.durability.flusher import flush_each_second
from bloomery.service.durability.folder import lock
from bloomery.service.durability.log import Fsync
from bloomery.service.durability.recovery import Recovery, recover
from bloomery.service.durability.schedule import SnapshotSchedule
from bloomery.service.engine import Engine
from bloomery.service.group_commit import GroupCommit
from bloomery.service.http.context import HttpContext
from bloomery.service.http.server import HttpServer
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.network import binding
from bloomery.service.network.input_budget import InputBudget
from bloomery.service.network.listening import Listener
from bloomery.service.network.systemd import notify, watched
from bloomery.service.network.tls import Tls
from bloomery.service.observe import logs
from bloomery.service.observe.metrics import Metrics, ServerFigures
from bloomery.service.policy.alerts import Alerts
from bloomery.service.policy.enforcer import PolicyEnforcer
from bloomery.service.policy.rebuilds import Rebuilds
from bloomery.service.policy.server_alerts import ServerAlerts, log_unavailable
from bloomery.service.policy.webhook import Webhook
from bloomery.service.registry.publisher import Publisher
from bloomery.service.registry.server_id import LOCAL_REGISTRY, server_id
from bloomery.service.replication.node import Node
from bloomery.service.replication.reads import StoreReads
from bloomery.service.resp.context import RespContext
from bloomery.service.resp.server import RespServer
from bloomery.service.sampling.sampler import Sampler
from bloomery.service.shutdown import Shutdown

__all__ = ["Server"]

_DRAIN_SECONDS = 5.0
_OLDEST = 1000  # collections of the younger objects, before the oldest are looked at too


class Server:
    """One running server."""

    def __init__(
        self,
        settings: Settings,
        *,
        accept_loss: bool = False,
        config: Path | None = None,
        sources: Mapping[str, SourceSettings] | None = None,
    ) -> None:
        self.settings = settings
        self.sources = sources or {}  # that filters may be bound to
        self.config = config  # the file that settings came from, if there was one
        self.data = Path(settings.data)
        self.accept_loss = accept_loss
        self.started = time.time()
        self.loaded = False  # the filters are there
        self.serving = False  # does it take requests?
        self.resp_address = self.http_address = ""
        self.input_budget = InputBudget(settings)
        self.alerts = Alerts(self.say)
        self.webhook: Webhook | None = None
        self.problems: list[str] = []  # that recovery found
        self.recovered_rows = 0  # of the log, that were replayed
        self.certificate: Tls | None = None
        self.node: Node | None = None  # with a store
        self._reload = asyncio.Event()

    # Set by run().
    access: Access
    background: Background
    audit: Audit
    engine: Engine
    turns: GroupCommit
    commands: Commands
    resp: RespServer
    http: HttpServer
    snapshots: SnapshotSchedule
    enforcer: PolicyEnforcer
    rebuilds: Rebuilds
    publisher: Publisher
    sampler: Sampler
    server_alerts: ServerAlerts
    metrics: Metrics

    say = staticmethod(logs.tell)

    async def run(self) -> int:
        """Serve until a signal says to stop; the exit code."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        loop.set_exception_handler(logs.complain)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        bound = binding.require(self.settings, bool(users.load(self.data)), self.say)
        if self.settings.tls_cert:
            self.certificate = Tls(self.settings.tls_cert, self.settings.tls_key, self.say)
        with contextlib.closing(lock(self.data)):
            self.http = HttpServer(self.settings, self.say, self.certificate, self.not_ready)
            http = await self.http.open(bound, self.settings.http_port)
            self.http_address = http.address
            background = [self._repeat(self._sweep_http, "the limits of HTTP could not be kept")]
            if not await self._load(stop):
                return 0
            self.http.serve(self._http_context())
            await self.commands.lookups.start(self.say)
            resp = await self._listen(bound)
            background.append(self._repeat(self._tick, "what is due each second failed"))
            syncing = asyncio.ensure_future(flush_each_second(self.turns, self.say))
            if self.certificate is not None:
                background.append(asyncio.create_task(self.certificate.watch(self._reload)))
            self.sampler.start()
            self.serving = True
            self._print_ready()
            notify("READY=1", f"STATUS=resp={self.resp_address} http={self.http_address}")
            try:
                await stop.wait()
            finally:
                self.serving = False
                self.say("stopping: requests that have begun are answered, then a snapshot is made")
                notify("STOPPING=1")
                await asyncio.sleep(self.settings.drain_seconds)
                resp.close()
                http.close()
                for task in background:
                    task.cancel()
                shutdown = Shutdown(self.say)
                await shutdown.step("requests that have begun are answered", self._drain())
                await shutdown.step("rebuilds are stopped", self.rebuilds.stop())
            return await self._close(shutdown, syncing)

    async def _load(self, stop: asyncio.Event) -> bool:
        """Load the filters; False if the server is to stop before they are there. HTTP answers
        meanwhile that the server is not ready."""
        if not self.settings.store:
            found = await asyncio.to_thread(recover, self.data, accept_loss=self.accept_loss)
            self._open(found)
            # What is there stays: a collection that walks a million objects holds up everybody.
            gc.freeze()
            gc.set_threshold(*gc.get_threshold()[:2], _OLDEST)
            self.loaded = True
            return True
        self.node = Node(self.settings, self.say, self.alerts, accept_loss=self.accept_loss)
        self._open(Recovery(self.data, State(), 1, 0, 0, 0))
        started = asyncio.ensure_future(self.node.start())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if started.done():
            await started
            self.loaded = True
            return True
        started.cancel()
        await self._close(Shutdown(self.say))
        return False

    @property
    def ready(self) -> bool:
        """May clients ask it?"""
        return not self.not_ready()

    def not_ready(self) -> str:
        """Why clients may not ask it: loading, draining or unfit; "" if they may."""
        if not self.serving:
            return "draining" if self.loaded else "loading"
        # Who balances cuts clients off a node that is unfit, which at "draining" it does not.
        why = None if self.node is None else self.node.unfit()
        return "" if why is None else f"unfit: {why}"

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What both protocols encrypt with; None: they do not."""
        return self.certificate.context if self.certificate else None

    @property
    def tls_expires(self) -> float | None:
        """When the certificate expires, as Unix time; None without one."""
        return self.certificate.expires if self.certificate else None

    def _open(self, found: Recovery) -> None:
        self.problems, self.recovered_rows = found.problems, found.rows
        number = server_id(self.data, new=found.segment == 1, problems=self.problems)
        for problem in self.problems:
            self.say(f"recovery: {problem}", level="warning")
        self._open_engine(found)
        self._open_commands(found, number)
        self.audit = Audit(self.data, self.say)
        self.access = Access(self.data, self.say, self.audit.note)
        self.resp = RespServer(self._resp_context())
        self.metrics = Metrics(
            self.commands,
            self.turns,
            self.snapshots,
            self.publisher,
            self.sampler,
            self.alerts,
            self._figures,
        )
        self.server_alerts.start()

    def _open_engine(self, found: Recovery) -> None:
        """Make the filters in memory, their log and their clock."""
        node = self.node
        fsync, segment_bytes = cast("Fsync", self.settings.fsync), self.settings.snapshot_log_bytes
        log = found.log(fsync, segment_bytes) if node is None else node.log
        # Only now: a lower limit than before must not keep the server from its own data.
        _native.set_memory_limit(self.settings.maxmemory or None)
        _native.unmap_aside()
        clock = Clock(found.state.now, mark=HighWaterMark(self.data / "clock"))
        self.engine = Engine(found.state, log, clock)
        self.engine.shelf.most_layers = self.settings.cf_max_expansions
        self.background = Background(self.engine, defers=node is None)
        on_refuse = partial(log_unavailable, self.alerts)
        self.turns = GroupCommit(self.engine, on_refuse, self.background.idle)
        if node is not None:
            node.follow(self.engine, self.turns)

    def _open_commands(self, found: Recovery, number: str) -> None:
        """Make what clients can do, and what the server does by itself."""
        engine, turns, settings = self.engine, self.turns, self.settings
        lookups = Lookups(engine, settings, self.sources)
        self.publisher = Publisher(engine, settings.registry or self.data / LOCAL_REGISTRY, number)
        self.enforcer = PolicyEnforcer(engine, self.alerts, self.say)
        self.sampler = Sampler(engine, turns, lookups, self.publisher, settings, self.say)
        self.sampler.on_sample.subscribe(self.enforcer.sampled)
        self.commands = Commands(
            engine,
            settings,
            lookups,
            background=self.background,
            store=None if self.node is None else StoreReads(self.node),
            sample=self.sampler.last_as_dict,
        )
        self.rebuilds = Rebuilds(self.commands, turns, self.background, self.say)
        self.snapshots = SnapshotSchedule(
            engine,
            turns,
            self.alerts,
            settings,
            generation=found.generation,
            replayed=found.rows,
            disabled=self.node is not None,
        )
        if settings.webhook_url:
            secret = settings.webhook_secret.encode()
            self.webhook = Webhook(settings.webhook_url, secret, self.say, number)
            self.alerts.on_alert.subscribe(self.webhook.deliver)
        self.server_alerts = ServerAlerts(
            self.alerts, self.data, engine, turns, self.publisher, lookups
        )

    def _http_context(self) -> HttpContext:
        return HttpContext(
            settings=self.settings,
            data=self.data,
            access=self.access,
            audit=self.audit,
            intake=self.input_budget,
            engine=self.engine,
            commands=self.commands,
            turns=self.turns,
            background=self.background,
            saving=self.snapshots,
            rebuilds=self.rebuilds,
            sampler=self.sampler,
            alerts=self.alerts,
            node=self.node,
            metrics=self.metrics.render,
        )

    def _resp_context(self) -> RespContext:
        return RespContext(
            settings=self.settings,
            config=self.config,
            data=self.data,
            address=lambda: self.resp_address,
            started=self.started,
            recovered_rows=self.recovered_rows,
            problems=self.problems,
            say=self.say,
            access=self.access,
            audit=self.audit,
            intake=self.input_budget,
            engine=self.engine,
            commands=self.commands,
            turns=self.turns,
            background=self.background,
            saving=self.snapshots,
            rebuilds=self.rebuilds,
            registry=self.publisher.writer,
            node=self.node,
        )

    def _figures(self) -> ServerFigures:
        _, refused, native, rare = self.resp.clients.figures()
        return ServerFigures(
            ready=self.ready,
            started=self.started,
            recovery_problems=len(self.problems),
            tls_expires=self.tls_expires,
            connections={
                "resp": len(self.resp.clients.connections),
                "http": len(self.http.connections),
            },
            connections_refused={"resp": refused, "http": self.http.refused},
            commands={"native": native, "python": rare},
            store={} if self.node is None else self.node.figures(),
        )

    async def _listen(self, bound: list[str]) -> Listener:
        resp = await self.resp.open(bound, self.settings.resp_port, self.tls)
        self.resp_address = resp.address
        return resp

    def _print_ready(self) -> None:
        where = f"resp={self.resp_address} http={self.http_address} data={self.data}"
        with contextlib.suppress(OSError):
            print(f"bloomery ready: {where}", flush=True)
        if os.isatty(2) and self.tls is None and not self.access.required:
            port = self.resp_address.rpartition(":")[2]
            self.say(f"try: redis-cli -p {port} BF.ADD seen alice (Ctrl-C stops the server)")

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
        self.turns.join()
        await self.turns.retry()
        self.enforcer.pass_second()
        self.server_alerts.check()
        if await self.access.refresh():
            self.resp.follow_users()
        self.audit.tick()
        self.resp.sweep()
        self.snapshots.consider()
        if self.node is not None:
            await self.node.pass_second()

    async def _sweep_http(self) -> None:
        """Keep the limits of HTTP, also while the server is loading."""
        self.http.sweep()

    # Shutdown.

    async def _drain(self) -> None:
        """Let requests that have begun end, and their replies go out."""
        until = time.monotonic() + _DRAIN_SECONDS
        await asyncio.gather(self.http.drain(until), self.resp.drain(until))

    async def _close(self, shutdown: Shutdown, syncing: asyncio.Future[None] | None = None) -> int:
        """Close all parts, whichever of them fails; return the exit code."""
        self.access.close()
        await shutdown.step("what was written last is logged", self.turns.close())
        if syncing is not None:
            syncing.cancel()
        await shutdown.step("samples are handed over", self.sampler.stop())
        await shutdown.step("look-ups end", self.commands.lookups.stop())
        await shutdown.step("the last snapshot is made", self.snapshots.last())
        await shutdown.step("the registry is closed", asyncio.to_thread(self.publisher.close))
        if self.webhook is not None:
            await shutdown.step("the webhook is closed", asyncio.to_thread(self.webhook.close))
        if self.node is not None:  # first: what it does may need the thread of the log
            await shutdown.step("the node leaves", self.node.stop())
        await shutdown.step("the log's thread ends", asyncio.to_thread(self.turns.stop))
        await shutdown.step("the log is closed", asyncio.to_thread(self.engine.log.close))
        if self.node is not None:
            await shutdown.step("the node lets go", asyncio.to_thread(self.node.close))
        await shutdown.step("the time is kept", asyncio.to_thread(self.engine.clock.close))
        outcome = "done" if shutdown.code == 0 else "failed"
        await shutdown.step("the audit log is closed", asyncio.to_thread(self.audit.close, outcome))
        return shutdown.code
