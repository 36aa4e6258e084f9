"""A durable queue in Redis, for asyncio; which commands it sends is in `redis_scripts`.

It is as durable as that Redis: `appendonly yes` with `appendfsync always` survives a crash of the
machine, `everysec` may lose the last second, and without a log all is lost with the process. A
replica has it a moment later, and a failover in between loses that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from bloomery.errors import QueueUnavailable
from bloomery.flow import drive_async
from bloomery.guard.protocols import Item
from bloomery.guard.queues.redis_scripts import RedisFlow, RedisScripts, Script
from bloomery.redis_client import RedisClient, redis_client

__all__ = ["AsyncRedisQueue"]

T = TypeVar("T")
_MAX_ITEMS = 1_000_000
_TIMEOUT = 5.0


class AsyncRedisQueue:
    """A queue in a Redis Stream, for asyncio and any number of processes.

        AsyncGuard(filter, source, queue=AsyncRedisQueue(url, "users"), on_outage="queue")

    `redis` is a URL, also `redis+sentinel://…` or `redis+cluster://…`, or a client of
    `redis.asyncio`; who gives the same `name` shares a queue. `max_items` bounds it; look-ups take
    at most half of that.
    """

    def __init__(self, redis: Any, name: str, *, max_items: int = _MAX_ITEMS) -> None:
        self._scripts = RedisScripts(name, max_items)
        self._redis = redis_client(redis, "queue", for_asyncio=True, timeout=_TIMEOUT)
        self._checked = self._closed = False

    async def put(self, items: Sequence[Item]) -> None:
        """Write them down, behind all that wait; one whose idempotency key waits already stays
        where it is. One that was parked waits again."""
        await self._run(self._scripts.put(items))

    async def pending(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of these keys (canonical) have a write that waits."""
        return await self._run(self._scripts.pending(keys))

    async def writes(self) -> int:
        """How many writes wait."""
        return await self._run(self._scripts.writes())

    async def waiting(self) -> int:
        """How many items wait."""
        return await self._run(self._scripts.waiting())

    async def keys(self) -> list[Any]:
        """The keys of all adds that wait, as they were given."""
        return await self._run(self._scripts.keys())

    async def head(self, most: int) -> list[Item]:
        """The first items, which stay."""
        return await self._run(self._scripts.head(most))

    async def done(self, items: Sequence[Item]) -> int:
        """These are done: they wait no more, nor are they parked. How many waited until now."""
        return await self._run(self._scripts.done(items))

    async def park(self, item: Item, why: str) -> None:
        """Set this one aside, so that those behind it go on. `put` lets it wait again, `done`
        drops it."""
        await self._run(self._scripts.park(item, why))

    async def parked(self) -> list[tuple[Item, str]]:
        """What was set aside, and why."""
        return await self._run(self._scripts.parked())

    async def lease(self, owner: str, seconds: float) -> bool:
        """Let this owner, and nobody else, drain for so long; False if another does."""
        return await self._run(self._scripts.lease(owner, seconds))

    async def renew(self, owner: str, seconds: float) -> bool:
        """Let it drain for so long from now on; False if the lease was lost meanwhile."""
        return await self._run(self._scripts.renew(owner, seconds))

    async def release(self, owner: str) -> None:
        """Drain no longer."""
        await self._run(self._scripts.release(owner))

    async def close(self) -> None:
        """Let go of the connections, unless they are those of a client that was given."""
        self._closed = True
        await self._redis.aclose()

    async def _run(self, flow: RedisFlow[T]) -> T:
        if not self._checked:
            await self._check()
        return await drive_async(flow, self._send)

    async def _check(self) -> None:
        """Refuse a Redis that may drop what waits. One that is away is checked when it is back; one
        that does not say is taken as it is."""
        try:
            await drive_async(self._scripts.check(), self._send)
        except QueueUnavailable as problem:
            self._checked = isinstance(problem.__cause__, self._redis.module.ResponseError)
        else:
            self._checked = True

    async def _send(self, command: tuple[Any, ...]) -> Any:
        redis = self._redis
        _check_open(self._closed, redis)
        try:
            send = redis.client.execute_command
            if not isinstance(command[0], Script):
                return await send(*command)
            try:
                return await send("EVALSHA", command[0].sha, *command[1:])
            except redis.module.exceptions.NoScriptError:
                return await send("EVAL", *command)
        except redis.failures as problem:
            raise _unavailable(redis, problem) from problem


def _check_open(closed: bool, redis: RedisClient) -> None:
    if closed:
        raise QueueUnavailable(f"the queue in Redis at {redis.place} is closed: make a new one")


def _unavailable(redis: RedisClient, problem: Exception) -> QueueUnavailable:
    step = (
        "give it more memory" if "maxmemory" in str(problem) else "does it run, and may we use it?"
    )
    return QueueUnavailable(f"the queue in {redis.describe(problem)}: {step}")
