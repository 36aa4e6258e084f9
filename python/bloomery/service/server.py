"""The server: a folder of data, the filters in it, and the doors to them.

run: lock the folder ─> recover ─> open the doors ─> ready ─> SIGTERM ─> drain ─> snapshot ─> end
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any, cast

from bloomery import _native, errors
from bloomery.service import troubles
from bloomery.service.alerts import Alerts
from bloomery.service.commands import Commands
from bloomery.service.engine import Engine
from bloomery.service.http import HttpDoor
from bloomery.service.mirror import Mirror
from bloomery.service.policies import Policies
from bloomery.service.resp.connection import Connection
from bloomery.service.resp.door import Door
from bloomery.service.saving import Saving
from bloomery.service.settings import Settings
from bloomery.service.turns import Turns
from bloomery.service.webhook import Webhook
from bloomery.storage import files
from bloomery.storage.folder import lock, log_folder
from bloomery.storage.log import Fsync, Log
from bloomery.storage.recovery import recover

__all__ = ["Server"]

_BACKLOG = 4096
_DRAIN_SECONDS = 5.0
_REGISTRY = "registry.sqlite"


class Server:
    """One running server."""

    def __init__(
        self,
        data: Path,
        settings: Settings,
        *,
        host: str = "127.0.0.1",
        resp_port: int = 6380,
        http_port: int = 8100,
        registry: str | None = None,
        accept_loss: bool = False,
    ) -> None:
        self.data = data
        self.settings = settings
        self.host, self.resp_port, self.http_port = host, resp_port, http_port
        self.registry = registry
        self.accept_loss = accept_loss
        self.started = time.time()
        self.ready = False
        self.resp_address = self.http_address = ""
        self.alerts = Alerts(self.say)
        self.webhook: Webhook | None = None
        self.problems: list[str] = []  # that were found when it started
        self.recovered_rows = 0  # of the log, that were done again

    # Set by run().
    engine: Engine
    turns: Turns
    commands: Commands
    door: Door
    saving: Saving
    policies: Policies
    mirror: Mirror

    def say(self, text: str, level: str = "info", **fields: Any) -> None:
        """Tell the operator."""
        with contextlib.suppress(OSError):
            print(f"bloomery: {text}", file=sys.stderr, flush=True)

    async def run(self) -> int:
        """Serve until a signal says to stop; the exit code."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        with contextlib.closing(lock(self.data)):
            self._open()
            ends = await self._listen()
            background = [
                asyncio.ensure_future(self._tick()),
                asyncio.ensure_future(self._sync_each_second()),
            ]
            self.ready = True
            self._print_ready()
            try:
                await stop.wait()
            finally:
                self.ready = False
                for task in background:
                    task.cancel()
                for end in ends:
                    end.close()
                await self._drain()
            return await self._close()

    def _open(self) -> None:
        found = recover(self.data, accept_loss=self.accept_loss)
        self.problems, self.recovered_rows = found.problems, found.rows
        for problem in found.problems:
            self.say(f"recovery: {problem}")
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
        self.turns = Turns(self.engine, partial(troubles.log_unavailable, self))
        self.policies = Policies(self.engine, self.alerts, self.say)
        self.saving = Saving(self, found.generation)
        registry = self.registry or self.data / _REGISTRY
        self.mirror = Mirror(self.engine, registry, self._server_id(new=found.segment == 1))
        self.webhook = self._open_webhook()
        self.door = Door(self)

    def _open_webhook(self) -> Webhook | None:
        settings = self.settings
        if not settings.webhook_url:
            return None
        if not settings.webhook_secret:
            raise errors.InvalidParameter(
                "webhook-url is set and webhook-secret is not: alerts are signed with it"
            )
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
            self.say(f"recovery: {self.problems[-1]}")
            for left in self.data.glob(f"{_REGISTRY}*"):
                left.unlink()  # our own one is made anew
        made = secrets.token_hex(8)
        with files.replacing(path) as file:
            file.write(made.encode())
        return made

    async def _listen(self) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        resp = await loop.create_server(
            lambda: Connection(self.door), self.host, self.resp_port, backlog=_BACKLOG
        )
        http = await asyncio.start_server(HttpDoor(self).serve, self.host, self.http_port)
        self.resp_address, self.http_address = (_address(one) for one in (resp, http))
        return [resp, http]

    def _print_ready(self) -> None:
        where = f"resp={self.resp_address} http={self.http_address} data={self.data}"
        with contextlib.suppress(OSError):
            print(f"bloomery ready: {where}", flush=True)
        if sys.stderr.isatty():
            port = self.resp_address.rpartition(":")[2]
            self.say(f"try: redis-cli -p {port} BF.ADD seen alice (Ctrl-C stops the server)")

    # While it runs.

    async def _tick(self) -> None:
        """Each second: what time brings, and what could not be done before."""
        while True:
            await asyncio.sleep(1)
            try:
                await self._pass_second()
            except Exception:  # noqa: BLE001  # or there would be no next second
                self.say(traceback.format_exc())

    async def _pass_second(self) -> None:
        self.turns.join()
        await self.turns.retry()
        self.policies.pass_second()
        troubles.look(self)
        self.door.sweep()
        self.saving.consider()

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
        await self.turns.close()
        try:
            await self.saving.last()
        except errors.BloomeryError as problem:
            self.say(f"no snapshot was made: {problem}; the log has everything")
            code = 1
        await asyncio.to_thread(self.mirror.close)
        if self.webhook is not None:
            await asyncio.to_thread(self.webhook.close)
        self.turns.stop()
        try:
            self.engine.log.close()
        except errors.LogUnavailable as problem:
            self.say(str(problem))
            code = 1
        return code


def _address(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    return f"{host}:{port}"
