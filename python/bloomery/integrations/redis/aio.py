"""`AsyncRedisFilter`: a Bloom filter whose bits are in Redis, for asyncio."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from bloomery.filters import BloomFilter
from bloomery.integrations.redis.aiolink import AsyncLink
from bloomery.integrations.redis.figures import Facts
from bloomery.integrations.redis.flows import Strings, create, opened
from bloomery.integrations.redis.merging import Relay, joined, require_mergeable, together
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.planning import planned
from bloomery.integrations.redis.pushing import Source, merged, pushing
from bloomery.integrations.redis.reading import copying

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from bloomery.integrations.redis.reading import Progress
    from bloomery.types import Batch, Hasher, Key, Layout, Mask

__all__ = ["AsyncRedisFilter"]


class AsyncRedisFilter(Facts):
    """A Bloom filter that every process with access to a Redis shares.

    >>> seen = await AsyncRedisFilter.create("redis://localhost", "seen", capacity=1_000_000)
    >>> await seen.add("alice"), await seen.contains("alice")
    (True, True)

    `redis` is a client of redis-py, also of a cluster or by Sentinel, or a URL. Whatever is asked
    is tried again for `timeout` seconds if servers change their roles or cannot be reached; then
    it is StoreUnavailable. All of it is asked of masters: a replica may be behind.
    """

    def __init__(self, link: AsyncLink, strings: Strings) -> None:
        """Use `create` or `open`."""
        self._link, self._strings = link, strings
        self._name, self._config, self._place = strings.keys.name, strings.config, link.place

    @classmethod
    async def create(
        cls,
        redis: Any,
        name: str,
        capacity: int,
        error_rate: float = 0.01,
        *,
        layout: Layout = "blocked",
        hasher: Hasher = "xxh3",
        seed: int = 0,
        shards: int | Literal["auto"] = "auto",
        ttl: float | None = None,
        timeout: float = 5.0,
    ) -> Self:
        """Make a filter, or open it if there is just such a one; FilterExists if it is another.

        `ttl`: it ends after so many seconds. `shards`: in how many strings, which a cluster spreads
        over its nodes; `auto`: as few as can be.
        """
        config = planned(capacity, error_rate, layout, hasher, seed, shards)
        link, keys = AsyncLink(redis, timeout=timeout), Keys(name)
        try:
            return cls(link, Strings(keys, await link.run(create(keys, config, ttl))))
        except BaseException:
            await link.close()
            raise

    @classmethod
    async def open(cls, redis: Any, name: str, *, timeout: float = 5.0) -> Self:
        """Open a filter that is there; UnknownFilter if there is none."""
        link, keys = AsyncLink(redis, timeout=timeout), Keys(name)
        try:
            return cls(link, Strings(keys, await link.run(opened(keys))))
        except BaseException:
            await link.close()
            raise

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return bool((await self._link.run(self._strings.add([key])))[0])

    async def contains(self, key: Key) -> bool:
        """False: definitely not added. True: maybe."""
        return bool((await self._link.run(self._strings.contains([key])))[0])

    async def add_many(self, keys: Batch) -> Mask:
        """Add every key, in one round trip for each 10,000; True where one is definitely new."""
        return await self._link.run(self._strings.add(keys))

    async def update(self, keys: Batch) -> None:
        """Add every key."""
        await self._link.run(self._strings.add(keys))

    async def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self._link.run(self._strings.contains(keys))

    async def clear(self) -> None:
        """Forget every key. One that somebody adds while this runs may be forgotten too."""
        await self._link.run(self._strings.clear())

    async def delete(self) -> None:
        """Take the filter away, for everybody."""
        await self._link.run(self._strings.delete())

    async def expire(self, seconds: float | None) -> None:
        """Let it end in so many seconds, for everybody; None: never."""
        await self._link.run(self._strings.expire(seconds))

    async def ttl(self) -> float | None:
        """Seconds until it ends, or None: it does not."""
        return await self._link.run(self._strings.ttl())

    async def info(self) -> dict[str, Any]:
        """All that is known about it, as `BloomFilter.info()`; Redis counts its bits."""
        return await self._link.run(self._strings.info())

    async def close(self) -> None:
        """Close what a URL has opened; a client that was given is its owner's to close."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ---- to and from here

    @classmethod
    async def push(
        cls,
        local: BloomFilter,
        redis: Any,
        name: str,
        *,
        shards: int | Literal["auto"] = "auto",
        ttl: float | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Make the filter in Redis from a local one; merge it into one that is there already.

        Interrupted and called again with the same filter, it goes on where it was. Nobody can open
        it before it is whole. `progress(done, total)` is told bytes.
        """
        link, keys, source = AsyncLink(redis), Keys(name), Source.of(local, "bloom")
        held = await link.run(pushing(keys, source, shards, ttl, progress))
        return cls(link, Strings(keys, held))

    @classmethod
    async def load(
        cls, path: str | os.PathLike[str], redis: Any, name: str, **options: Any
    ) -> Self:
        """Push a saved filter, of which little is in memory at a time; options as for `push`."""
        local = BloomFilter.load(path, mmap=True, verify=True)
        return await cls.push(local, redis, name, **options)

    async def to_local(self, progress: Progress | None = None) -> BloomFilter:
        """Return a local filter with the same bits.

        It holds every key whose adding was acknowledged before; of those added meanwhile, some.
        """
        return await self._link.run(copying(self._strings, progress))

    async def merge(
        self, other: AsyncRedisFilter | BloomFilter, progress: Progress | None = None
    ) -> None:
        """Add every key of the other filter, which lies in any Redis or here."""
        mine = self._strings
        require_mergeable(mine.config, other)
        if isinstance(other, BloomFilter):
            await self._link.run(merged(mine, Source.of(other, "bloom"), progress))
            return
        link, theirs = other._link, other._strings
        if together(self._link.client, mine, link.client, theirs):
            await self._link.run(joined(mine, theirs))
            return
        relay = Relay(mine, theirs, progress)
        while chunks := relay.wanted():
            found = await link.run(relay.read(chunks))
            await self._link.run(relay.write(chunks, found))
        await self._link.run(relay.end())
