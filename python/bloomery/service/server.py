"""The server: a folder of data, the filters in it, and the doors to them.

run: lock the folder ─> open HTTP (not ready) ─> recover ─> open RESP ─> ready ─> SIGTERM
     ─> not ready ─> close the doors ─> drain ─> snapshot ─> end
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import secrets
import signal
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

from bloomery import _native, errors
from bloomery.service.access import users
from bloomery.service.access.audit import Audit
from bloomery.service.access.authentication import Access
from bloomery.service.background import Aside
from bloomery.service.clock import Clock, Mark
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.config.sources import SourceSettings
from bloomery.service.domain.state import State
from bloomery.service.durability.folder import lock
from bloomery.service.durability.log import Fsync, Log
from bloomery.service.durability.recovery import Recovery, recover
from bloomery.service.durability.schedule import Saving
from bloomery.service.engine import Engine
from bloomery.service.http.context import HttpContext
from bloomery.service.http.server import HttpServer
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.network import binding
from bloomery.service.network.input_budget import Intake
from bloomery.service.network.listening import Listener
from bloomery.service.network.systemd import notify, watched
from bloomery.service.network.tls import Tls
from bloomery.service.observe import logs, metrics
from bloomery.service.policy import server_alerts
from bloomery.service.policy.alerts import Alerts
from bloomery.service.policy.enforcer import Policies
from bloomery.service.policy.rebuilds import Rebuilds
from bloomery.service.policy.webhook import Webhook
from bloomery.service.registry.publisher import Mirror
from bloomery.service.replication.node import Node
from bloomery.service.replication.reads import StoreReads
from bloomery.service.resp.context import RespContext
from bloomery.service.resp.server import RespServer
from bloomery.service.sampling.sampler import Sampler
from bloomery.service.shutdown import Ending
from bloomery.service.turns import Turns
from bloomery.storage import files

__all__ = ["Server"]

_DRAIN_SECONDS = 5.0
_OLDEST = 1000  # collections of the younger objects, before the oldest are looked at too
_REGISTRY = "registry.sqlite"


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
        self.serving = False  # clients: not before, and not when it is about to end
        self.resp_address = self.http_address = ""
        self.intake = Intake(settings)
        self.alerts = Alerts(self.say)
        self.webhook: Webhook | None = None
        self.problems: list[str] = []  # that were found when it started
        self.recovered_rows = 0  # of the log, that were done again
        self.certificate: Tls | None = None
        self.node: Node | None = None  # with a store
        self._reload = asyncio.Event()

    # Set by run().
    access: Access
    aside: Aside
    audit: Audit
    engine: Engine
    turns: Turns
    commands: Commands
    resp: RespServer
    http: HttpServer
    saving: Saving
    policies: Policies
    rebuilds: Rebuilds
    mirror: Mirror
    sampler: Sampler

    def say(
        self,
        text: str,
        level: str = "info",
        problem: BaseException | None = None,
        **fields: Any,
    ) -> None:
        """Tell the operator: debug, info, warning or error. Neither text nor fields have a key or a
        secret in them; `problem` is an exception that nobody expected."""
        logs.tell(text, level, problem, **fields)

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
            sweeping = asyncio.ensure_future(self._sweep_http())
            if not await self._load(stop):
                return 0
            self.http.serve(self._http_context())
            await self.commands.lookups.start(self.say)
            resp = await self._listen(bound)
            background = [sweeping, asyncio.ensure_future(self._tick())]
            syncing = asyncio.ensure_future(self._flush_each_second())
            if self.certificate is not None:
                background.append(asyncio.ensure_future(self.certificate.watch(self._reload)))
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
                ending = Ending(self.say)
                await ending.step("requests that have begun are answered", self._drain())
                await ending.step("rebuilds are stopped", self.rebuilds.stop())
            return await self._close(ending, syncing)

    async def _load(self, stop: asyncio.Event) -> bool:
        """Have the filters; False if it was told to stop before. HTTP says meanwhile that the
        server is not ready."""
        if not self.settings.store:
            found = await asyncio.to_thread(recover, self.data, accept_loss=self.accept_loss)
            self._open(found)
            # What is there stays: a collection that walks a million objects holds up everybody.
            gc.freeze()
            gc.set_threshold(*gc.get_threshold()[:2], _OLDEST)
            self.loaded = True
            return True
        self.node = Node(self)
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
        await self._close(Ending(self.say))
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
        """For the doors; None: they speak in the clear."""
        return self.certificate.context if self.certificate else None

    @property
    def tls_expires(self) -> float | None:
        """When the certificate runs out, as Unix time; None without one."""
        return self.certificate.expires if self.certificate else None

    def _open(self, found: Recovery) -> None:
        self.access = Access(self)
        self.problems, self.recovered_rows = found.problems, found.rows
        for problem in found.problems:
            self.say(f"recovery: {problem}", level="warning")
        log = self.node.log if self.node is not None else self._open_log(found)
        # Only now: a lower limit than before must not keep the server from its own data.
        _native.set_memory_limit(self.settings.maxmemory or None)
        _native.unmap_aside()
        clock = Clock(found.state.now, mark=Mark(self.data / "clock"))
        self.engine = Engine(found.state, log, clock)
        self.aside = Aside(self.engine)
        if self.node is not None:
            self.aside.hurries = False
            self.node.follow(self.engine)
        self.engine.shelf.most_layers = self.settings.cf_max_expansions
        lookups = Lookups(self.engine, self.settings, self.sources)
        self.commands = Commands(
            self.engine,
            self.settings,
            lookups,
            self.aside,
            None if self.node is None else StoreReads(self.node),
            lambda entry: self.sampler.shown(entry),
        )
        self.turns = Turns(
            self.engine, partial(server_alerts.log_unavailable, self), self.aside.settled
        )
        self.policies = Policies(self.engine, self.alerts, self.say)
        self.rebuilds = Rebuilds(self)
        self.saving = Saving(self, found.generation)
        registry = self.settings.registry or self.data / _REGISTRY
        self.mirror = Mirror(self.engine, registry, self._server_id(new=found.segment == 1))
        self.sampler = Sampler(self)
        self.sampler.on_sample = self.policies.sampled
        self.webhook = self._open_webhook()
        self.audit = Audit(self.data, self.say)
        self.resp = RespServer(self._resp_context())
        server_alerts.tell_damaged(self)

    def _http_context(self) -> HttpContext:
        return HttpContext(
            settings=self.settings,
            data=self.data,
            access=self.access,
            audit=self.audit,
            intake=self.intake,
            engine=self.engine,
            commands=self.commands,
            turns=self.turns,
            aside=self.aside,
            saving=self.saving,
            rebuilds=self.rebuilds,
            sampler=self.sampler,
            alerts=self.alerts,
            node=self.node,
            metrics=partial(metrics.render, self),
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
            intake=self.intake,
            engine=self.engine,
            commands=self.commands,
            turns=self.turns,
            aside=self.aside,
            saving=self.saving,
            rebuilds=self.rebuilds,
            registry=self.mirror.projection,
            node=self.node,
        )

    def _open_log(self, found: Recovery) -> Log:
        fsync = cast("Fsync", self.settings.fsync)
        return found.log(fsync, self.settings.snapshot_log_bytes)

    def _open_webhook(self) -> Webhook | None:
        settings = self.settings
        if not settings.webhook_url:
            return None
        secret = settings.webhook_secret.encode()
        webhook = Webhook(settings.webhook_url, secret, self.say, self.mirror.server)
        self.alerts.deliver = webhook.deliver
        return webhook

    def _server_id(self, new: bool) -> str:
        """Which server this is, in a registry that others use too: made once and kept."""
        path = self.data / "id"
        known = path.read_bytes().strip() if path.exists() else b""
        if re.fullmatch(rb"[0-9a-f]{16}", known):
            return known.decode()
        if not new:
            self.problems.append(
                f"{path}: {'damaged' if known else 'missing'}: to a registry this is now another "
                "server, which cannot have the names of the one before"
            )
            self.say(f"recovery: {self.problems[-1]}", level="warning")
            for left in self.data.glob(f"{_REGISTRY}*"):
                left.unlink()  # our own one is made anew
        made = secrets.token_hex(8)
        with files.replacing(path) as file:
            file.write(made.encode())
        return made

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

    async def _tick(self) -> None:
        """Each second: what time brings, and what could not be done before."""
        while True:
            await asyncio.sleep(1)
            try:
                await self._pass_second()
            except Exception as problem:  # noqa: BLE001  # or there would be no next second
                self.say("what is due each second failed", level="error", problem=problem)

    async def _pass_second(self) -> None:
        if watched():
            notify("WATCHDOG=1")
        self.turns.join()
        await self.turns.retry()
        self.policies.pass_second()
        server_alerts.look(self)
        if await self.access.refresh():
            self.resp.follow_users()
        self.audit.tick()
        self.resp.sweep()
        self.saving.consider()
        if self.node is not None:
            await self.node.pass_second()

    async def _sweep_http(self) -> None:
        """Each second, also while the server is loading."""
        while True:
            await asyncio.sleep(1)
            try:
                self.http.sweep()
            except Exception as problem:  # noqa: BLE001  # as above
                self.say("the limits of HTTP could not be kept", level="error", problem=problem)

    async def _flush_each_second(self) -> None:
        """Bring the log to the disk, beside everything else. In a thread of its own: replies may
        wait for it, which must not wait for other threads' work."""
        log, folding = self.engine.log, None
        thread = ThreadPoolExecutor(1, "bloomery-flush")
        try:
            while True:
                await asyncio.sleep(1)
                try:
                    await asyncio.get_running_loop().run_in_executor(thread, log.flush)
                except errors.LogUnavailable as problem:
                    self.turns.refuse(problem)
                except Exception as problem:  # noqa: BLE001  # there is a next second
                    self.say("the log was not brought to the disk", level="error", problem=problem)
                self.turns.flushed()
                if log.unclosed and (folding is None or folding.done()):
                    folding = asyncio.ensure_future(asyncio.to_thread(log.fold))
        finally:
            thread.shutdown(wait=False)  # who closes the log waits for it

    # The end.

    async def _drain(self) -> None:
        """Let commands that have begun end, and their replies go out."""
        until = time.monotonic() + _DRAIN_SECONDS
        await asyncio.gather(self.http.drain(until), self.resp.drain(until))

    async def _close(self, ending: Ending, syncing: asyncio.Future[None] | None = None) -> int:
        """End everything, whatever of it fails; the exit code."""
        self.access.close()
        await ending.step("what was written last is logged", self.turns.close())
        if syncing is not None:
            syncing.cancel()
        await ending.step("samples are handed over", self.sampler.stop())
        await ending.step("look-ups end", self.commands.lookups.stop())
        await ending.step("the last snapshot is made", self._last_snapshot())
        await ending.step("the registry is closed", asyncio.to_thread(self.mirror.close))
        if self.webhook is not None:
            await ending.step("the webhook is closed", asyncio.to_thread(self.webhook.close))
        if self.node is not None:  # first: what it does may need the thread of the log
            await ending.step("the node leaves", self.node.stop())
        await ending.step("the log's thread ends", asyncio.to_thread(self.turns.stop))
        await ending.step("the log is closed", asyncio.to_thread(self.engine.log.close))
        if self.node is not None:
            await ending.step("the node lets go", asyncio.to_thread(self.node.close))
        await ending.step("the time is kept", asyncio.to_thread(self.engine.clock.close))
        outcome = "done" if ending.code == 0 else "failed"
        await ending.step("the audit log is closed", asyncio.to_thread(self.audit.close, outcome))
        return ending.code

    async def _last_snapshot(self) -> None:
        try:
            await self.saving.last()
        except errors.BloomeryError as problem:
            raise errors.SnapshotFailed(
                f"no snapshot was made: {problem}; the log has all that was acknowledged"
            ) from None
