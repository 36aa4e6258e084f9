"""Filters in a Redis that Sentinels watch: who is the master is asked again when it changes."""

from __future__ import annotations

from typing import Any

import pytest
import redis.asyncio.sentinel
import redis.sentinel

from bloomery.errors import InvalidParameter, StoreUnavailable
from integration.redis.either import Either
from integration.servers import Sentinel, wait_until


def watching(either: Either, sentinel: Sentinel, **options: Any) -> Any:
    """redis-py's Sentinel of the right kind; its clients are closed at the end."""
    kinds: Any = redis.asyncio.sentinel if either.loop else redis.sentinel
    made = kinds.Sentinel(sentinel.addresses, socket_timeout=5, **options)
    either.clients += made.sentinels
    return made


def test_a_failover(either: Either, redis_sentinel: Sentinel) -> None:
    """After a failover the next call works, by a client and by a URL."""
    client = watching(either, redis_sentinel).master_for(redis_sentinel.name)
    either.clients.append(client)
    hosts = ",".join(f"{host}:{port}" for host, port in redis_sentinel.addresses)
    url = f"redis+sentinel://{hosts}/{redis_sentinel.name}"
    made = either.create(client, "seen", 10_000, timeout=30)
    by_url = either.open(url, "seen", timeout=30)
    made.update(range(1000))
    assert all(by_url.contains_many(range(1000)))
    assert redis_sentinel.name in repr(by_url.made)
    master = redis_sentinel.master
    assert master is not None
    master.wait_for_replicas(2)
    redis_sentinel.fail_over()
    assert by_url.add_many(range(1000, 1100)).count(True) > 90
    made.update(range(1100, 1200))
    assert all(made.contains_many(range(1200)))


def test_a_master_that_becomes_a_replica(either: Either, redis_sentinel: Sentinel) -> None:
    """A connection to the old master, which lives on and takes no writes, leads to the new one."""
    client = watching(either, redis_sentinel).master_for(redis_sentinel.name)
    either.clients.append(client)
    made = either.create(client, "seen", 10_000, timeout=30)
    made.update(range(1000))
    old = redis_sentinel.master
    assert old is not None
    old.wait_for_replicas(2)

    def begun() -> bool:
        """A Sentinel that has not heard from a replica for a moment finds none good enough."""
        try:
            redis_sentinel.watchers[0].run("SENTINEL", "FAILOVER", redis_sentinel.name)
        except redis.ResponseError:
            return False
        return True

    assert wait_until(begun)
    assert wait_until(lambda: redis_sentinel.master not in (old, None))
    new = redis_sentinel.master
    assert new is not None
    old.run("REPLICAOF", *new.address)  # as Sentinels do ten seconds later
    made.update(range(1000, 1100))
    assert all(made.contains_many(range(1100)))
    assert new.run("GET", "{seen}:bits") != bytes(made.nbytes)


def test_what_is_no_master(either: Either, redis_sentinel: Sentinel) -> None:
    """Sentinels themselves, replicas, and a service that nobody knows are clear errors."""
    sentinel = watching(either, redis_sentinel)
    with pytest.raises(InvalidParameter, match="master_for"):
        either.open(sentinel, "seen")
    replica = sentinel.slave_for(redis_sentinel.name)
    either.clients.append(replica)
    with pytest.raises(InvalidParameter, match="for replicas, which may be behind"):
        either.open(replica, "seen")
    host, port = redis_sentinel.addresses[0]
    with pytest.raises(StoreUnavailable, match="No master found"):
        either.open(f"redis+sentinel://{host}:{port}/nobody", "seen", timeout=2)
