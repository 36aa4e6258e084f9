"""A cache in Redis, or in a Redis Cluster, for asyncio. A batch is one round trip; the commands and
what their replies mean are in `redis_entries`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bloomery.errors import InvalidParameter
from bloomery.guard.caches.redis_entries import Command, RedisEntries
from bloomery.guard.protocols import Cached
from bloomery.guard.queues.redis_scripts import as_sent
from bloomery.redis_client import redis_client

# A cache that takes longer than that saves nothing: the source is asked instead.
_TIMEOUT = 0.25
_MAX_VALUE_BYTES = 1 << 20
_LEASE_SECONDS = 60.0  # or what a guard says: longer than any look-up whose answer is cached


class AsyncRedisCache:
    """Answers in Redis, for asyncio, shared by all who use the same prefix.

    `redis` is a URL, `redis://host:6379/0`, also `redis+sentinel://…` or `redis+cluster://…`, or a
    client of `redis.asyncio`. An entry is found by the prefix and its key: each source needs a
    prefix of its own, "users:" say. Every entry expires; a larger value than `max_value_bytes` is
    not cached.
    """

    def __init__(
        self,
        redis: Any,
        prefix: str,
        *,
        max_value_bytes: int = _MAX_VALUE_BYTES,
        timeout: float = _TIMEOUT,
    ) -> None:
        """`timeout`, for a URL alone, in seconds: a client brings its own."""
        if isinstance(redis, str) and (type(timeout) not in (int, float) or not timeout > 0):
            raise InvalidParameter(f"timeout is {timeout!r}, must be a number of seconds above 0")
        # Once more suffices for a connection that went stale; nobody waits longer for a cache.
        self._redis = redis_client(redis, "cache", for_asyncio=True, timeout=timeout, retries=1)
        place, cluster = self._redis.place, self._redis.cluster
        self._entries = RedisEntries(prefix, max_value_bytes, place, cluster)
        self._unknown = self._redis.module.exceptions.NoScriptError
        self.lease_seconds = _LEASE_SECONDS

    async def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
        """Return what is held for each key."""
        cached: list[Cached | None] = []
        for names in self._entries.names(keys):
            read = self._entries.read(names, await self._send(self._entries.reading(names)))
            if read.bad:
                self._entries.check(await self._send(self._entries.deleting(read.bad)))
                raise self._entries.poisoned(read)
            cached += read.entries
        return cached

    async def lease_many(self, keys: Sequence[bytes]) -> list[bytes]:
        """A token for each key, which holds until the key is deleted."""
        tokens: list[bytes] = []
        for names in self._entries.names(keys):
            leasing = self._entries.leasing(names, self.lease_seconds)
            tokens += self._entries.tokens(await self._send(leasing))
        return tokens

    async def set_many(self, entries: Sequence[tuple[bytes, Cached]]) -> None:
        """Cache these answers, except those whose token is no longer valid."""
        for commands in self._entries.writing(entries):
            self._entries.check(await self._send(commands))

    async def delete_many(self, keys: Sequence[bytes]) -> None:
        """Hold nothing for these keys."""
        for names in self._entries.names(keys):
            self._entries.check(await self._send(self._entries.deleting(names)))

    async def close(self) -> None:
        """Let go of the connections, unless they are those of a client that was given."""
        await self._redis.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._entries.place}>"

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        """The replies; an error of a command is its reply."""
        replies = await self._sent(as_sent(commands, whole=self._redis.cluster))
        if any(isinstance(reply, self._unknown) for reply in replies):
            replies = await self._sent(as_sent(commands, whole=True))
        return replies

    async def _sent(self, commands: Sequence[Command]) -> list[Any]:
        try:
            async with self._redis.client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = await pipeline.execute(raise_on_error=False)
                return replies
        except Exception as problem:  # noqa: BLE001  # what is no protocol is no RedisError
            raise self._entries.unavailable(problem) from None
