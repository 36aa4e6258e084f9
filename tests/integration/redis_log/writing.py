"""A node as far as the tests of the log in Redis need one: it numbers what it sends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvloop

from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed
from bloomery.service.replication.redis_log.log import LogAction, RedisLog

PREFIX = "test"


@dataclass
class Writer:
    """Appends entries, and knows where it is."""

    log: RedisLog
    node: bytes = field(default_factory=lambda: os.urandom(8))
    ref: int = 0
    last: Placed | None = None
    applied: list[Placed] = field(default_factory=list)

    @property
    def at(self) -> Mark | None:
        """Its place in the log."""
        return None if self.last is None else self.last.mark

    def next(self) -> int:
        """A number that was not used yet."""
        self.ref += 1
        return self.ref

    async def send(self, payload: bytes = b"", after: Mark | None = None) -> m.Event:
        """Append an entry behind a mark (its own); return the answer."""
        ref = self.next()
        kind = Kind.GENESIS if self.last is None else Kind.WRITE
        entry = LogEntry(self.node, ref, ref, kind, payload)
        event = await self.log.perform(m.Append(ref, after or self.at, entry))
        if isinstance(event, m.Appended):
            self.applied += [one for one in event.entries if self.at and one.mark != self.at]
            self.last = Placed(event.position, entry)
            self.applied.append(self.last)
        return event

    async def append(self, payload: bytes = b"") -> Placed:
        """Append an entry, which must be done."""
        event = await self.send(payload)
        assert isinstance(event, m.Appended), (event, self.log.problem)
        assert self.last is not None
        return self.last

    async def fetch(self, after: Mark | None = None, wait: bool = False) -> m.Fetched:
        """Read, which must be done."""
        event = await self.log.perform(m.Fetch(self.next(), after, wait))
        assert isinstance(event, m.Fetched), (event, self.log.problem)
        return event

    async def until(self, action: Callable[[], LogAction]) -> m.Event:
        """Ask until there is an answer."""
        while isinstance(event := await self.log.perform(action()), m.Failed):
            await asyncio.sleep(0.02)
        return event


@asynccontextmanager
async def writer(url: str, **options: Any) -> AsyncIterator[Writer]:
    """A node at a Redis; its connections end with it."""
    log = RedisLog(url, PREFIX, **{"timeout": 10.0, **options})
    try:
        yield Writer(log)
    finally:
        await log.close()


def run(work: Coroutine[Any, Any, None], faster: bool = False) -> None:
    """Run a test on an event loop; `faster`: on that which servers use."""
    if faster:
        uvloop.install()
    try:
        asyncio.run(asyncio.wait_for(work, 60))
    finally:
        asyncio.set_event_loop_policy(None)
