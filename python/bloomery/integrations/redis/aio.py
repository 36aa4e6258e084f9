"""`AsyncRedisFilter`: a Bloom filter whose bits are in Redis, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from bloomery.integrations.redis.aiolink import AsyncLink
from bloomery.integrations.redis.backends import create, opened, store_of, wished
from bloomery.integrations.redis.naming import Keys

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.integrations.redis.backends import BackendChoice
    from bloomery.integrations.redis.bf import BfFilter
    from bloomery.integrations.redis.flows import Strings
    from bloomery.types import Batch, Hasher, Key, Layout, Mask

__all__ = ["AsyncRedisFilter"]


class AsyncRedisFilter:
    """A Bloom filter that every process with access to a Redis shares.

    >>> seen = await AsyncRedisFilter.create(redis, "seen", capacity=1_000_000, error_rate=0.01)
    >>> await seen.add("alice"), await seen.contains("alice")
    (True, True)
    """

    def __init__(self, link: AsyncLink, strings: Strings | BfFilter) -> None:
        """Use `create` or `open`."""
        self._link, self._strings = link, strings

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
        backend: BackendChoice = "bits",
    ) -> Self:
        """Make a filter, or open it if there is just such a one.

        `backend`: `bits` of ours in strings, a server's own BF.* (`bf`), or `auto`: BF.* where the
        server has them.
        """
        wish = wished(capacity, error_rate, layout, hasher, seed, shards, backend)
        link, keys = AsyncLink(redis), Keys(name)
        return cls(link, store_of(keys, await link.run(create(keys, wish, ttl))))

    @classmethod
    async def open(cls, redis: Any, name: str) -> Self:
        """Open a filter that is there."""
        link, keys = AsyncLink(redis), Keys(name)
        return cls(link, store_of(keys, await link.run(opened(keys))))

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._strings.keys.name

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return bool((await self._link.run(self._strings.add([key])))[0])

    async def contains(self, key: Key) -> bool:
        """False: definitely not added. True: maybe."""
        return bool((await self._link.run(self._strings.contains([key])))[0])

    async def add_many(self, keys: Batch) -> Mask:
        """Add every key, in one round trip for each 10,000; True where one is definitely new."""
        return await self._link.run(self._strings.add(keys))

    async def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self._link.run(self._strings.contains(keys))

    async def delete(self) -> None:
        """Take the filter away, for everybody."""
        await self._link.run(self._strings.delete())
