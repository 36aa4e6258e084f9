"""Exact answers: a filter in front of a cache in front of the source of truth."""

from bloomery.guard.aio import AsyncGuard
from bloomery.guard.answer import Answer
from bloomery.guard.caches.aioredis import AsyncRedisCache
from bloomery.guard.caches.local import LocalCache
from bloomery.guard.caches.redis import RedisCache
from bloomery.guard.decorator import guarded
from bloomery.guard.guard import Guard
from bloomery.guard.queues.aioredis import AsyncRedisQueue
from bloomery.guard.queues.redis import RedisQueue
from bloomery.guard.queues.sqlite import SqliteQueue
from bloomery.guard.sources.functions import CallSource
from bloomery.guard.sources.sql.source import SqlSource

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
