"""A cache in Redis, or in a Redis Cluster: for threads, and for asyncio. A batch is one round trip;
what is sent and what comes back is `redisentries`'."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from bloomery.errors import InvalidParameter, MissingExtra
from bloomery.guard.parts import Cached
from bloomery.guard.redisentries import Command, RedisEntries

__all__ = ["AsyncRedisCache", "RedisCache"]

# A cache that takes longer than that saves nothing: the source is asked instead.
_TIMEOUT = 0.25
_MAX_VALUE_BYTES = 1 << 20


class RedisCache:
    """Answers in Redis, shared by all who use the same prefix; any thread may use it.

    `redis` is a URL, `redis://host:6379/0`, or a client of redis-py, one of a cluster too. An entry
    is found by the prefix and its key: each source needs a prefix of its own, "users:" say. Every
    entry expires; a larger value than `max_value_bytes` is not cached.
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
        module = _redis()
        self._own = isinstance(redis, str)
        if isinstance(redis, str):
            redis = _from_url(module.Redis, module.retry.Retry, redis, timeout)
        self._redis = redis
        self._errors = (module.RedisError, OSError)
        self._entries = _entries(self, redis, prefix, max_value_bytes, module.RedisCluster)

    def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
        """Return what is held for each key."""
        held: list[Cached | None] = []
        for names in self._entries.names(keys):
            read = self._entries.read(names, self._send(self._entries.reading(names)))
            if read.bad:
                self._entries.check(self._send(self._entries.deleting(read.bad)))
                raise self._entries.poisoned(read)
            held += read.held
        return held

    def set_many(self, entries: Sequence[tuple[bytes, Cached]]) -> None:
        """Hold these."""
        for commands in self._entries.writing(entries):
            self._entries.check(self._send(commands))

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Hold nothing for these keys."""
        for names in self._entries.names(keys):
            self._entries.check(self._send(self._entries.deleting(names)))

    def close(self) -> None:
        """Let go of the connections, unless they are those of a client that was given."""
        if self._own:
            self._redis.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._entries.place}>"

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        """The replies; an error of a command is its reply."""
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = pipeline.execute(raise_on_error=False)
                return replies
        except self._errors as problem:
            raise self._entries.away(problem) from None


class AsyncRedisCache:
    """The same for asyncio: a URL, or a client of `redis.asyncio`."""

    def __init__(
        self,
        redis: Any,
        prefix: str,
        *,
        max_value_bytes: int = _MAX_VALUE_BYTES,
        timeout: float = _TIMEOUT,
    ) -> None:
        """As `RedisCache`."""
        module = _redis()
        self._own = isinstance(redis, str)
        if isinstance(redis, str):
            redis = _from_url(module.asyncio.Redis, module.asyncio.retry.Retry, redis, timeout)
        self._redis = redis
        self._errors = (module.RedisError, OSError, asyncio.TimeoutError)
        cluster = module.asyncio.RedisCluster
        self._entries = _entries(self, redis, prefix, max_value_bytes, cluster)

    async def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
        """Return what is held for each key."""
        held: list[Cached | None] = []
        for names in self._entries.names(keys):
            read = self._entries.read(names, await self._send(self._entries.reading(names)))
            if read.bad:
                self._entries.check(await self._send(self._entries.deleting(read.bad)))
                raise self._entries.poisoned(read)
            held += read.held
        return held

    async def set_many(self, entries: Sequence[tuple[bytes, Cached]]) -> None:
        """Hold these."""
        for commands in self._entries.writing(entries):
            self._entries.check(await self._send(commands))

    async def delete_many(self, keys: Sequence[bytes]) -> None:
        """Hold nothing for these keys."""
        for names in self._entries.names(keys):
            self._entries.check(await self._send(self._entries.deleting(names)))

    async def close(self) -> None:
        """Let go of the connections, unless they are those of a client that was given."""
        if self._own:
            await self._redis.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._entries.place}>"

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        """The replies; an error of a command is its reply."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = await pipeline.execute(raise_on_error=False)
                return replies
        except self._errors as problem:
            raise self._entries.away(problem) from None


def _redis() -> Any:
    """The module; MissingExtra if it is not installed."""
    try:
        import redis
        import redis.asyncio.retry
        import redis.retry
    except ImportError:
        raise MissingExtra("a cache in Redis needs redis: pip install 'bloomery[guard]'") from None
    return redis


def _from_url(client: Any, retry: Any, url: str, timeout: float) -> Any:
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as Lost

    if type(timeout) not in (int, float) or not timeout > 0:
        raise InvalidParameter(f"timeout is {timeout!r}, must be a number of seconds above 0")
    try:
        return client.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            # By default it tries for seconds. Once more suffices for a connection that went stale.
            retry=retry(NoBackoff(), 1, supported_errors=(Lost,)),
        )
    except (ValueError, TypeError):  # whose text shows parts of the URL
        raise InvalidParameter(
            "the cache's URL cannot be read, must be redis://user:password@host:6379/0, rediss://… "
            "or unix://…"
        ) from None


def _entries(cache: Any, client: Any, prefix: str, longest: int, cluster: Any) -> RedisEntries:
    """What writes and reads for this client, once it is known to be one that can be used."""
    send = getattr(client, "execute_command", None)
    if send is None or not hasattr(client, "pipeline"):
        raise InvalidParameter(
            f"redis is a {type(client).__name__}, must be a URL or a client of redis-py"
        )
    for_asyncio = isinstance(cache, AsyncRedisCache)
    if inspect.iscoroutinefunction(send) != for_asyncio:
        other = "RedisCache" if for_asyncio else "AsyncRedisCache"
        raise InvalidParameter(
            f"the client is {'not ' if for_asyncio else ''}one for asyncio: use {other}"
        )
    if client.get_encoder().decode_responses:
        raise InvalidParameter("the client decodes what it reads: make it without decode_responses")
    if isinstance(client, cluster):
        return RedisEntries(prefix, longest, "a Redis Cluster", cluster=True)
    known = client.get_connection_kwargs()
    host = f"{known['host']}:{known.get('port', 6379)}" if "host" in known else "a Redis"
    place = known.get("path") or host
    return RedisEntries(prefix, longest, place, cluster=False)
