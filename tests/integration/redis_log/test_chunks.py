"""Snapshots in Redis: written by whoever has a copy, read by whoever needs one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.redis_log.chunks import (
    SnapshotDamaged,
    read_chunks,
    write_chunks,
)
from bloomery.service.replication.redis_log.layout import CHUNK, LogKeys
from integration.redis_log.writing import PREFIX, run, writer
from integration.servers import RedisServer, StartRedis

ID, OTHER = b"0123456789abcdef", b"another snapshot"
KEYS = LogKeys(PREFIX)


def saved(server: RedisServer, data: bytes, id: bytes = ID) -> None:
    """Write a snapshot."""
    assert write_chunks(server.url, PREFIX, id, [data]) == len(data)


def loaded(server: RedisServer, id: bytes = ID) -> bytes:
    """Read one."""
    return b"".join(read_chunks(server.url, PREFIX, id))


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1], [CHUNK], [CHUNK + 1], [3, CHUNK - 3], [5 * CHUNK // 2, 7, CHUNK], [1000] * 50],
    ids=str,
)
def test_parts_of_any_size(sizes: list[int], redis_server: RedisServer) -> None:
    """What was written is read, however it was cut."""
    parts = [os.urandom(size) for size in sizes]
    assert write_chunks(redis_server.url, PREFIX, ID, iter(parts)) == sum(sizes)
    assert loaded(redis_server) == b"".join(parts)


def test_a_forked_process_writes(redis_server: RedisServer) -> None:
    """A copy of the process, as it was at a moment, writes the snapshot of that moment."""
    data = bytearray(os.urandom(CHUNK + 5))
    before = bytes(data)
    child = os.fork()
    if not child:
        code = 1
        try:
            write_chunks(redis_server.url, PREFIX, ID, [data])
            code = 0
        finally:
            os._exit(code)
    data[:] = bytes(len(data))
    assert os.waitpid(child, 0)[1] == 0
    assert loaded(redis_server) == before


def test_chunks_go_unless_they_are_named(redis_server: RedisServer) -> None:
    """They have a time to live, which a swap of the manifest ends; the one after next drops them,
    and trims the log before the older of the two that are named."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            ids = [bytes([n]) * 16 for n in range(4)]
            made: list[m.Snapshot] = []
            for id in ids:
                await one.append()
                made.insert(0, m.Snapshot(id, await one.append(b"last"), 5))
                saved(redis_server, os.urandom(CHUNK + 1), id)
                names = [KEYS.description(id), KEYS.part(id, 0), KEYS.part(id, 1)]
                assert all(redis_server.run("TTL", name) > 0 for name in names)
                manifest = m.Manifest(tuple(made[:2]))
                older = made[1] if made[1:] else None
                trim = older.mark.position if older else None
                swap = m.SwapManifest(9, older.id if older else None, manifest, trim)
                assert await one.log.perform(swap) == m.Done(9, True)
                assert await one.log.perform(swap) == m.Done(9, False)
                assert all(redis_server.run("TTL", name) == -1 for name in names)
                assert await one.log.perform(m.ReadManifest(8)) == m.ManifestRead(8, manifest)
            left = set(redis_server.run("KEYS", "*:chunk:*"))
            assert left == {
                name
                for id in ids[2:]
                for name in (KEYS.description(id), KEYS.part(id, 0), KEYS.part(id, 1))
            }
            assert (await one.fetch()).entries[0] == made[1].last

    run(body())


@pytest.mark.parametrize("missing", [KEYS.description(ID), KEYS.part(ID, 0), KEYS.part(ID, 2)])
def test_what_is_missing_is_seen(missing: bytes, redis_server: RedisServer) -> None:
    """By who loads it, and by who would name it."""

    async def body() -> None:
        saved(redis_server, os.urandom(2 * CHUNK + 1))
        redis_server.run("DEL", missing)
        with pytest.raises(SnapshotDamaged):
            loaded(redis_server)
        async with writer(redis_server.url) as one:
            manifest = m.Manifest((m.Snapshot(ID, await one.append(), 1),))
            swap = m.SwapManifest(1, None, manifest, None)
            assert await one.log.perform(swap) == m.Done(1, False)
            redis_server.run("DEL", KEYS.log)
            assert await one.log.perform(m.Restore(2, manifest, None)) == m.Done(2, False)

    run(body())


