"""Where an admission cache keeps its values, for asyncio: a mapping, or Redis.

A store has the four methods of `AsyncMappingStore`. One that is away raises an OSError, as
`bloomery.errors.CacheUnavailable` is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bloomery import errors
from bloomery._native import canonical


class AsyncMappingStore:
    """A mapping of the process as a store: a dict, or a cache of cachetools, which has no lock."""

    def __init__(self, mapping: Any) -> None:
        self._mapping = mapping
        self._lock = threading.Lock()

    async def read(self, key: Any) -> Any:
        """Return the value; KeyError if there is none."""
        with self._lock:
            return self._mapping[key]

    async def write(self, key: Any, value: Any) -> None:
        """Keep the value."""
        with self._lock:
            self._mapping[key] = value

    async def replace(self, key: Any, value: Any) -> bool:
        """Keep the value if the key has one already; whether it had."""
        with self._lock:
            if key not in self._mapping:
                return False
            self._mapping[key] = value
            return True

    async def delete(self, key: Any) -> None:
        """Keep nothing for the key."""
        with self._lock:
            self._mapping.pop(key, None)


class AsyncRedisStore:
    """Values in Redis, for asyncio, shared by all who use the same prefix.

    `redis` is a client of `redis.asyncio`. `ttl` is how many seconds a value stays, or a function
    of the key and the value that says so (0: not at all); None leaves it to Redis's `maxmemory`.
    Values are bytes, or what `dumps` makes bytes or text of and `loads` reads again.
    """

    def __init__(
        self,
        redis: Any,
        prefix: str,
        *,
        ttl: float | Callable[[Any, Any], float] | None = None,
        dumps: Callable[[Any], bytes | str] | None = None,
        loads: Callable[[bytes], Any] | None = None,
    ) -> None:
        if not hasattr(redis, "execute_command"):
            raise errors.InvalidParameter(
                f"redis is a {type(redis).__name__}, must be a client: redis.asyncio.from_url(…)"
            )
        pool = getattr(redis, "connection_pool", None)
        if getattr(pool, "connection_kwargs", {}).get("decode_responses"):
            raise errors.InvalidParameter(
                "the client decodes replies, and values are bytes: make it without decode_responses"
            )
        if ttl is not None and not callable(ttl) and not ttl > 0:
            raise errors.InvalidParameter(
                f"ttl is {ttl!r}, must be seconds above 0, a function, or None"
            )
        if (dumps is None) != (loads is None):
            raise errors.InvalidParameter("dumps and loads go together: give both, or neither")
        self._redis, self._prefix, self._ttl = redis, prefix.encode(), ttl
        self._dumps, self._loads = dumps, loads

    async def read(self, key: Any) -> Any:
        """Return the value; KeyError if there is none, PoisonedCache if it cannot be read."""
        data = await self._do("GET", self._name(key))
        if data is None:
            raise KeyError(key)
        if self._loads is None:
            return data
        try:
            return self._loads(data)
        except Exception as problem:  # whatever a user's function raises
            raise errors.PoisonedCache(
                f"the value of {key!r} in Redis cannot be read ({problem}): delete it, or give "
                "each cache a prefix of its own"
            ) from problem

    async def write(self, key: Any, value: Any) -> None:
        """Keep the value for its time."""
        await self._set(key, value)

    async def replace(self, key: Any, value: Any) -> bool:
        """Keep the value if the key has one already; whether it had."""
        return await self._set(key, value, "XX")

    async def delete(self, key: Any) -> None:
        """Keep nothing for the key."""
        await self._do("DEL", self._name(key))

    async def _set(self, key: Any, value: Any, *options: str) -> bool:
        name, data = self._name(key), value if self._dumps is None else self._dumps(value)
        ttl = self._ttl(key, value) if callable(self._ttl) else self._ttl
        if ttl is None:
            return bool(await self._do("SET", name, data, *options))
        if ttl <= 0:
            return bool(await self._do("DEL", name))
        milliseconds = max(1, int(ttl * 1000))
        return bool(await self._do("SET", name, data, "PX", milliseconds, *options))

    async def _do(self, *command: Any) -> Any:
        try:
            return await self._redis.execute_command(*command)
        except Exception as problem:  # redis-py's errors are not known here
            raise errors.CacheUnavailable(
                f"Redis did not do {command[0]} ({problem}): the cache goes on without it"
            ) from problem

    def _name(self, key: Any) -> bytes:
        """By canonical bytes: 5 and "5" are two keys."""
        return self._prefix + canonical(key)


def store_of(store: Any) -> Any:
    """The store itself, or the one that a mapping makes."""
    if hasattr(store, "execute_command"):
        raise errors.InvalidParameter(
            "store is a client of Redis, whose keys others use too: wrap it, as in "
            "AsyncRedisStore(client, 'pages:', ttl=3600)"
        )
    if all(hasattr(store, name) for name in ("read", "write", "replace", "delete")):
        return store
    if all(hasattr(store, name) for name in ("__getitem__", "__setitem__", "pop")):
        return AsyncMappingStore(store)
    raise errors.InvalidParameter(
        f"store is a {type(store).__name__}, must be a mapping such as a dict or a cache of "
        "cachetools, an AsyncRedisStore, or what has read, write, replace and delete"
    )
