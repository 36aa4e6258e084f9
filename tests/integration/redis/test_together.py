"""One filter used by many at once: threads, tasks, processes, and those who give up half-way."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio

from bloomery import BloomFilter
from bloomery.errors import FilterExists, UnknownFilter
from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter
from integration.redis.either import Either
from integration.servers import RedisCluster, RedisServer


def test_threads(redis_server: RedisServer) -> None:
    """Threads share a filter: every key is there, and each is new to exactly one or to nobody."""
    with RedisFilter.create(redis_server.url, "seen", 20_000, 1e-6, shards=2) as made:
        rounds = [range(number * 500, number * 500 + 1000) for number in range(12)]
        with ThreadPoolExecutor(6) as threads:
            new = list(threads.map(made.add_many, [list(keys) for keys in rounds]))
            assert all(all(found) for found in threads.map(made.contains_many, rounds))
        times = [0] * 6500
        for keys, found in zip(rounds, new, strict=True):
            for key, first in zip(keys, found, strict=True):
                times[key] += first
        # Two who set different bits of a key at once can both be told that it is new.
        assert min(times) >= 1


def test_tasks(redis_server: RedisServer) -> None:
    """Tasks share a filter and its connections."""

    async def main() -> None:
        async with await AsyncRedisFilter.create(redis_server.url, "seen", 20_000) as made:
            rounds = [list(range(number * 500, number * 500 + 1000)) for number in range(12)]
            await asyncio.gather(*map(made.add_many, rounds))
            found = await asyncio.gather(*map(made.contains_many, rounds))
            assert all(map(all, found))

    asyncio.run(main())


async def _cancelled(client: Any) -> None:
    made = await AsyncRedisFilter.create(client, "seen", 20_000, 1e-6, shards=4)
    await made.add_many(range(5000))
    odd, absent = list(range(1, 3000, 2)), list(range(5000, 8000))
    for delay in (0.0, 0.001, 0.003, 0.01):
        given_up = [asyncio.create_task(made.contains_many(absent)) for _ in range(3)]
        await asyncio.sleep(delay)
        for task in given_up:
            task.cancel()
        # Whoever has a connection next must not read the answers of those.
        found = await asyncio.gather(*(made.contains_many(odd) for _ in range(3)))
        assert all(map(all, found))
        await asyncio.gather(*given_up, return_exceptions=True)
        assert await client.ping()


def test_tasks_that_are_cancelled(redis_server: RedisServer) -> None:
    """A task cancelled while it reads leaves no answers behind for the next."""

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            await _cancelled(client)

    asyncio.run(main())


def test_tasks_that_are_cancelled_in_a_cluster(redis_cluster: RedisCluster) -> None:
    """The same with connections to several nodes."""

    async def main() -> None:
        async with redis.asyncio.RedisCluster.from_url(redis_cluster.url) as client:
            await _cancelled(client)

    asyncio.run(main())


class Stopped(BaseException):
    """As Ctrl-C is."""


def test_a_thread_that_is_interrupted(redis_server: RedisServer) -> None:
    """What is raised in the middle of reading leaves no answers behind for the next call."""
    with redis_server.client() as client:
        made = RedisFilter.create(client, "seen", 20_000)
        made.update(range(1000))
        connection = client.connection_pool.get_connection()
        client.connection_pool.release(connection)
        parser = connection._parser
        left, read = [3], parser.read_from_socket

        def interrupted(**options: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise Stopped
            return read(**options)

        parser.read_from_socket = interrupted
        with pytest.raises(Stopped):
            made.contains_many(range(5000, 12_000))
        assert all(made.contains_many(range(1000)))
        assert client.ping()


def _child(made: RedisFilter, pipe: Any) -> None:
    found = made.contains_many(range(1000))
    made.update(range(1000, 1100))
    pipe.send(all(found))
    pipe.close()


def test_a_fork(redis_server: RedisServer) -> None:
    """A child uses a filter of before the fork, with connections of its own."""
    with RedisFilter.create(redis_server.url, "seen", 20_000) as made:
        made.update(range(1000))
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_child, args=(made, theirs))
        child.start()
        for _ in range(20):
            assert all(made.contains_many(range(1000)))
        assert ours.recv()
        child.join()
        ours.close()
        theirs.close()
        assert all(made.contains_many(range(1100)))


def test_creating_at_once(redis_server: RedisServer) -> None:
    """Many create one filter at the same time and add to it at once: nobody's keys are lost."""
    for turn in range(10):
        start = threading.Barrier(6)

        def work(number: int, turn: int = turn, start: threading.Barrier = start) -> None:
            start.wait()
            with RedisFilter.create(redis_server.url, f"seen-{turn}", 5000, shards=3) as made:
                made.update(range(number * 100, number * 100 + 100))

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, range(6)))
        with RedisFilter.open(redis_server.url, f"seen-{turn}") as made:
            assert all(made.contains_many(range(600)))


