"""`AsyncRedisFilter`: a Bloom filter whose bits are in Redis, for asyncio."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from bloomery.filters import BloomFilter
from bloomery.integrations.redis.backends import (
    copy_filter,
    create_filter,
    open_filter,
    plan_backends,
    push_filter,
)
from bloomery.integrations.redis.bf.filter import BfFilter
from bloomery.integrations.redis.bits.strings import BitStrings
from bloomery.integrations.redis.filters.aiobase import AsyncBaseRedisFilter
from bloomery.integrations.redis.filters.properties import PlainProperties
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.transfer.merging import Relay, merging
from bloomery.suggestions import known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.filters.redisbloom import RedisBloomFilter
    from bloomery.integrations.redis.backends import BackendChoice
    from bloomery.integrations.redis.bf.copy import BfCopy
    from bloomery.integrations.redis.transfer.reading import Progress
    from bloomery.types import Hasher, Layout


class AsyncRedisFilter(PlainProperties, AsyncBaseRedisFilter[BitStrings | BfFilter]):
    """A Bloom filter that every process with access to a Redis shares.

    >>> seen = await AsyncRedisFilter.create("redis://localhost", "seen", capacity=1_000_000)
    >>> await seen.add("alice"), await seen.contains("alice")
    (True, True)

    `redis` is a client of redis-py, also of a cluster or by Sentinel, or a URL. Whatever is asked
    is tried again for `timeout` seconds if servers change their roles or cannot be reached; then
    it is StoreUnavailable. All of it is asked of masters: a replica may be behind.
    """

    @classmethod
    @known_keywords
    async def create(
        cls,
        redis: Any,
        name: str,
        capacity: int,
        error_rate: float | str = 0.01,
        *,
        layout: Layout = "blocked",
        hasher: Hasher = "xxh3",
        seed: int = 0,
        shards: int | Literal["auto"] = "auto",
        ttl: float | None = None,
        backend: BackendChoice = "bits",
        timeout: float = 5.0,
    ) -> Self:
        """Make a filter, or open it if an identical one is there; FilterExists if it is another.

        `ttl`: it ends after so many seconds. `shards`: in how many strings, which a cluster spreads
        over its nodes; `auto`: as few as can be. `backend`: `bits` of ours in strings, `bf`:
        a server's own BF.*, or `auto`: BF.* where the server has them.
        """
        plans = plan_backends(capacity, error_rate, layout, hasher, seed, shards, backend)
        return await cls._connect(redis, timeout, create_filter(Keys(name), plans, ttl))

    @classmethod
    async def open(cls, redis: Any, name: str, *, timeout: float = 5.0) -> Self:
        """Open a filter that is there; UnknownFilter if there is none."""
        return await cls._connect(redis, timeout, open_filter(Keys(name)))

    @classmethod
    async def push(
        cls,
        local: BloomFilter | RedisBloomFilter | BfCopy,
        redis: Any,
        name: str,
        *,
        shards: int | Literal["auto"] = "auto",
        ttl: float | None = None,
        progress: Progress | None = None,
        timeout: float = 5.0,
    ) -> Self:
        """Make the filter in Redis from a local one; merge it into one that is there already.

        Interrupted and called again with the same filter, it goes on where it was. Nobody can open
        it before it is whole. `progress(done, total)` is told bytes. A RedisBloomFilter, or a copy
        of a filter of BF.*, becomes one of BF.*: FilterExists if there is one already.
        """
        flow = push_filter(Keys(name), local, shards, ttl, progress)
        return await cls._connect(redis, timeout, flow)

    @classmethod
    async def load(
        cls, path: str | os.PathLike[str], redis: Any, name: str, **options: Any
    ) -> Self:
        """Push a saved filter, of which little is in memory at a time; options as for `push`.

        The file is mapped meanwhile: another process that makes it shorter ends this one (SIGBUS).
        `push(BloomFilter.load(path), …)` reads it into memory first.
        """
        return await cls.push(
            BloomFilter.load(path, mmap=True, verify=True), redis, name, **options
        )

    async def to_local(self, progress: Progress | None = None) -> BloomFilter | Any:
        """Return a local filter with the same bits; of one of BF.*, a copy to be asked.

        It holds every key whose adding was acknowledged before; of those added meanwhile, some.
        """
        return await self.link.run(copy_filter(self.store, progress))

    async def merge(
        self, other: AsyncRedisFilter | BloomFilter, progress: Progress | None = None
    ) -> None:
        """Add every key of the other filter, which lies in any Redis or here."""
        flow = merging(self, other, progress)
        if not isinstance(flow, Relay):
            await self.link.run(flow)
            return
        while chunks := flow.wanted():
            data = await flow.other_link.run(flow.read(chunks))
            await self.link.run(flow.write(chunks, data))
        await self.link.run(flow.end())
