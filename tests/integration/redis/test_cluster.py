"""Filters in a Redis Cluster: spread over its nodes, and going on while slots and masters move."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import StoreRefused, StoreUnavailable
from integration.redis.either import Either
from integration.servers import RedisCluster

SHARDS = 12


def bits(shard: int) -> str:
    """The name of a shard's string."""
    return f"{{seen:{shard}}}:bits"


def other(cluster: RedisCluster, key: str) -> Any:
    """A master that does not have this key."""
    return next(one for one in cluster.masters() if one is not cluster.master_of(key))


@pytest.mark.parametrize("how", ["client", "plain URL", "cluster URL", "decoding client"])
def test_shards_on_every_master(either: Either, redis_cluster: RedisCluster, how: str) -> None:
    """A cluster is used by a client or by a URL, also that of one node; answers are a local's."""
    url = redis_cluster.url
    redis: Any = url
    if how == "cluster URL":
        redis = url.replace("redis://", "redis+cluster://").removesuffix("/0")
    elif how != "plain URL":
        redis = either.cluster(url, decode_responses=how == "decoding client")
    made = either.create(redis, "seen", 10_000, shards=SHARDS)
    local = BloomFilter(10_000)
    assert made.add_many(range(3000)) == local.add_many(range(3000))
    assert made.contains_many(range(9000)) == local.contains_many(range(9000))
    homes = {redis_cluster.master_of(bits(shard)).port for shard in range(SHARDS)}
    assert len(homes) == 3
    assert made.info()["estimated_count"] == local.estimated_count
    made.delete()
    assert all(master.run("DBSIZE") == 0 for master in redis_cluster.masters())


def test_a_plain_client_of_a_node(either: Either, redis_cluster: RedisCluster) -> None:
    """A client of one node cannot reach the others, and the error says what to give."""
    with pytest.raises(StoreRefused, match="node of a cluster: give a RedisCluster"):
        either.create(either.client(redis_cluster.url), "seen", 10_000, shards=SHARDS)


def test_slots_that_move(either: Either, redis_cluster: RedisCluster) -> None:
    """A slot that is on its way (ASK) or has gone (MOVED) is found, and nothing is lost."""
    made = either.create(either.cluster(redis_cluster.url), "seen", 10_000, shards=SHARDS)
    made.update(range(1000))
    moving = bits(3)
    to = other(redis_cluster, moving)
    redis_cluster.begin_move(moving, to)
    assert all(made.contains_many(range(1000)))
    local = BloomFilter(10_000)
    local.update(range(1000))
    assert made.add_many(range(500, 2000)) == local.add_many(range(500, 2000))
    redis_cluster.finish_move(moving, to)
    assert all(made.contains_many(range(2000)))
    assert made.add_many(range(1500, 3000)) == local.add_many(range(1500, 3000))
    assert all(either.open(redis_cluster.url, "seen").contains_many(range(3000)))


def test_a_slot_whose_configuration_moves(either: Either, redis_cluster: RedisCluster) -> None:
    """Creating, opening and deleting find a slot that is half moved."""
    made = either.create(either.cluster(redis_cluster.url), "seen", 1000)
    redis_cluster.begin_move("{seen}:config", other(redis_cluster, "{seen}:config"))
    made.add("alice")
    again = either.create(either.cluster(redis_cluster.url), "seen", 1000, ttl=None)
    assert "alice" in again
    again.expire(100)
    assert 90 < again.ttl() <= 100
    again.clear()
    assert "alice" not in made
    again.delete()
    assert all(master.run("DBSIZE") == 0 for master in redis_cluster.masters())


def test_a_master_that_dies(either: Either, redis_cluster: RedisCluster) -> None:
    """While a replica takes over, adding waits and goes on; nothing is lost that Redis kept.

    Redis acknowledges before its replicas have a write, so what it did last before it died may be
    gone, of a filter as of any key. All that replicas had, and all that came later, is there.
    """
    made = either.create(
        either.cluster(redis_cluster.url), "seen", 20_000, shards=SHARDS, timeout=30
    )
    made.update(range(5000))
    for master in redis_cluster.masters():
        master.wait_for_replicas(1)
    heirs: list[Any] = []
    victim = redis_cluster.master_of(bits(0))
    failing = threading.Thread(target=lambda: heirs.append(redis_cluster.fail(victim)))
    failing.start()
    batches: list[range] = []
    while failing.is_alive():
        batches.append(range(5000 + 50 * len(batches), 5050 + 50 * len(batches)))
        made.update(batches[-1])
    failing.join()
    assert heirs, "nobody took over"
    made.update(range(-1000, 0))
    assert all(made.contains_many(range(5000)))
    assert all(made.contains_many(range(-1000, 0)))
    lost = [number for number, one in enumerate(batches) if not all(made.contains_many(one))]
    assert lost == [*range(min(lost, default=0), max(lost, default=-1) + 1)], "here and there"
    assert len(lost) < len(batches)


def test_a_cluster_that_stays_down(either: Either, redis_cluster: RedisCluster) -> None:
    """Without a replica to take over, the error comes when the time is up."""
    made = either.create(either.cluster(redis_cluster.url), "seen", 1000, timeout=2)
    victim = redis_cluster.master_of("{seen}:bits")
    for replica in redis_cluster.replicas_of(victim):
        replica.kill()
    victim.kill()
    with pytest.raises(StoreUnavailable, match="within 2 s"):
        made.add("alice")
    with pytest.raises(StoreUnavailable):
        made.contains_many(["alice"])
