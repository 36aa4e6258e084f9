"""`RedisRotatingFilter`, and the same for asyncio: a filter in Redis that forgets."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bloomery import sizing
from bloomery.errors import InvalidParameter
from bloomery.filters.rotating import parse_window
from bloomery.integrations.redis.aiolink import AsyncLink
from bloomery.integrations.redis.failures import checked
from bloomery.integrations.redis.flows import create, opened
from bloomery.integrations.redis.generations import Generations
from bloomery.integrations.redis.link import Link
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.planning import LONGEST_STRING, planned
from bloomery.integrations.redis.trips import Flow, command

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.integrations.redis.config import Config
    from bloomery.types import Batch, Hasher, Key, Layout, Mask

__all__ = ["AsyncRedisRotatingFilter", "RedisRotatingFilter"]

MAX_GENERATIONS = 64  # each is asked for each key


def planned_rotating(
    capacity: int,
    error_rate: float,
    window: str | float | timedelta,
    generations: int,
    per_generation: int | None,
    layout: Layout,
    hasher: Hasher,
    seed: int,
) -> Config:
    """The configuration. A maybe of any generation is one of the filter: each gets its share."""
    seconds = parse_window(window)
    if type(generations) is not int or not 1 <= generations <= MAX_GENERATIONS:
        raise InvalidParameter(
            f"generations is {sizing.show(generations)}, must be an int from 1 to {MAX_GENERATIONS}"
        )
    most = sizing.check_capacity(capacity)
    rate = sizing.check_error_rate(error_rate) / (generations + 1)
    each = most if per_generation is None else sizing.check_capacity(per_generation)
    nbytes = sizing.plan(min(each, most), rate, layout=layout).nbytes
    if nbytes > LONGEST_STRING:
        raise InvalidParameter(
            f"{min(each, most):,} keys of one generation need {nbytes:,} bytes, and a string of "
            f"Redis has {LONGEST_STRING:,} at most: take a smaller capacity or per_generation"
        )
    made = planned(min(each, most), rate, layout, hasher, seed, 1)
    return replace(made, kind="rotating", window=seconds, generations=generations, capacity=most)


def created(keys: Keys, config: Config) -> Flow[Generations]:
    """Make it, or open it if there is just such a one."""
    found = yield from create(keys, config, None)
    made = Generations(keys, found)
    if not found.made:
        # From now on a hash that is not there was lost, and nobody makes another.
        yield from made.prepare()
        settled = found.settled().to_json()
        checked((yield [command(keys.config, "SET", keys.config, settled, "XX", "KEEPTTL")])[0])
    return made


def found(keys: Keys) -> Flow[Generations]:
    """Open it."""
    return Generations(keys, (yield from opened(keys)))


class _Settings:
    """What it was made with."""

    _generations: Generations

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._generations.keys.name

    @property
    def capacity(self) -> int:
        """How many distinct keys come in a window."""
        return self._generations.config.capacity or 0

    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe."""
        return self._generations.error_rate

    @property
    def window(self) -> float:
        """Seconds for which a key is certainly remembered."""
        return self._generations.config.window or 0.0

    @property
    def generations(self) -> int:
        """How many whole generations make up the window."""
        return self._generations.count

    @property
    def nbytes(self) -> int:
        """Bytes of all strings, when there is one for each generation."""
        return self._generations.nbytes * (self.generations + 1)

    def __repr__(self) -> str:
        """Show what it was made with."""
        return (
            f"<{type(self).__name__}({self.name!r}, capacity={self.capacity}, "
            f"error_rate={self.error_rate:g}, window={self.window:g}, "
            f"generations={self.generations}): {self.nbytes:,} bytes in Redis>"
        )


class RedisRotatingFilter(_Settings):
    """Seen in the last 7 days? For every process with access to a Redis.

    >>> seen = RedisRotatingFilter.create(redis, "seen", capacity=1_000_000, window="7d")
    >>> seen.add("alice"), "alice" in seen
    (True, True)

    A key added within the window is certainly seen; it is forgotten at the latest after the window
    and one generation more. The time is Redis's own.
    """

    def __init__(self, link: Link, generations: Generations) -> None:
        """Use `create` or `open`."""
        self._link, self._generations = link, generations

    @classmethod
    def create(
        cls,
        redis: Any,
        name: str,
        capacity: int,
        error_rate: float = 0.01,
        *,
        window: str | float | timedelta = "7d",
        generations: int = 4,
        per_generation: int | None = None,
        layout: Layout = "blocked",
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make a filter, or open it if there is just such a one.

        `capacity` is how many distinct keys come in a window. Each generation has room for all of
        them, since they may all come again in each; `per_generation` says that at most so many do.
        """
        config = planned_rotating(
            capacity, error_rate, window, generations, per_generation, layout, hasher, seed
        )
        link = Link(redis)
        return cls(link, link.run(created(Keys(name), config)))

    @classmethod
    def open(cls, redis: Any, name: str) -> Self:
        """Open a filter that is there."""
        link = Link(redis)
        return cls(link, link.run(found(Keys(name))))

    def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely in no generation of the window."""
        return bool(self._link.run(self._generations.add([key]))[0])

    def __contains__(self, key: Key) -> bool:
        """False: definitely not added within the window. True: maybe."""
        return bool(self._link.run(self._generations.contains([key]))[0])

    def add_many(self, keys: Batch) -> Mask:
        """Add every key; True where one is definitely in no generation of the window."""
        return self._link.run(self._generations.add(keys))

    def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return self._link.run(self._generations.contains(keys))

    def delete(self) -> None:
        """Take the filter away, for everybody."""
        self._link.run(self._generations.delete())


class AsyncRedisRotatingFilter(_Settings):
    """Seen in the last 7 days? For every process with access to a Redis, for asyncio.

    >>> seen = await AsyncRedisRotatingFilter.create(redis, "seen", 1_000_000, window="7d")
    >>> await seen.add("alice"), await seen.contains("alice")
    (True, True)
    """

    def __init__(self, link: AsyncLink, generations: Generations) -> None:
        """Use `create` or `open`."""
        self._link, self._generations = link, generations

    @classmethod
    async def create(
        cls,
        redis: Any,
        name: str,
        capacity: int,
        error_rate: float = 0.01,
        *,
        window: str | float | timedelta = "7d",
        generations: int = 4,
        per_generation: int | None = None,
        layout: Layout = "blocked",
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make a filter, or open it if there is just such a one: see `RedisRotatingFilter`."""
        config = planned_rotating(
            capacity, error_rate, window, generations, per_generation, layout, hasher, seed
        )
        link = AsyncLink(redis)
        return cls(link, await link.run(created(Keys(name), config)))

    @classmethod
    async def open(cls, redis: Any, name: str) -> Self:
        """Open a filter that is there."""
        link = AsyncLink(redis)
        return cls(link, await link.run(found(Keys(name))))

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely in no generation of the window."""
        return bool((await self._link.run(self._generations.add([key])))[0])

    async def contains(self, key: Key) -> bool:
        """False: definitely not added within the window. True: maybe."""
        return bool((await self._link.run(self._generations.contains([key])))[0])

    async def add_many(self, keys: Batch) -> Mask:
        """Add every key; True where one is definitely in no generation of the window."""
        return await self._link.run(self._generations.add(keys))

    async def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self._link.run(self._generations.contains(keys))

    async def delete(self) -> None:
        """Take the filter away, for everybody."""
        await self._link.run(self._generations.delete())