def damages(server: RedisServer) -> Iterator[str]:
    """Change a snapshot of three chunks, in one way after the other."""
    names = [KEYS.part(ID, number) for number in range(3)]
    server.run("SETRANGE", names[1], 1000, b"?!")
    yield "a byte"
    server.run("SET", names[1], server.run("GET", names[0]))
    yield "another chunk in its place"
    server.run("APPEND", names[2], b"more")
    yield "a longer chunk"
    server.run("SET", names[2], b"")
    yield "a shorter one"
    for number, name in enumerate(names):
        server.run("SET", name, server.run("GET", KEYS.part(OTHER, number)))
    yield "chunks of another snapshot"
    description = server.run("GET", KEYS.description(OTHER))
    server.run("SET", KEYS.description(ID), description)
    yield "all of another snapshot"
    server.run("SET", KEYS.description(ID), b"BLD1" + bytes(20))
    yield "a description that is none"
    server.run("SET", KEYS.description(ID), bytes(10_000_000))
    yield "a huge one"
    server.run("DEL", names[0])
    server.run("RPUSH", names[0], b"x")
    server.run("SET", KEYS.description(ID), description)
    yield "a list"


def test_what_was_changed_is_seen(redis_server: RedisServer) -> None:
    """Whatever somebody did to it."""
    saved(redis_server, os.urandom(2 * CHUNK + 100), OTHER)
    changes = damages(redis_server)
    for _ in range(9):
        saved(redis_server, os.urandom(2 * CHUNK + 100))
        what = next(changes)
        with pytest.raises(SnapshotDamaged if what != "a list" else errors.StoreRefused):
            loaded(redis_server)
        redis_server.run("DEL", *[KEYS.part(ID, number) for number in range(3)])


@pytest.mark.parametrize("change", [("DEL",), ("APPEND", b"x"), ("SET", b"short")])
def test_what_changes_while_it_is_read(change: tuple[Any, ...], redis_server: RedisServer) -> None:
    """A chunk is dropped, or written again, behind those that were read already."""
    saved(redis_server, os.urandom(8 * CHUNK))
    chunks = read_chunks(redis_server.url, PREFIX, ID)
    next(chunks)
    name, *values = change
    redis_server.run(name, KEYS.part(ID, 7), *values)
    with pytest.raises(SnapshotDamaged):
        list(chunks)


def test_redis_stops_while_it_is_read(start_redis: StartRedis) -> None:
    """Who reads is told so in time."""
    server = start_redis()
    saved(server, os.urandom(8 * CHUNK))
    chunks = read_chunks(server.url, PREFIX, ID, timeout=1.0)
    next(chunks)
    server.freeze()
    with pytest.raises(errors.StoreUnavailable):
        list(chunks)
    server.thaw()
    chunks = read_chunks(server.url, PREFIX, ID)
    next(chunks)
    server.kill()
    with pytest.raises(errors.StoreUnavailable):
        list(chunks)


def test_an_empty_redis_is_restored(redis_server: RedisServer) -> None:
    """From a snapshot, with its last entry where that was; a second one comes too late, and its
    chunks are deleted, those of the first are not."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            await one.append()
            last = await one.append(b"last")
            redis_server.run("FLUSHALL")
            saved(redis_server, b"copy")
            manifest = m.Manifest((m.Snapshot(ID, last, 2),))
            assert await one.log.perform(m.Restore(1, manifest, None)) == m.Done(1, True)
            assert await one.log.perform(m.Restore(2, manifest, None)) == m.Done(2, False)
            saved(redis_server, b"copy", OTHER)
            assert await one.log.perform(m.DropSnapshot(3, OTHER)) == m.Done(3, True)
            assert await one.log.perform(m.DropSnapshot(4, ID)) == m.Done(4, True)
            names = [KEYS.description(ID), KEYS.part(ID, 0)]
            assert set(redis_server.run("KEYS", "*:chunk:*")) == set(names)
            assert redis_server.run("TTL", KEYS.part(ID, 0)) == -1
            fetched = await one.fetch()
            assert (fetched.entries, fetched.end) == ((last,), last.mark)
            await one.append()

    run(body())


def test_redis_is_away_or_full(start_redis: StartRedis) -> None:
    """Who writes or reads is told which."""
    server = start_redis(maxmemory="10mb", maxmemory_policy="noeviction")
    with pytest.raises(errors.StoreRefused, match="maxmemory"):
        saved(server, os.urandom(8 * CHUNK))
    with pytest.raises(SnapshotDamaged):
        loaded(server)
    server.run("FLUSHALL")
    saved(server, b"copy")
    server.kill()
    with pytest.raises(errors.StoreUnavailable):
        loaded(server)
    with pytest.raises(errors.StoreUnavailable):
        saved(server, b"x")
