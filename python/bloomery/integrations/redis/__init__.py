"""Filters whose bits are in Redis, for every process that can reach it."""

from bloomery.integrations.redis.aio import AsyncRedisFilter
from bloomery.integrations.redis.filter import RedisFilter

__all__ = ["AsyncRedisFilter", "RedisFilter"]
