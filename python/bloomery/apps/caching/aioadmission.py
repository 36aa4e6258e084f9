"""A cache that keeps a value at its second request, for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Any

from bloomery import errors
from bloomery.apps.caching.aiostores import store_of
from bloomery.apps.caching.counts import AdmissionCounts, filter_key

_ABSENT = object()
# A store that is away (OSError), or holds what cannot be read: as if it held nothing.
_NO_ANSWER = (OSError, errors.PoisonedCache)
# A filter in Redis that is away, or that Redis has lost: nothing is admitted meanwhile.
_NO_FILTER = (OSError, errors.StoreRefused, errors.UnknownFilter)


class AsyncAdmissionCache(AdmissionCounts):
    """A cache that keeps a value at its second request, for asyncio.

    `store` holds the values: a mapping, such as a dict or a cache of cachetools, or an
    `AsyncRedisStore`. `filter` remembers what was asked for once: a `RotatingBloomFilter`, whose
    window or capacity says for how long, or an asyncio filter in Redis, which processes share.

        cache = AsyncAdmissionCache(LRUCache(10_000), RotatingBloomFilter(100_000, window="1h"))
        page = await cache.get("/index.html", fetch)

    When a value leaves the cache is the store's matter: its size, its time to live. A store or a
    filter that is away, or refuses a value, is counted and gone without.
    Tasks of one loop may share it.
    """

    def __init__(self, store: Any, filter: Any) -> None:
        if not callable(getattr(filter, "add", None)) or isinstance(filter, set):
            raise errors.InvalidParameter(
                f"filter is a {type(filter).__name__}, must be a filter such as "
                "RotatingBloomFilter(100_000, window='1h')"
            )
        super().__init__()
        self.filter, self._store = filter, store_of(store)

    async def get(self, key: Any, load: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return the value: from the cache, or by `load(key)`; it is cached from its second
        request on. What `load` raises is raised, and counts as no request."""
        if not callable(load):
            raise errors.InvalidParameter(
                f"load is {load!r}, must be a function of the key; `find(key, default)` only looks"
            )
        value = await self.find(key, _ABSENT)
        if value is _ABSENT:
            deletions = self._counts["deleted"]
            value = await load(key)
            if await self._is_new(key):
                self._count("passed_by")
                return value
            kept = await self._keep(key, value, self._store.write, "admitted")
            if kept and self._counts["deleted"] != deletions:
                # What was deleted meanwhile had changed, and this may be what it was before.
                with suppress(OSError):
                    await self._store.delete(key)
        return value

    async def find(self, key: Any, default: Any = None) -> Any:
        """Return the value if it is in the cache; nothing is loaded, and no request noted."""
        try:
            value = await self._store.read(key)
        except KeyError:
            self._count("misses")
        except _NO_ANSWER:
            self._count("misses")
            self._count("unavailable")
        else:
            self._count("hits")
            return value
        return default

    async def offer(self, key: Any, value: Any) -> bool:
        """Take a value that was loaded elsewhere, as a request for it: kept if the key was asked
        for before, and in the place of a value that is there. Whether it was kept."""
        write = self._store.replace if await self._is_new(key) else self._store.write
        return await self._keep(key, value, write, "admitted")

    async def put(self, key: Any, value: Any) -> bool:
        """Keep a value at once, asked for before or not; False if the store refuses it."""
        return await self._keep(key, value, self._store.write, "put")

    async def delete(self, key: Any) -> None:
        """Take a value out, because it changed; its next request caches it again, and a load that
        is under way in this process does not. Raises what the store raises: a value that could not
        be deleted may still be served."""
        self._count("deleted")
        await self._store.delete(key)

    async def _keep(self, key: Any, value: Any, write: Callable[..., Any], counted: str) -> bool:
        try:
            kept = await write(key, value) is not False
        except ValueError:  # larger than the whole cache, as cachetools has it
            self._count("refused")
            return False
        except OSError:
            self._count("unavailable")
            return False
        self._count(counted if kept else "passed_by")
        return kept

    async def _is_new(self, key: Any) -> bool:
        try:
            answer = self.filter.add(filter_key(key))
            return bool(await answer if isawaitable(answer) else answer)
        except _NO_FILTER:
            self._count("unavailable")
            return True
