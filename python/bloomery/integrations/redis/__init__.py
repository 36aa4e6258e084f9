"""Filters whose bits are in Redis, for every process that can reach it."""

from bloomery.integrations.redis.aio import AsyncRedisFilter
from bloomery.integrations.redis.aiocounting import AsyncRedisCountingFilter
from bloomery.integrations.redis.aiorotating import AsyncRedisRotatingFilter
from bloomery.integrations.redis.counting import RedisCountingFilter
from bloomery.integrations.redis.filter import RedisFilter
from bloomery.integrations.redis.rotating import RedisRotatingFilter

__all__ = [
    "AsyncRedisCountingFilter",
    "AsyncRedisFilter",
    "AsyncRedisRotatingFilter",
    "RedisCountingFilter",
    "RedisFilter",
    "RedisRotatingFilter",
]
