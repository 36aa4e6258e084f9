"""The server: a folder of data, the filters in it, and the doors to them.

run: lock the folder ─> recover ─> open the doors ─> ready ─> SIGTERM ─> drain ─> snapshot ─> end
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import signal
import ssl
import time
from pathlib import Path
from typing import Any, cast

from bloomery import _native, errors
from bloomery.service import binding, logs, users
from bloomery.service.access import Access
from bloomery.service.audit import Audit
from bloomery.service.commands import Commands
from bloomery.service.engine import Engine
from bloomery.service.http import HttpDoor
from bloomery.service.listening import Listener, listen
from bloomery.service.mirror import Mirror
from bloomery.service.notify import notify, watched
from bloomery.service.resp.connection import Connection
from bloomery.service.resp.door import Door
from bloomery.service.sampler import Sampler
from bloomery.service.saving import Saving
from bloomery.service.settings import Settings
from bloomery.service.tls import LOOK_SECONDS, Tls
from bloomery.service.turns import Turns
from bloomery.storage import files
from bloomery.storage.folder import lock, log_folder
from bloomery.storage.log import Fsync, Log
from bloomery.storage.recovery import recover

__all__ = ["Server"]

_DRAIN_SECONDS = 5.0
_REGISTRY = "registry.sqlite"


class Server:
    """One running server."""

    def __init__(self, settings: Settings, *, accept_loss: bool = False) -> None:
        self.settings = settings
        self.data = Path(settings.data)
        self.accept_loss = accept_loss
        self.started = time.time()
        self.ready = False
        self.resp_address = self.http_address = ""
        self.problems: list[str] = []  # that were found when it started
        self.recovered_rows = 0  # of the log, that were done again
        self.certificate: Tls | None = None
        self._reload = asyncio.Event()

    # Set by run().
    access: Access
    audit: Audit
    engine: Engine
    turns: Turns
    commands: Commands
    door: Door
    saving: Saving
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
        bound = self._may_bind()
        if self.settings.tls_cert:
            self.certificate = Tls(self.settings.tls_cert, self.settings.tls_key, self.say)
        with contextlib.closing(lock(self.data)):
            self._open()
            ends = await self._listen(bound)
            background = [
                asyncio.ensure_future(self._tick()),
                asyncio.ensure_future(self._sync_each_second()),
                asyncio.ensure_future(self._look_at_certificate()),
            ]
            self.sampler.start()
            self.ready = True
            self._print_ready()
            notify("READY=1", f"STATUS=resp={self.resp_address} http={self.http_address}")
            try:
                await stop.wait()
            finally:
                self.ready = False
                notify("STOPPING=1")
                for task in background:
                    task.cancel()
                for end in ends:
                    end.close()
                await self._drain()
            return await self._close()

    def _may_bind(self) -> list[str]:
        """Return the addresses to serve at; InvalidConfiguration if others could reach them and
        are not kept out."""
        bound = binding.addresses(self.settings.host)
        problems = binding.check(self.settings, bound, users=bool(users.load(self.data)))
        if problems:
            raise errors.InvalidConfiguration(*problems)
        if self.settings.insecure and not self.settings.tls_cert:
            reached = [one for one in bound if not binding.is_loopback(one)]
            if reached:
                self.say("others can listen in: there is no TLS", level="warning", at=reached)
        return bound

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For the doors; None: they speak in the clear."""
        return self.certificate.context if self.certificate else None

    @property
    def tls_expires(self) -> float | None:
        """When the certificate runs out, as Unix time; None without one."""
        return self.certificate.expires if self.certificate else None

    def _open(self) -> None:
        self.access = Access(self)
        found = recover(self.data, accept_loss=self.accept_loss)
        self.problems, self.recovered_rows = found.problems, found.rows
        for problem in found.problems:
            self.say(f"recovery: {problem}", level="warning")
        log = Log(
            log_folder(self.data),
            segment=found.segment,
            seq=found.seq,
            fsync=cast("Fsync", self.settings.fsync),
            segment_bytes=self.settings.snapshot_log_bytes,
        )
        # Only now: a lower limit than before must not keep the server from its own data.
        _native.set_memory_limit(self.settings.maxmemory or None)
        self.engine = Engine(found.state, log)
        self.engine.shelf.most_layers = self.settings.cf_max_expansions
        self.commands = Commands(self.engine, self.settings)
        self.turns = Turns(self.engine, self.say)
        self.saving = Saving(self, found.generation)
        registry = self.settings.registry or self.data / _REGISTRY
        self.mirror = Mirror(self.engine, registry, self._server_id(new=found.segment == 1))
        self.sampler = Sampler(self)
        self.commands.sampled = self.sampler.shown
        self.door = Door(self)
        self.audit = Audit(self.data, self.say)
        self.audit.note(None, "", "server", "start", "done")

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

    async def _listen(self, bound: list[str]) -> list[Listener]:
        settings = self.settings
        tls = (self.tls, settings.tls_handshake_seconds)
        resp = await listen(lambda: Connection(self.door), bound, settings.resp_port, *tls)
        self.resp_address = resp.address
        try:
            http = await listen(HttpDoor(self).protocol, bound, settings.http_port, *tls)
        except BaseException:
            resp.close()
            raise
        self.http_address = http.address
        return [resp, http]

    def _print_ready(self) -> None:
        where = f"resp={self.resp_address} http={self.http_address} data={self.data}"
        with contextlib.suppress(OSError):
            print(f"bloomery ready: {where}", flush=True)
        if os.isatty(2):
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
        if await self.turns.retry():
            self.say("the log can be written again: writes are taken")
        if await self.access.refresh():
            self.door.follow_users()
        self.audit.tick()
        self.door.sweep()
        self.saving.consider()

    async def _look_at_certificate(self) -> None:
        """Take a new certificate when there is one: every few seconds, and at once on SIGHUP."""
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._reload.wait(), LOOK_SECONDS)
            asked = self._reload.is_set()
            self._reload.clear()
            if self.certificate is not None:
                await asyncio.to_thread(self.certificate.look, always=asked)

    async def _sync_each_second(self) -> None:
        """Bring the log to the disk, beside everything else."""
        log = self.engine.log
        while True:
            await asyncio.sleep(1)
            try:
                await asyncio.to_thread(log.sync)
            except errors.LogUnavailable as problem:
                self.turns.refuse(problem)

    # The end.

    async def _drain(self) -> None:
        """Let commands that have begun end, and their replies go out."""
        until = time.monotonic() + _DRAIN_SECONDS
        while self.door.tasks and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.door.connections.values()):
            if not connection.transport.is_closing():
                connection.transport.pause_reading()
        # What was written is answered once it is in the log, which a thread may be busy with.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.turns.close(), _DRAIN_SECONDS)
        for connection in list(self.door.connections.values()):
            connection.transport.close()
        while self.door.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in list(self.door.connections.values()):
            connection.transport.abort()

    async def _close(self) -> int:
        code = 0
        self.access.close()
        await self.turns.close()
        await self.sampler.stop()
        try:
            await self.saving.last()
        except errors.BloomeryError as problem:
            self.say(f"no snapshot was made: {problem}; the log has everything", level="error")
            code = 1
        await asyncio.to_thread(self.mirror.close)
        self.turns.stop()
        try:
            self.engine.log.close()
        except errors.LogUnavailable as problem:
            self.say(str(problem), level="error")
            code = 1
        self.audit.note(None, "", "server", "stop", "done" if code == 0 else "failed")
        await asyncio.to_thread(self.audit.close)
        return code
