"""A source that filters may be bound to, with its cache and its queue: one for all filters of a
server that are bound to it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.guard.aio import AsyncGuard
from bloomery.guard.caches.local import LocalCache
from bloomery.guard.caches.resilient import ResilientCache
from bloomery.guard.core import Core
from bloomery.guard.driver import arun
from bloomery.guard.options import GuardOptions, Options
from bloomery.guard.sources.resilient import ResilientSource
from bloomery.service.config.sources import SourceSettings
from bloomery.service.lookup.keytypes import TypedSource

_SHARE = 0.9  # of the guard's time for the database: it says what was slow, the guard only that


class LookupSource:
    """A source that is open, though it connects to nothing before it is asked."""

    def __init__(self, settings: SourceSettings, data: Path) -> None:
        """InvalidParameter or MissingExtra if there can be no such source."""
        self.settings = settings
        self.name = settings.name
        self.queued = 0  # look-ups that wait for the source, as of the last second
        self._chosen: GuardOptions = {
            "ttl": settings.ttl,
            "negative_ttl": settings.negative_ttl,
            "stale_for": settings.stale_for,
            "on_outage": settings.on_outage,
            "timeout": settings.timeout,
            "max_queries": settings.connections,
        }
        self.options = Options(**self._chosen)
        try:
            self.source = open_source(settings)
            self._cache = _open_cache(settings)
        except errors.BloomeryError as problem:
            raise type(problem)(f"sources.{self.name}: {problem}") from None
        kind, longest = settings.key_type, self.options.longest
        lease = self.options.lease
        asked = self.source if kind is None else TypedSource(self.source, kind)
        self.asking = ResilientSource(asked, self.options)
        self.caching = None if self._cache is None else ResilientCache(self._cache, longest, lease)
        self.queue = _open_queue(settings, data)
        self._drainer: AsyncGuard | None = None

    @property
    def down_since(self) -> float | None:
        """Since when it does not answer, as Unix time; None: it does, or was not asked."""
        return self.asking.breaker.since

    def core(self, filter: Any) -> Core:
        """A guard's parts, for a filter that is bound to this source."""
        return Core(filter, self.asking, self.caching, self.queue, self.options, None)

    async def start(self) -> None:
        """Begin to ask what waits in the queue, if there is one."""
        if self.queue is not None:
            drainer = AsyncGuard(
                _NoFilter(), self.asking, cache=self.caching, queue=self.queue, **self._chosen
            )
            self._drainer = await drainer.__aenter__()

    async def measure_queue(self) -> None:
        """See how long the queue is."""
        if self.queue is not None:
            with contextlib.suppress(errors.QueueUnavailable):
                self.queued = await asyncio.to_thread(self.queue.waiting)

    async def forget(self, names: Sequence[bytes]) -> None:
        """Delete these from the cache, and what could not be deleted before."""
        if self.caching is not None:
            await arun(self.caching.delete(names), self.asking.workers)

    def forget_own(self) -> None:
        """Hold no answer in this process's memory."""
        if isinstance(self._cache, LocalCache):
            self._cache.clear()

    async def stop(self) -> None:
        """Let go of everything; what waits in the queue stays there."""
        if self._drainer is not None:
            await self._drainer.close()
        await asyncio.to_thread(self.source.close)
        if self._cache is not None and hasattr(self._cache, "close"):
            closed = self._cache.close()
            if closed is not None:
                await closed


class _NoFilter:
    """A filter for the guard that only drains the queue, which never asks it."""

    blocking = False

    def contains_many(self, keys: Any) -> list[bool]:
        """Any key may be there."""
        return [True] * len(keys)


def open_source(settings: SourceSettings) -> Any:
    """The source of a configuration, which connects to nothing yet."""
    from bloomery.guard.sources.sql.source import SqlSource

    return SqlSource(
        settings.url,
        table=settings.table,
        key=settings.key,
        value=settings.value,
        query=settings.query,
        timeout=_SHARE * settings.timeout,
        pool_size=settings.connections,
        name=settings.name,
    )


def _open_cache(settings: SourceSettings) -> Any:
    if settings.cache == "none":
        return None
    if settings.cache == "local":
        return LocalCache(settings.cache_capacity)
    from bloomery.guard.caches.aioredis import AsyncRedisCache

    # Others may use this Redis too, with another table under the same name.
    chosen = {name: value for name, value in settings.as_dict().items() if name in _MEANING}
    digest = hashlib.blake2b(repr(sorted(chosen.items())).encode(), digest_size=8).hexdigest()
    return AsyncRedisCache(settings.cache, prefix=f"bloomery:cache:{settings.name}:{digest}:")


# What answers depend on.
_MEANING = ("url", "table", "key", "value", "query", "key-type")


def _open_queue(settings: SourceSettings, data: Path) -> Any:
    if settings.on_outage != "queue":
        return None
    from bloomery.guard.queues.sqlite import SqliteQueue

    folder = data / "queues"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SqliteQueue(folder / f"{settings.name}.sqlite")
