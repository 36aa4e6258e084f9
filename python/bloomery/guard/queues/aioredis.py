"""A durable queue in Redis, for asyncio; which commands it sends is in `redis_scripts`.

It is as durable as that Redis: `appendonly yes` with `appendfsync always` survives a crash of the
machine, `everysec` may lose the last second, and without a log all is lost with the process. A
replica has it a moment later, and a failover in between loses that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidParameter, QueueUnavailable
from bloomery.guard.codec import encode
from bloomery.guard.protocols import Item
from bloomery.guard.queues import redis_scripts as scripts
from bloomery.redis_client import redis_client

_MAX_ITEMS = 1_000_000
_TIMEOUT = 5.0
_PAGE = 1000  # entries at a time


class AsyncRedisQueue:
    """A queue in a Redis Stream, for asyncio and any number of processes.

        AsyncGuard(filter, source, queue=AsyncRedisQueue(url, "users"), on_outage="queue")

    `redis` is a URL, also `redis+sentinel://…` or `redis+cluster://…`, or a client of
    `redis.asyncio`; who gives the same `name` shares a queue. `max_items` bounds it; look-ups take
    at most half of that.
    """

    def __init__(self, redis: Any, name: str, *, max_items: int = _MAX_ITEMS) -> None:
        self._keys = scripts.redis_keys(name)
        self._waiting, self._names, self._writes, _, self._parked, _, _ = self._keys
        if type(max_items) is not int or max_items < 2:
            raise InvalidParameter(f"max_items is {max_items!r}, must be an integer of at least 2")
        self.max_items = max_items
        self._redis = redis_client(redis, "queue", for_asyncio=True, timeout=_TIMEOUT)
        self._checked = self._closed = False

    async def put(self, items: Sequence[Item]) -> None:
        """Write them down, behind all that wait; one whose idempotency key waits already stays
        where it is. One that was parked waits again."""
        values: list[Any] = [self.max_items]
        for item in items:
            values += (item.what, _native.canonical(item.key), encode(item.key))
            values += (encode(item.value), item.idempotency_key, repr(item.at))
        full = await self._run(scripts.PUT, *values)
        if full:
            waiting, most = full
            looks = " with look-ups" if most < self.max_items else ""
            raise QueueUnavailable(
                f"{self._waiting}: the queue is full ({waiting} items wait, of at most {most}"
                f"{looks}): let the source answer again, or give a larger max_items"
            )

    async def pending(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of these keys (canonical) have a write that waits."""
        counts = await self._send("HMGET", self._names, *keys) if keys else []
        return {key for key, count in zip(keys, counts, strict=True) if count is not None}

    async def writes(self) -> int:
        """How many writes wait."""
        return int(await self._send("GET", self._writes) or 0)

    async def waiting(self) -> int:
        """How many items wait."""
        return int(await self._send("XLEN", self._waiting))

    async def keys(self) -> list[Any]:
        """The keys of all adds that wait, as they were given."""
        items = await self._all(self._waiting)
        return [item.key for item, _ in items if item.what == "add"]

    async def head(self, most: int) -> list[Item]:
        """The first items, which stay."""
        rows = await self._send("XRANGE", self._waiting, "-", "+", "COUNT", most)
        return [scripts.read_entry(*row)[0] for row in rows or ()]

    async def done(self, items: Sequence[Item]) -> int:
        """These are done: they wait no more, nor are they parked. How many waited until now."""
        return int(await self._run(scripts.DONE, *(item.id for item in items))) if items else 0

    async def park(self, item: Item, why: str) -> None:
        """Set this one aside, so that those behind it go on. `put` lets it wait again, `done`
        drops it."""
        await self._run(scripts.PARK, item.id, why)

    async def parked(self) -> list[tuple[Item, str]]:
        """What was set aside, and why."""
        return await self._all(self._parked, b"p")

    async def lease(self, owner: str, seconds: float) -> bool:
        """Let this owner, and nobody else, drain for so long; False if another does."""
        return bool(await self._run(scripts.LEASE, owner, max(1, int(seconds * 1000))))

    async def renew(self, owner: str, seconds: float) -> bool:
        """Let it drain for so long from now on; False if the lease was lost meanwhile."""
        return bool(await self._run(scripts.RENEW, owner, max(1, int(seconds * 1000))))

    async def release(self, owner: str) -> None:
        """Drain no longer."""
        await self._run(scripts.RELEASE, owner)

    async def close(self) -> None:
        """Let go of the connections, unless they are those of a client that was given."""
        self._closed = True
        await self._redis.aclose()

    async def _all(self, stream: str, prefix: bytes = b"") -> list[tuple[Item, str]]:
        items: list[tuple[Item, str]] = []
        start: Any = "-"
        while rows := await self._send("XRANGE", stream, start, "+", "COUNT", _PAGE):
            items += [scripts.read_entry(number, fields, prefix) for number, fields in rows]
            start = b"(" + rows[-1][0]
        return items

    async def _run(self, script: scripts.Script, *values: Any) -> Any:
        return await self._send(script, len(self._keys), *self._keys, *values)

    async def _send(self, *command: Any) -> Any:
        if not self._checked:
            await self._check()
        return await self._sent(*command)

    async def _check(self) -> None:
        """Refuse a Redis that may drop what waits. One that is away is checked when it is back; one
        that does not say is taken as it is."""
        try:
            scripts.refuse_eviction(await self._sent("INFO", "memory"))
        except QueueUnavailable as problem:
            self._checked = isinstance(problem.__cause__, self._redis.module.ResponseError)
        else:
            self._checked = True

    async def _sent(self, *command: Any) -> Any:
        redis = self._redis
        if self._closed:
            raise QueueUnavailable(f"the queue in Redis at {redis.place} is closed: make a new one")
        try:
            send = redis.client.execute_command
            if not isinstance(command[0], scripts.Script):
                return await send(*command)
            try:
                return await send("EVALSHA", command[0].sha, *command[1:])
            except redis.module.exceptions.NoScriptError:
                return await send("EVAL", *command)
        except redis.failures as problem:
            full = isinstance(problem, redis.module.exceptions.OutOfMemoryError)
            full = full or "'maxmemory'" in str(problem)  # of a script, before Redis 7
            step = "give it more memory" if full else "does it run, and may we use it?"
            raise QueueUnavailable(f"the queue in {redis.describe(problem)}: {step}") from problem
