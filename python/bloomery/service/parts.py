"""The parts of a server: each is made with what it uses, and closed when nothing needs it any more.

Nothing here listens or waits: `server.py` runs the parts from start to shutdown.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bloomery import _native, errors
from bloomery.service.access.audit import Audit
from bloomery.service.access.authentication import Access
from bloomery.service.access.shared_users import user_source
from bloomery.service.clock import Clock, HighWaterMark
from bloomery.service.commands import Commands
from bloomery.service.config.configuration import Configuration
from bloomery.service.config.settings import Settings
from bloomery.service.config.sources import SourceSettings
from bloomery.service.declared import DeclaredFilters
from bloomery.service.durability.backup import Backups
from bloomery.service.durability.batch_log import FileBatchLog
from bloomery.service.durability.log import Fsync, Log
from bloomery.service.durability.no_log import NodeLog
from bloomery.service.durability.recovery import Recovery
from bloomery.service.durability.schedule import SnapshotSchedule
from bloomery.service.engine import Engine
from bloomery.service.live_configuration import LiveConfiguration
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.network.input_budget import InputBudget
from bloomery.service.observe.logs import Say
from bloomery.service.policy.alerts import Alert, Alerts
from bloomery.service.policy.enforcer import PolicyEnforcer
from bloomery.service.policy.rebuilds import Rebuilds
from bloomery.service.policy.server_alerts import ServerAlerts, log_unavailable
from bloomery.service.policy.webhook import Webhook
from bloomery.service.registry.provisioner import Provisioner
from bloomery.service.registry.publisher import Publisher
from bloomery.service.registry.server_id import LOCAL_REGISTRY, server_id
from bloomery.service.sampling.sampler import Sampler
from bloomery.service.sequencer import Sequencer

if TYPE_CHECKING:
    from bloomery.service.replication.node import Node

_TELL_SECONDS = 5.0
# What nodes keep of alerts that another node tells: until a node that died would be replaced.
_WITHHOLD_SECONDS, _MOST_WITHHELD = 10.0, 1000


class Shutdown:
    """The steps of a shutdown; `code` is the exit code so far."""

    def __init__(self, say: Say) -> None:
        self.code = 0
        self._say = say

    async def step(self, what: str, work: Awaitable[Any]) -> None:
        """Do a step, and wait for it however long it takes."""
        began = time.monotonic()
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=_TELL_SECONDS))[0]:
            self._say(f"stopping: {what}: for {time.monotonic() - began:.0f} s", level="warning")
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            self.code = 1
            known = isinstance(problem, (errors.BloomeryError, OSError))
            text = str(problem) if known else f"this failed while stopping: {what}"
            self._say(text, level="error", problem=None if known else problem)


class Parts:
    """What a server consists of once its filters are loaded."""

    def __init__(
        self,
        recovered: Recovery,
        settings: Settings,
        sources: Mapping[str, SourceSettings],
        filters: Mapping[bytes, Mapping[str, Any]],
        alerts: Alerts,
        say: Say,
        node: Node | None,
        *,
        started: float,
        file: Path | None,
        read: Callable[[], Configuration] | None,
    ) -> None:
        """`recovered` are the filters, and where their log goes on; `filters` those that the
        configuration declares; `node`: with a store; `file`, `read`: see LiveConfiguration."""
        self.settings, self.alerts, self.say, self.node = settings, alerts, say, node
        self.started = started  # Unix time
        self.data = Path(settings.data)
        self.input_budget = InputBudget(settings)
        self.resp_address = ""  # that clients connect to, once the server listens
        self.recovered_rows, self.problems = recovered.rows, recovered.problems
        number = self._id = server_id(self.data, new=recovered.segment == 1, problems=self.problems)
        for problem in self.problems:
            say(f"recovery: {problem}", level="warning")
        self.engine = self._open_engine(recovered)
        self.file_log: FileBatchLog | None = None  # of a server that is no node
        self.sequencer = self._open_sequencer()
        self.lookups = Lookups(self.engine, settings, sources)
        registry = settings.registry or self.data / LOCAL_REGISTRY
        # A registry of its own, in its folder, every node writes; one that all use, one of them.
        shared = node is not None and bool(settings.registry)
        self.publisher = Publisher(self.engine, registry, number, shared=shared)
        self.enforcer = PolicyEnforcer(self.engine, alerts, say)
        self.sampler = self._open_sampler()
        self.sampler.on_sample.subscribe(self.enforcer.sampled)
        self.commands = Commands(
            self.engine,
            settings,
            self.lookups,
            sample=self.sampler.last_as_dict,
        )
        self.rebuilds = Rebuilds(self.commands, say)
        self.declared = DeclaredFilters(self.commands, alerts, filters)
        self.snapshots = SnapshotSchedule(
            self.engine,
            self.file_log,
            alerts,
            settings,
            snapshot_number=recovered.snapshot_number,
            replayed=recovered.rows,
            elsewhere=None if node is None else node.save,
        )
        self.backups = Backups(self.snapshots, self.data, is_node=node is not None)
        self.webhook = self._open_webhook()
        self._withheld: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST_WITHHELD)
        alerts.on_alert.subscribe(self._deliver)
        self.live = LiveConfiguration(
            settings,
            self.engine,
            self.lookups,
            self.declared,
            self.exchange_webhook,
            alerts,
            say,
            file=file,
            read=read,
        )
        self.audit = Audit(self.data, say)
        self.access = Access(user_source(settings, say), say, self.audit.note)
        self.provisioner = Provisioner(self.commands, self.publisher.writer, self.audit)
        self.server_alerts = ServerAlerts(
            alerts, self.data, self.engine, self.sequencer, self.publisher, self.lookups
        )
        self.server_alerts.start()

    def _open_sampler(self) -> Sampler:
        traffic = None
        if self.node is not None:  # imported by nodes alone, as `Node` is: 0.15 s of a start
            from bloomery.service.replication.traffic import NodeTraffic

            traffic = NodeTraffic(self.settings, self.node)
        return Sampler(
            self.engine,
            self.sequencer,
            self.lookups,
            self.publisher,
            self.settings,
            self.say,
            traffic,
        )

    def _open_sequencer(self) -> Sequencer:
        if self.node is not None:
            return self.node.follow(self.engine)
        on_refuse = partial(log_unavailable, self.alerts)
        self.file_log = FileBatchLog(self.engine, cast("Log", self.engine.log), on_refuse)
        return self.file_log.sequencer

    def _open_engine(self, recovered: Recovery) -> Engine:
        settings = self.settings
        fsync, limit = cast("Fsync", settings.fsync), settings.snapshot_log_bytes
        log = NodeLog() if self.node is not None else recovered.log(fsync, limit)
        _native.unmap_aside()
        clock = Clock(recovered.state.now, mark=HighWaterMark(self.data / "clock"))
        engine = Engine(recovered.state, log, clock)
        engine.set_memory_limit(settings.maxmemory, settings.bytes_per_filter)
        engine.shelf.most_layers = settings.cf_max_expansions
        return engine

    def _open_webhook(self) -> Webhook | None:
        url, secret = self.settings.webhook_url, self.settings.webhook_secret
        return Webhook(url, secret.encode(), self.say, self._id) if url else None

    def _deliver(self, raised: Alert, state: str) -> None:
        alert = raised.as_dict(state)
        # What is told of a filter that nodes share is told once, by the lease holder.
        delivers = raised.name is None or self.node is None or self.node.holds_lease
        if self.webhook is not None and delivers:
            self.webhook.deliver(alert)
        elif self.webhook is not None:
            self._withheld.append((time.monotonic(), alert))

    def _lead(self, node: Node) -> None:
        """Do what one node does for all, if it is this one: write the registry, and tell what the
        one before, which may have died, may not have told."""
        self.publisher.share(node.log_id, node.holds_lease)
        oldest = time.monotonic() - _WITHHOLD_SECONDS
        while self._withheld and (self._withheld[0][0] < oldest or node.holds_lease):
            since, alert = self._withheld.popleft()
            if since >= oldest and self.webhook is not None:
                self.webhook.deliver(alert)

    async def exchange_webhook(self) -> None:
        """Send alerts from now on to where the settings say; what waits has a last moment."""
        before, self.webhook = self.webhook, self._open_webhook()
        if before is not None:
            await asyncio.to_thread(before.close)

    async def tick(self) -> bool:
        """Do what is due each second, and what could not be done before; return whether the users
        were changed."""
        self.sequencer.join()
        if self.file_log is not None:
            await self.file_log.retry()
        if self.node is not None:
            self._lead(self.node)
        self.enforcer.pass_second()
        self.server_alerts.check()
        self.declared.check()
        self.audit.tick()
        self.snapshots.consider()
        self.provisioner.check()
        return await self.access.refresh()

    async def close(self, shutdown: Shutdown, syncing: asyncio.Future[None] | None = None) -> None:
        """Close all parts, whichever of them fails. `syncing` brings the log to the disk."""
        self.access.close()
        await shutdown.step("what was written last is logged", self.sequencer.close())
        if syncing is not None:
            syncing.cancel()
        await shutdown.step("samples are handed over", self.sampler.stop())
        await shutdown.step("look-ups end", self.lookups.stop())
        await shutdown.step("the last snapshot is made", self.snapshots.make_final())
        await shutdown.step("the registry is closed", asyncio.to_thread(self.publisher.close))
        if self.webhook is not None:
            await shutdown.step("the webhook is closed", asyncio.to_thread(self.webhook.close))
        if self.node is not None:  # first: what it does may need the thread of the log
            await shutdown.step("the node leaves", self.node.stop())
        if self.file_log is not None:
            await shutdown.step("the log's thread ends", asyncio.to_thread(self.file_log.stop))
        await shutdown.step("the log is closed", asyncio.to_thread(self.engine.log.close))
        await shutdown.step("the time is kept", asyncio.to_thread(self.engine.clock.close))
        outcome = "done" if shutdown.code == 0 else "failed"
        await shutdown.step("the audit log is closed", asyncio.to_thread(self.audit.close, outcome))
