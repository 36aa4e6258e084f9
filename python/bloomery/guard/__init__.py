"""Exact answers: a filter in front of a cache in front of the source of truth."""

from bloomery.guard.aio import AsyncGuard
from bloomery.guard.answer import Answer
from bloomery.guard.decorator import guarded
from bloomery.guard.localcache import LocalCache
from bloomery.guard.rediscache import AsyncRedisCache, RedisCache
from bloomery.guard.redisqueue import AsyncRedisQueue, RedisQueue
from bloomery.guard.sources import CallSource
from bloomery.guard.sql import SqlSource
from bloomery.guard.sqlitequeue import SqliteQueue
from bloomery.guard.sync import Guard

__all__ = [
    "Answer",
    "AsyncGuard",
    "AsyncRedisCache",
    "AsyncRedisQueue",
    "CallSource",
    "Guard",
    "LocalCache",
    "RedisCache",
    "RedisQueue",
    "SqlSource",
    "SqliteQueue",
    "guarded",
]
