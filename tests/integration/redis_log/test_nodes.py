"""The core over a real Redis: nodes that write at once, and a Redis that loses what it had."""

from __future__ import annotations

import asyncio
from random import Random

from integration.redis_log.small_node import SmallNode
from integration.redis_log.writing import run
from integration.servers import RedisServer, StartRedis
from waiting import wait_until_async


def agree(*nodes: SmallNode) -> bool:
    """Whether all are at one place."""
    cores = [node.core for node in nodes]
    same = len({core.history.at for core in cores}) == 1 and all(core.ready for core in cores)
    if same:
        assert len({node.replica.dump() for node in nodes}) == 1
        assert len({core.ledger.to_bytes() for core in cores}) == 1
    return same


async def load(node: SmallNode, seed: int, new: dict[int, int], seconds: int = 40) -> None:
    """Add keys that others add too; count who was told that one is new."""
    random = Random(seed)
    for _ in range(seconds):
        keys = random.sample(range(400), 5)
        found = await node.write(f"A a {' '.join(map(str, keys))}")
        assert found is not None, node.log.problem
        for key, is_new in zip(keys, found, strict=True):
            new[key] = new.get(key, 0) + is_new


def test_nodes_write_at_once(redis_server: RedisServer) -> None:
    """Each key is new to one of them, all copies are equal, and strong reads see all; also those of
    a node that comes later, and loads a snapshot."""

    async def body() -> None:
        url, new = redis_server.url, dict[int, int]()
        async with SmallNode(url) as one, SmallNode(url) as two, SmallNode(url) as three:
            nodes = (one, two, three)
            await asyncio.gather(*(load(node, n, new) for n, node in enumerate(nodes)))
            assert set(new.values()) == {1}
            assert all(await asyncio.gather(*(one.has("a", key) for key in new)))
            assert not await two.has("a", 400)
            assert await wait_until_async(lambda: agree(*nodes))
            assert await wait_until_async(lambda: redis_server.run("EXISTS", "{test}:manifest"))
            async with SmallNode(url) as late:
                assert await wait_until_async(lambda: agree(*nodes, late))
                assert late.loads == 1
                assert all(await asyncio.gather(*(late.has("a", key) for key in new)))

    run(body())


def test_what_redis_loses_is_put_back(redis_server: RedisServer) -> None:
    """It falls back to what a replica had, then loses all: the nodes bring it back."""

    async def body() -> None:
        url, new = redis_server.url, dict[int, int]()
        async with SmallNode(url) as one, SmallNode(url) as two:
            nodes = (one, two)
            await asyncio.gather(*(load(node, n, new, 10) for n, node in enumerate(nodes)))
            assert await wait_until_async(lambda: agree(*nodes))
            with redis_server.client() as client:
                earlier = {key: client.dump(key) for key in client.scan_iter()}
                await one.write("A a 1000 1001")
                await two.write("A a 1002")
                assert await wait_until_async(lambda: agree(*nodes))
                with client.pipeline() as pipeline:  # as a failover: at once
                    pipeline.flushall()
                    for key, value in earlier.items():
                        pipeline.restore(key, 0, value)
                    pipeline.execute()
            assert await wait_until_async(
                lambda: redis_server.run("XLEN", "{test}:log") and agree(*nodes)
            )
            assert await one.write("A a 1000 1001 1002") == (False,) * 3
            assert await two.has("a", 1001)
            assert one.loads + two.loads == 0  # nobody had to load anything

            redis_server.run("FLUSHALL")
            assert await two.write("A a 1003 1000") == (True, False)
            assert await wait_until_async(lambda: agree(*nodes))
            async with SmallNode(url) as late:
                assert await wait_until_async(lambda: agree(*nodes, late))
                assert all([await late.has("a", key) for key in (*new, 1000, 1002, 1003)])

    run(body())


def test_a_full_redis_and_a_node(start_redis: StartRedis) -> None:
    """Who writes is told at once; reads go on; and so do writes when there is room."""
    server = start_redis(maxmemory="4mb", maxmemory_policy="noeviction")

    async def body() -> None:
        async with SmallNode(server.url) as one:
            assert await one.write("A a 1") == (True,)
            server.run("CONFIG", "SET", "maxmemory", "1kb")
            assert await one.write("A a 2") is None
            assert await one.write("A a 1") is None  # nor what changes nothing
            assert await one.has("a", 1) is True
            assert await one.has("a", 2) is False
            server.run("CONFIG", "SET", "maxmemory", "0")
            assert await one.write("A a 2") == (True,)

    run(body())
