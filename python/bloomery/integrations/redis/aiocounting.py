"""`AsyncRedisCountingFilter`: a filter in Redis from which keys can be removed, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bloomery.integrations.redis.aiolink import AsyncLink
from bloomery.integrations.redis.counters import ABSENT, REMOVED, Counters, planned_counters
from bloomery.integrations.redis.counting import CountingSettings
from bloomery.integrations.redis.flows import create, opened
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.pushing import Source, pushing
from bloomery.integrations.redis.reading import copying

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.filters import CountingBloomFilter
    from bloomery.integrations.redis.reading import Progress
    from bloomery.types import Batch, Hasher, Key, Mask

__all__ = ["AsyncRedisCountingFilter"]


class AsyncRedisCountingFilter(CountingSettings):
    """A counting filter that every process with access to a Redis shares, for asyncio.

    >>> seen = await AsyncRedisCountingFilter.create(redis, "seen", capacity=1_000_000)
    >>> await seen.add("alice"), await seen.remove("alice"), await seen.contains("alice")
    (True, True, False)
    """

    def __init__(self, link: AsyncLink, counters: Counters) -> None:
        """Use `create` or `open`."""
        self._link, self._counters = link, counters

    @classmethod
    async def create(
        cls,
        redis: Any,
        name: str,
        capacity: int,
        error_rate: float = 0.01,
        *,
        counter_bits: int = 4,
        hasher: Hasher = "xxh3",
        seed: int = 0,
        ttl: float | None = None,
    ) -> Self:
        """Make a filter, or open it if there is just such a one."""
        config = planned_counters(capacity, error_rate, counter_bits, hasher, seed)
        link, keys = AsyncLink(redis), Keys(name)
        return cls(link, Counters(keys, await link.run(create(keys, config, ttl))))

    @classmethod
    async def open(cls, redis: Any, name: str) -> Self:
        """Open a filter that is there."""
        link, keys = AsyncLink(redis), Keys(name)
        return cls(link, Counters(keys, await link.run(opened(keys))))

    @classmethod
    async def push(
        cls,
        local: CountingBloomFilter,
        redis: Any,
        name: str,
        *,
        ttl: float | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Make the filter in Redis from a local one, which nobody may change meanwhile.

        Interrupted and called again with the same filter, it goes on where it was. FilterExists if
        one of this name is there: counters cannot be merged in Redis.
        """
        link, keys, source = AsyncLink(redis), Keys(name), Source.of(local, "counting")
        return cls(link, Counters(keys, await link.run(pushing(keys, source, 1, ttl, progress))))

    async def to_local(self, progress: Progress | None = None) -> CountingBloomFilter:
        """Return a local filter with the same counters.

        It holds every key that was added before and not removed; of what happens meanwhile, some.
        """
        made: CountingBloomFilter = await self._link.run(copying(self._counters, progress))
        return made

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return bool((await self._link.run(self._counters.add([key])))[0])

    async def contains(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return await self.count(key) > 0

    async def count(self, key: Key) -> int:
        """How often the key was added: never less, as for `CountingBloomFilter.count`."""
        return await self._link.run(self._counters.count(key))

    async def remove(self, key: Key) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there.

        True: it was taken out. False: it may be there and cannot be, since its counters are full.
        """
        [found] = (await self._link.run(self._counters.remove([key])))[0]
        if found == ABSENT:
            raise KeyError(key)
        return found == REMOVED

    async def discard(self, key: Key) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
        return bool((await self._link.run(self._counters.removed([key])))[0])

    async def add_many(self, keys: Batch) -> Mask:
        """Add every key; True where one is definitely new."""
        return await self._link.run(self._counters.add(keys))

    async def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self._link.run(self._counters.contains(keys))

    async def remove_many(self, keys: Batch) -> Mask:
        """Take one copy of each key out; True where there was one."""
        return await self._link.run(self._counters.removed(keys))

    async def expire(self, seconds: float | None) -> None:
        """Let it end in so many seconds, or never."""
        await self._link.run(self._counters.expire(seconds))

    async def delete(self) -> None:
        """Take the filter away, for everybody."""
        await self._link.run(self._counters.delete())
