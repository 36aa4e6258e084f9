"""`RedisFilter`: a Bloom filter whose bits are in Redis, for threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from bloomery.filters import BloomFilter
from bloomery.integrations.redis.figures import Facts
from bloomery.integrations.redis.flows import Strings, create, opened
from bloomery.integrations.redis.link import Link
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

__all__ = ["RedisFilter"]


class RedisFilter(Facts):
    """A Bloom filter that every process with access to a Redis shares.

    >>> seen = RedisFilter.create("redis://localhost", "seen", capacity=1_000_000)
    >>> seen.add("alice"), "alice" in seen
    (True, True)

    `redis` is a client of redis-py, also of a cluster or by Sentinel, or a URL. Whatever is asked
    is tried again for `timeout` seconds if servers change their roles or cannot be reached; then
    it is StoreUnavailable. All of it is asked of masters: a replica may be behind.
    """

    def __init__(self, link: Link, strings: Strings) -> None:
        """Use `create` or `open`."""
        self._link, self._strings = link, strings
        self._name, self._config, self._place = strings.keys.name, strings.config, link.place

    @classmethod
    def create(
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
        link, keys = Link(redis, timeout=timeout), Keys(name)
        try:
            return cls(link, Strings(keys, link.run(create(keys, config, ttl))))
        except BaseException:
            link.close()
            raise

    @classmethod
    def open(cls, redis: Any, name: str, *, timeout: float = 5.0) -> Self:
        """Open a filter that is there; UnknownFilter if there is none."""
        link, keys = Link(redis, timeout=timeout), Keys(name)
        try:
            return cls(link, Strings(keys, link.run(opened(keys))))
        except BaseException:
            link.close()
            raise

    def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return bool(self._link.run(self._strings.add([key]))[0])

    def __contains__(self, key: Key) -> bool:
        """False: definitely not added. True: maybe."""
        return bool(self._link.run(self._strings.contains([key]))[0])

    def add_many(self, keys: Batch) -> Mask:
        """Add every key, in one round trip for each 10,000; True where one is definitely new."""
        return self._link.run(self._strings.add(keys))

    def update(self, keys: Batch) -> None:
        """Add every key."""
        self._link.run(self._strings.add(keys))

    def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return self._link.run(self._strings.contains(keys))

    def clear(self) -> None:
        """Forget every key. One that somebody adds while this runs may be forgotten too."""
        self._link.run(self._strings.clear())

    def delete(self) -> None:
        """Take the filter away, for everybody."""
        self._link.run(self._strings.delete())

    def expire(self, seconds: float | None) -> None:
        """Let it end in so many seconds, for everybody; None: never."""
        self._link.run(self._strings.expire(seconds))

    def ttl(self) -> float | None:
        """Seconds until it ends, or None: it does not."""
        return self._link.run(self._strings.ttl())

    def info(self) -> dict[str, Any]:
        """All that is known about it, as `BloomFilter.info()`; Redis counts its bits."""
        return self._link.run(self._strings.info())

    def close(self) -> None:
        """Close what a URL has opened; a client that was given is its owner's to close."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- to and from here

    @classmethod
    def push(
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
        link, keys, source = Link(redis), Keys(name), Source.of(local, "bloom")
        return cls(link, Strings(keys, link.run(pushing(keys, source, shards, ttl, progress))))

    @classmethod
    def load(cls, path: str | os.PathLike[str], redis: Any, name: str, **options: Any) -> Self:
        """Push a saved filter, of which little is in memory at a time; options as for `push`."""
        return cls.push(BloomFilter.load(path, mmap=True, verify=True), redis, name, **options)

    def to_local(self, progress: Progress | None = None) -> BloomFilter:
        """Return a local filter with the same bits.

        It holds every key whose adding was acknowledged before; of those added meanwhile, some.
        """
        made: BloomFilter = self._link.run(copying(self._strings, progress))
        return made

    def merge(self, other: RedisFilter | BloomFilter, progress: Progress | None = None) -> None:
        """Add every key of the other filter, which lies in any Redis or here."""
        mine = self._strings
        require_mergeable(mine.config, other)
        if isinstance(other, BloomFilter):
            self._link.run(merged(mine, Source.of(other, "bloom"), progress))
            return
        link, theirs = other._link, other._strings
        if together(self._link.client, mine, link.client, theirs):
            self._link.run(joined(mine, theirs))
            return
        relay = Relay(mine, theirs, progress)
        while chunks := relay.wanted():
            found = link.run(relay.read(chunks))
            self._link.run(relay.write(chunks, found))
        self._link.run(relay.end())
