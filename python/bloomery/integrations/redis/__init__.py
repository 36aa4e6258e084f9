"""Filters whose bits are in Redis, for every process that can reach it.

    filters/    the classes that users have; those for threads are generated from those for asyncio
    bits/       what such a filter asks Redis, with bits or counters of ours in strings
    bf/         the same where the server has filters of its own (BF.*)
    transfer/   whole filters between this process and Redis: pushed, copied, merged
    wire/       round trips: packed commands, replies, connections, retries after a failover

What a filter does is written once, as a `Flow`: a generator that yields the commands of a round
trip and is sent the replies. A link (`wire/link`, `wire/aiolink`) makes the trips, to one server,
a cluster or the master that Sentinels name; `bloomery/redis_client.py` makes the clients. So
`RedisFilter.add_many(keys)` is `filters/base` (which calls) -> `bits/strings` (which hashes the
keys, and packs commands for each shard) -> `wire/link` (which sends them, reads and retries).
"""

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
