"""Filters whose bits are in Redis, for every process that can reach it."""

from bloomery.integrations.redis.filters.aio import AsyncRedisFilter
from bloomery.integrations.redis.filters.aiocounting import AsyncRedisCountingFilter
from bloomery.integrations.redis.filters.aiorotating import AsyncRedisRotatingFilter
from bloomery.integrations.redis.filters.counting import RedisCountingFilter
from bloomery.integrations.redis.filters.filter import RedisFilter
from bloomery.integrations.redis.filters.rotating import RedisRotatingFilter

__all__ = [
    "AsyncRedisCountingFilter",
    "AsyncRedisFilter",
    "AsyncRedisRotatingFilter",
    "RedisCountingFilter",
    "RedisFilter",
    "RedisRotatingFilter",
]
