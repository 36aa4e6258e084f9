"""A node with the real core and the real log in Redis, whose filters are plain sets."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from bloomery import errors
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.node import Options, ReplicationCore
from bloomery.service.replication.redis_log.chunks import (
    SnapshotDamaged,
    read_chunks,
    write_chunks,
)
from bloomery.service.replication.redis_log.log import RedisLog
from integration.redis_log.writing import PREFIX
from simulation.model import ModelReplica

OPTIONS = Options(
    max_lag=20.0,
    write_timeout=20.0,
    retry=0.02,
    settle=0.1,
    hello=2.0,
    lease=2.0,
    clock=0.2,
    bootstrap=1.0,
    snapshot_entries=50,
)


class SmallNode:
    """What a server does around the core, on one event loop."""

    def __init__(self, url: str, options: Options = OPTIONS) -> None:
        self.url = url
        self.log = RedisLog(url, PREFIX, timeout=5.0, wait=0.5)
        self.core = ReplicationCore(os.urandom(8), ModelReplica, options)
        self.requests: dict[int, asyncio.Future[Any]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.problem: BaseException | None = None
        self.loads = 0

    async def __aenter__(self) -> SmallNode:
        self._begin(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.log.close()
        assert self.problem is None, self.problem

    @property
    def replica(self) -> ModelReplica:
        """Its copy."""
        assert isinstance(self.core.replica, ModelReplica)
        return self.core.replica

    async def write(self, payload: str) -> tuple[bool, ...] | None:
        """Write; None: it was refused, or nobody knows."""
        found: tuple[bool, ...] | None = await self._asked(
            lambda number: m.Write(number, payload.encode())
        )
        return found

    async def has(self, name: str, key: int) -> bool | None:
        """Read what holds for all; None: Redis does not answer."""
        found = await self._asked(m.StrongRead)
        return None if found is None else key in self.replica.filters.get(name, ())

    async def _asked(self, event: Any) -> Any:
        number = len(self.requests)
        future = self.requests[number] = asyncio.get_running_loop().create_future()
        self._step(event(number))
        return await future

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.problem = task.exception()

    async def _tick(self) -> None:
        while True:
            self._step(m.Tick())
            await asyncio.sleep(0.02)

    def _step(self, event: m.Event) -> None:
        for action in self.core.step(event, time.monotonic()):
            match action:
                case m.Reply():
                    self.requests[action.request].set_result(action.result)
                case m.Answer():
                    self.requests[action.request].set_result(True)
                case m.Refuse():
                    self.requests[action.request].set_result(None)
                case m.SetReady() | m.Differ():
                    pass
                case m.Stop():
                    raise AssertionError(action.reason)
                case m.SaveSnapshot():
                    data = action.ledger + b"\n" + self.replica.dump()
                    self._begin(self._in_thread(action.ref, self._save, action, data))
                case m.ReadLedger():
                    self._begin(self._in_thread(action.ref, self._read_ledger, action))
                case m.LoadSnapshot():
                    self.loads += 1
                    self._begin(self._in_thread(action.ref, self._load, action))
                case _:
                    self._begin(self._perform(action))

    async def _perform(self, action: Any) -> None:
        self._step(await self.log.perform(action))

    async def _in_thread(self, ref: int, work: Any, *args: Any) -> None:
        try:
            event = await asyncio.to_thread(work, *args)
        except SnapshotDamaged:
            event = m.SnapshotMissing(ref)
        except (errors.StoreUnavailable, errors.StoreRefused):
            event = m.Failed(ref)
        self._step(event)

    def _save(self, action: m.SaveSnapshot, data: bytes) -> m.Event:
        write_chunks(self.url, PREFIX, action.snapshot.id, [data])
        return m.Done(action.ref, True)

    def _load(self, action: m.LoadSnapshot) -> m.Event:
        data = b"".join(read_chunks(self.url, PREFIX, action.snapshot.id))
        ledger, _, dump = data.partition(b"\n")
        return m.SnapshotLoaded(action.ref, ModelReplica.load(dump), ledger)

    def _read_ledger(self, action: m.ReadLedger) -> m.Event:
        data = b"".join(read_chunks(self.url, PREFIX, action.snapshot.id))
        return m.LedgerRead(action.ref, data.partition(b"\n")[0])
