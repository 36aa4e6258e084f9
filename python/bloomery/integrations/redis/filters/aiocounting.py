"""`AsyncRedisCountingFilter`: a filter in Redis from which keys can be removed, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bloomery.integrations.redis.bits.counters import (
    ABSENT,
    REMOVED,
    Counters,
    counters_of,
    planned_counters,
)
from bloomery.integrations.redis.bits.strings import create, open_config
from bloomery.integrations.redis.filters.aiobase import AsyncBaseRedisFilter
from bloomery.integrations.redis.filters.properties import CountingProperties
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.transfer.pushing import LocalFilter, pushing
from bloomery.integrations.redis.transfer.reading import copying
from bloomery.suggestions import known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.filters import CountingBloomFilter
    from bloomery.integrations.redis.transfer.reading import Progress
    from bloomery.types import Batch, Hasher, Key, Mask


class AsyncRedisCountingFilter(CountingProperties, AsyncBaseRedisFilter[Counters]):
    """A counting filter that every process with access to a Redis shares.

    >>> seen = await AsyncRedisCountingFilter.create("redis://localhost", "seen", 1_000_000)
    >>> await seen.add("alice"), await seen.remove("alice"), await seen.contains("alice")
    (True, True, False)

    Its bytes are those of a `CountingBloomFilter`. Adding and removing are never sent twice: if the
    connection is lost in between, StoreUnavailable says that nobody knows whether they were done.
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
        counter_bits: int = 4,
        hasher: Hasher = "xxh3",
        seed: int = 0,
        ttl: float | None = None,
        timeout: float = 5.0,
    ) -> Self:
        """Make a filter, or open it if an identical one is there; FilterExists if it is another."""
        config = planned_counters(capacity, error_rate, counter_bits, hasher, seed)
        keys = Keys(name)
        return await cls._connect(redis, timeout, counters_of(keys, create(keys, config, ttl)))

    @classmethod
    async def open(cls, redis: Any, name: str, *, timeout: float = 5.0) -> Self:
        """Open a filter that is there; UnknownFilter if there is none."""
        keys = Keys(name)
        return await cls._connect(redis, timeout, counters_of(keys, open_config(keys)))

    @classmethod
    async def push(
        cls,
        local: CountingBloomFilter,
        redis: Any,
        name: str,
        *,
        ttl: float | None = None,
        progress: Progress | None = None,
        timeout: float = 5.0,
    ) -> Self:
        """Make the filter in Redis from a local one, which nobody may change meanwhile.

        Interrupted and called again with the same filter, it goes on where it was. FilterExists if
        one of this name is there: counters cannot be merged in Redis.
        """
        keys, source = Keys(name), LocalFilter.of(local, "counting")
        flow = counters_of(keys, pushing(keys, source, 1, ttl, progress))
        return await cls._connect(redis, timeout, flow)

    async def to_local(self, progress: Progress | None = None) -> CountingBloomFilter:
        """Return a local filter with the same counters.

        It holds every key that was added before and not removed; of what happens meanwhile, some.
        """
        local: CountingBloomFilter = await self.link.run(copying(self.store, progress))
        return local

    async def count(self, key: Key) -> int:
        """How often the key was added: never less, as for `CountingBloomFilter.count`."""
        return await self.link.run(self.store.count(key))

    async def remove(self, key: Key) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there.

        True: it was taken out. False: it may be there and cannot be, since its counters are full.
        """
        outcomes, _ = await self.link.run(self.store.remove([key]))
        if outcomes[0] == ABSENT:
            raise KeyError(key)
        return outcomes[0] == REMOVED

    async def discard(self, key: Key) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
        removed = await self.link.run(self.store.remove_mask([key]))
        return bool(removed[0])

    async def remove_many(self, keys: Batch) -> Mask:
        """Take one copy of each key out; True where there was one."""
        return await self.link.run(self.store.remove_mask(keys))
