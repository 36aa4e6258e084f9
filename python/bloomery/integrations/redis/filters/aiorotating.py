"""`AsyncRedisRotatingFilter`: a filter in Redis that forgets, for asyncio."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bloomery.integrations.redis.bits.generations import (
    Generations,
    create_rotating,
    open_rotating,
    planned_rotating,
)
from bloomery.integrations.redis.filters.aiobase import AsyncBaseRedisFilter
from bloomery.integrations.redis.filters.properties import RotatingProperties
from bloomery.integrations.redis.naming import Keys
from bloomery.suggestions import known_keywords

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Hasher, Layout


class AsyncRedisRotatingFilter(RotatingProperties, AsyncBaseRedisFilter[Generations]):
    """Seen in the last 7 days? For every process with access to a Redis.

    >>> seen = await AsyncRedisRotatingFilter.create(redis, "seen", 1_000_000, window="7d")
    >>> await seen.add("alice"), await seen.contains("alice")
    (True, True)

    A key added within the window is certainly seen; it is forgotten at the latest after the window
    and one generation more. The time is Redis's own. New is a key that no generation has.
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
        window: str | float | timedelta = "7d",
        generations: int = 4,
        per_generation: int | None = None,
        layout: Layout = "blocked",
        hasher: Hasher = "xxh3",
        seed: int = 0,
        ttl: float | None = None,
        timeout: float = 5.0,
    ) -> Self:
        """Make a filter, or open it if an identical one is there; FilterExists if it is another.

        `capacity` is how many distinct keys come in a window. Each generation has room for all of
        them, since they may all come again in each; `per_generation` says that at most so many do.
        `ttl`: the whole filter ends after so many seconds.
        """
        config = planned_rotating(
            capacity, error_rate, window, generations, per_generation, layout, hasher, seed
        )
        return await cls._connect(redis, timeout, create_rotating(Keys(name), config, ttl))

    @classmethod
    async def open(cls, redis: Any, name: str, *, timeout: float = 5.0) -> Self:
        """Open a filter that is there; UnknownFilter if there is none."""
        return await cls._connect(redis, timeout, open_rotating(Keys(name)))
