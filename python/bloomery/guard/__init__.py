"""Exact answers: a filter in front of a cache in front of the source of truth.

What a guard does is written as flows (`driver`), once for threads and for asyncio: `lookups`,
`writes`, `rebuilding` and `queues/draining` act on one `Core`, which holds the parts and what is
under way between them. `AsyncGuard` (`aio`) drives the flows on an event loop; `Guard` is generated
from it by scripts/unasync.py. What differs is in two places: how a call is waited for (`driver`),
and what drains the queue in the background (`queues/drainer`).

Three rules keep the answers right. A key is in the filter before it is in the source, and leaves
the source first (`writes`). An answer is cached only if no write of its key came since the source
was asked (`caches/resilient`). Writes of one key come one after the other: in a process by its lock
(`core.Writers`), among processes, while the source is down, in the order of the queue.
"""

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