def test_creating_different_ones_at_once(redis_server: RedisServer) -> None:
    """Of those who want different filters of one name, one gets it and the others are told."""
    for turn in range(10):
        start = threading.Barrier(4)

        def work(number: int, turn: int = turn, start: threading.Barrier = start) -> int | None:
            start.wait()
            try:
                with RedisFilter.create(redis_server.url, f"seen-{turn}", 1000 + number) as made:
                    return made.capacity
            except FilterExists:
                return None

        with ThreadPoolExecutor(4) as threads:
            got = [found for found in threads.map(work, range(4)) if found is not None]
        with RedisFilter.open(redis_server.url, f"seen-{turn}") as made:
            assert got == [made.capacity]


def test_a_creator_that_died(either: Either, redis_server: RedisServer) -> None:
    """A configuration without strings, or with some of them, is completed by the next creator."""
    either.create(redis_server.url, "seen", 1000, shards=2).add("alice")
    with redis_server.client() as client:
        config: Any = client.get("{seen}:config")
        client.set("{seen}:config", config.replace(b'"made": true', b'"made": false'))
        client.delete("{seen:1}:bits")
    with pytest.raises(UnknownFilter):
        either.open(redis_server.url, "seen").update(range(100))
    made = either.create(redis_server.url, "seen", 1000, shards=2)
    made.update(range(100))
    assert all(made.contains_many(range(100)))
    local = BloomFilter(1000)
    local.update(range(100))
    assert made.info()["estimated_count"] in range(95, 105)


def test_remains_of_another_filter(either: Either, redis_server: RedisServer) -> None:
    """A string that some other filter left, longer or shorter, is not taken over."""
    for size in (10, 10_000):
        redis_server.run("SETRANGE", "{seen}:bits", size, b"\xff")
        made = either.create(redis_server.url, "seen", 1000)
        assert not any(made.contains_many(range(100)))
        made.delete()


def test_time_to_live(either: Either, redis_server: RedisServer) -> None:
    """A filter ends when it was said to, and one made anew after it is empty and lives on."""
    made = either.create(redis_server.url, "seen", 1000, shards=2, ttl=2)
    made.add("alice")
    left = made.ttl()
    assert left is None or 0 < left <= 2
    again = either.create(redis_server.url, "seen", 1000, shards=2, ttl=100)  # is there: stays so
    with redis_server.client() as client:
        while client.exists("{seen}:config"):
            pass
        # What is left of it lives a second longer; a new one begins without its keys.
        anew = either.create(redis_server.url, "seen", 1000, shards=2)
        assert "alice" not in anew
        anew.add("bob")
        assert [client.pttl(name) for name in client.scan_iter()] == [-1, -1, -1]
    assert anew.ttl() is None
    assert "bob" in again
    anew.expire(50)
    assert 40 < anew.ttl() <= 50
    anew.expire(None)
    assert anew.info()["ttl"] is None
