"""The shared log where Redis is several servers: Sentinel, and a cluster."""

from __future__ import annotations

import os

from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Placed
from bloomery.service.replication.redis_log.chunks import read_chunks, write_chunks
from bloomery.service.replication.redis_log.layout import LogKeys
from integration.redis_log.writing import PREFIX, Writer, run, writer
from integration.servers import RedisCluster, Sentinel

LOG = LogKeys(PREFIX).log


async def appended(one: Writer, payload: bytes) -> Placed:
    """Append, as another attempt each time, until it is done."""
    while not isinstance(event := await one.send(payload), m.Appended):
        assert isinstance(event, m.Failed | m.Fetched)
    assert one.last is not None
    return one.last


def test_replicas_are_waited_for(redis_sentinel: Sentinel) -> None:
    """An append says whether they have it."""
    hosts = ",".join(f"{host}:{port}" for host, port in redis_sentinel.addresses)
    url = f"redis+sentinel://{hosts}/{redis_sentinel.name}"

    async def body() -> None:
        async with writer(url, min_replicas=2, timeout=30.0) as one:
            first = await one.send()
            assert isinstance(first, m.Appended)
            assert first.replicated
        async with writer(url, min_replicas=3, timeout=0.5) as more:
            more.last = one.last
            event = await more.send()
            assert isinstance(event, m.Appended)
            assert not event.replicated

    run(body())


def test_a_new_master_is_found(redis_sentinel: Sentinel) -> None:
    """By the next actions; what is lost in between fails, and is there once or not at all."""
    hosts = ",".join(f"{host}:{port}" for host, port in redis_sentinel.addresses)
    url = f"redis+sentinel://{hosts}/{redis_sentinel.name}"

    async def body() -> None:
        async with writer(url, timeout=2.0) as one:
            first = await appended(one, b"first")
            old = redis_sentinel.master
            assert old is not None
            old.wait_for_replicas(2)
            redis_sentinel.fail_over()
            await appended(one, b"second")
            fetched = await one.until(lambda: m.Fetch(one.next(), first.mark, True))
            assert isinstance(fetched, m.Fetched)
            assert [one.entry.payload for one in fetched.entries[1:]] == [b"second"]
        data = os.urandom(100_000)
        write_chunks(url, PREFIX, bytes(16), [data])
        assert b"".join(read_chunks(url, PREFIX, bytes(16))) == data

    run(body())


def test_a_cluster(redis_cluster: RedisCluster) -> None:
    """By its URL or that of any of its nodes; when the slot moves, and when its master dies."""
    owner = redis_cluster.master_of(LOG)
    others = [node for node in redis_cluster.masters() if node is not owner]
    by_name = f"redis+cluster://127.0.0.1:{others[0].port}"

    async def body() -> None:
        async with (
            writer(others[0].url) as one,
            writer(by_name, min_replicas=1, timeout=2.0) as two,
        ):
            first = await appended(one, b"first")
            two.last = first
            second = await appended(two, b"second")
            assert second.position > first.position
            data = os.urandom(5_000_000)
            for url in (others[1].url, by_name):
                write_chunks(url, PREFIX, bytes(16), [data])
                assert b"".join(read_chunks(url, PREFIX, bytes(16))) == data
            manifest = m.Manifest((m.Snapshot(bytes(16), second, 2),))
            swap = m.SwapManifest(9, None, manifest, None)
            assert await one.log.perform(swap) == m.Done(9, True)

            redis_cluster.move_slot(LOG, others[1])
            third = await appended(two, b"third")
            fetched = await one.until(lambda: m.Fetch(one.next(), first.mark, True))
            assert isinstance(fetched, m.Fetched)
            assert fetched.entries[1:] == (second, third)

            others[1].wait_for_replicas(1)
            redis_cluster.fail(others[1])
            await appended(two, b"fourth")
            fetched = await one.until(lambda: m.Fetch(one.next(), second.mark, False))
            assert isinstance(fetched, m.Fetched)
            payloads = [one.entry.payload for one in fetched.entries[1:]]
            assert payloads == [b"third", b"fourth"]
            found = await one.until(lambda: m.ReadManifest(one.next()))
            assert isinstance(found, m.ManifestRead)
            assert found.manifest == manifest

    run(body())
