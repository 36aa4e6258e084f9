"""`RedisCountingFilter`: a filter in Redis from which keys can be removed, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bloomery.integrations.redis.counters import (
    ABSENT,
    REMOVED,
    Counters,
    Counting,
    planned_counters,
)
from bloomery.integrations.redis.flows import create, opened
from bloomery.integrations.redis.link import Link
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.pushing import Source, pushing
from bloomery.integrations.redis.reading import copying

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.filters import CountingBloomFilter
    from bloomery.integrations.redis.reading import Progress
    from bloomery.types import Batch, Hasher, Key, Mask

__all__ = ["CountingSettings", "RedisCountingFilter"]


class CountingSettings:
    """What it was made with."""

    _counters: Counters

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._counters.keys.name

    @property
    def capacity(self) -> int:
        """How many distinct keys it is made for."""
        return Counting.of(self._counters.config.header).capacity

    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe, at full capacity."""
        return Counting.of(self._counters.config.header).error_rate

    @property
    def counter_bits(self) -> int:
        """Bits of a counter: 4 or 8."""
        return Counting.of(self._counters.config.header).counter_bits

    @property
    def nbytes(self) -> int:
        """Bytes of the counters."""
        return sum(self._counters.sizes)

    def __repr__(self) -> str:
        """Show what it was made with."""
        return (
            f"<{type(self).__name__}({self.name!r}, capacity={self.capacity}, "
            f"error_rate={self.error_rate:g}, counter_bits={self.counter_bits}): "
            f"{self.nbytes:,} bytes in Redis>"
        )


class RedisCountingFilter(CountingSettings):
    """A counting filter that every process with access to a Redis shares.

    >>> seen = RedisCountingFilter.create(redis, "seen", capacity=1_000_000, error_rate=0.01)
    >>> seen.add("alice"), seen.remove("alice"), "alice" in seen
    (True, True, False)

    Its bytes are those of a `CountingBloomFilter`. Adding and removing are never sent twice: if the
    connection is lost in between, StoreUnavailable says that nobody knows whether they were done.
    """

    def __init__(self, link: Link, counters: Counters) -> None:
        """Use `create` or `open`."""
        self._link, self._counters = link, counters

    @classmethod
    def create(
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
        link, keys = Link(redis), Keys(name)
        return cls(link, Counters(keys, link.run(create(keys, config, ttl))))

    @classmethod
    def open(cls, redis: Any, name: str) -> Self:
        """Open a filter that is there."""
        link, keys = Link(redis), Keys(name)
        return cls(link, Counters(keys, link.run(opened(keys))))

    @classmethod
    def push(
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
        link, keys, source = Link(redis), Keys(name), Source.of(local, "counting")
        return cls(link, Counters(keys, link.run(pushing(keys, source, 1, ttl, progress))))

    def to_local(self, progress: Progress | None = None) -> CountingBloomFilter:
        """Return a local filter with the same counters.

        It holds every key that was added before and not removed; of what happens meanwhile, some.
        """
        made: CountingBloomFilter = self._link.run(copying(self._counters, progress))
        return made

    def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return bool(self._link.run(self._counters.add([key]))[0])

    def __contains__(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return self.count(key) > 0

    def count(self, key: Key) -> int:
        """How often the key was added: never less, as for `CountingBloomFilter.count`."""
        return self._link.run(self._counters.count(key))

    def remove(self, key: Key) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there.

        True: it was taken out. False: it may be there and cannot be, since its counters are full.
        """
        [found] = self._link.run(self._counters.remove([key]))[0]
        if found == ABSENT:
            raise KeyError(key)
        return found == REMOVED

    def discard(self, key: Key) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
        return bool(self._link.run(self._counters.removed([key]))[0])

    def add_many(self, keys: Batch) -> Mask:
        """Add every key; True where one is definitely new."""
        return self._link.run(self._counters.add(keys))

    def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return self._link.run(self._counters.contains(keys))

    def remove_many(self, keys: Batch) -> Mask:
        """Take one copy of each key out; True where there was one."""
        return self._link.run(self._counters.removed(keys))

    def expire(self, seconds: float | None) -> None:
        """Let it end in so many seconds, or never."""
        self._link.run(self._counters.expire(seconds))

    def delete(self) -> None:
        """Take the filter away, for everybody."""
        self._link.run(self._counters.delete())
