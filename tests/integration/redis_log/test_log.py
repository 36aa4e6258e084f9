"""The shared log at one Redis: waiting for news, lost answers, a full Redis, foreign bytes."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, LogEntry, Placed, Position
from bloomery.service.replication.redis_log.chunks import read_chunks, write_chunks
from integration.redis_log.dropping import DeafWire
from integration.redis_log.writing import PREFIX, run, writer
from integration.servers import RedisServer, StartRedis
from unit.service.certificates import Pairs
from waiting import wait_until_async

LOG = f"{{{PREFIX}}}:log"


def blocked(server: RedisServer) -> int:
    """How many clients wait for something to come."""
    return int(server.info("clients")["blocked_clients"])


def test_news_wake_who_waits(redis_server: RedisServer) -> None:
    """A fetch that waits is answered by what another node appends, and keeps nobody else from
    appending."""

    async def body() -> None:
        url = redis_server.url
        async with writer(url, wait=60.0) as one, writer(url) as other:
            first = await one.append()
            await one.fetch(first.mark, wait=True)  # over a new connection it only looks
            news = asyncio.ensure_future(one.fetch(first.mark, wait=True))
            assert await wait_until_async(lambda: blocked(redis_server))
            event = await one.log.perform(m.Fetch(5, first.mark, False))
            assert isinstance(event, m.Fetched)  # by another connection
            other.last = first
            theirs = await other.append(b"theirs")
            fetched = await news
            assert [one.mark for one in fetched.entries] == [first.mark, theirs.mark]
            assert fetched.entries[1] == theirs
            assert fetched.end == theirs.mark

    run(body())


def test_a_wait_ends(redis_server: RedisServer) -> None:
    """By itself after a while; and at once when it is cancelled, after which all goes on."""

    async def body() -> None:
        async with writer(redis_server.url, wait=0.05) as one:
            first = await one.append()
            for _ in ("it looks", "it waits"):
                assert (await one.fetch(first.mark, wait=True)).end == first.mark
        async with writer(redis_server.url, wait=60.0) as one:
            assert (await one.fetch(first.mark, wait=True)).end == first.mark
            waiting = asyncio.ensure_future(one.fetch(first.mark, wait=True))
            assert await wait_until_async(lambda: blocked(redis_server))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await wait_until_async(lambda: not blocked(redis_server))
            one.last = first
            await one.append()
            assert len((await one.fetch(first.mark, wait=True)).entries) == 2

    run(body())


def test_an_append_is_sent_once(redis_server: RedisServer) -> None:
    """The answer is lost, or the connection: the node is told so, and Redis has it once."""

    async def body() -> None:
        async with (
            DeafWire.to(redis_server.port) as wire,
            writer(wire.url, timeout=2.0) as one,
        ):
            first = await one.append(b"first")
            wire.deaf = True
            wire.asked = b""
            answer = await one.send(b"in the dark")
            assert answer == m.Failed(one.ref)
            assert "2 s" in one.log.problem
            assert wire.asked.count(b"in the dark") == 1
            wire.deaf = False
            fetched = await one.fetch(first.mark)
            assert [one.entry.payload for one in fetched.entries[1:]] == [b"in the dark"]
            one.last = fetched.entries[-1]

            await one.append(b"well")
            wire.deaf = True
            wire.asked = b""
            sent = asyncio.ensure_future(one.send(b"cut off"))
            assert await wait_until_async(lambda: redis_server.run("XLEN", LOG) == 4)
            wire.cut()
            assert isinstance(await sent, m.Failed)
            wire.deaf = False
            assert wire.asked.count(b"cut off") == 1
            fetched = await one.fetch(first.mark)
            assert [one.entry.payload for one in fetched.entries[3:]] == [b"cut off"]
            assert one.log.problem == ""

    run(body())


def test_a_loss_fails_all_that_waits(redis_server: RedisServer) -> None:
    """Several questions are on their way when the connection breaks: each of them fails."""

    async def body() -> None:
        async with DeafWire.to(redis_server.port) as wire, writer(wire.url) as one:
            first = await one.append()
            await one.fetch(first.mark)
            wire.deaf = True
            wire.asked = b""
            asked = [one.log.perform(m.Fetch(ref, first.mark, False)) for ref in range(100, 110)]
            waiting = asyncio.gather(*asked)
            assert await wait_until_async(lambda: wire.asked.count(b"ROLE") == 10)
            wire.cut()
            assert await waiting == [m.Failed(ref) for ref in range(100, 110)]

    run(body())


def test_scripts_that_redis_forgot(redis_server: RedisServer) -> None:
    """They are sent along, once."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            await one.append()
            redis_server.run("SCRIPT", "FLUSH")
            await one.append()
            assert len((await one.fetch()).entries) == 2

    run(body())


def test_a_full_redis_refuses(start_redis: StartRedis) -> None:
    """Nothing was done, and the node knows it: it reads on, and writes again when there is room."""
    server = start_redis(maxmemory="3mb", maxmemory_policy="noeviction")

    async def body() -> None:
        async with writer(server.url) as one:
            for _ in range(1000):
                before = one.last
                event = await one.send(bytes(10_000))
                if isinstance(event, m.Refused):
                    break
            assert isinstance(event, m.Refused)
            assert "OOM" in event.reason
            assert before is not None
            fetched = await one.fetch(before.mark)
            assert fetched.end == before.mark
            server.run("CONFIG", "SET", "maxmemory", "0")
            await one.append()

    run(body())


def test_too_few_replicas_for_redis(start_redis: StartRedis) -> None:
    """Redis itself may be told to refuse writes without replicas."""
    server = start_redis(min_replicas_to_write="1")

    async def body() -> None:
        async with writer(server.url) as one:
            event = await one.send()
            assert isinstance(event, m.Refused)
            assert "NOREPLICAS" in event.reason

    run(body())


def test_an_entry_that_is_too_large(redis_server: RedisServer) -> None:
    """It is refused before it is sent."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            await one.append()
            assert isinstance(await one.send(bytes(33 << 20)), m.Refused)

    run(body())


def test_large_answers_come_in_parts(redis_server: RedisServer) -> None:
    """Many megabytes behind a mark: each answer has some, and says where the log ends."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            first = await one.append()
            for _ in range(20):
                await one.append(bytes(1 << 20))
            assert one.at is not None
            at, found, answers = first.mark, 0, 0
            while at != one.at:
                fetched = await one.fetch(at)
                assert fetched.end == one.at
                size = sum(len(one.entry.payload) for one in fetched.entries)
                assert 0 < size <= 9 << 20
                found += len(fetched.entries) - 1
                at = fetched.entries[-1].mark
                answers += 1
            assert (found, answers > 2) == (20, True)
            again = await one.send(after=first.mark)
            assert isinstance(again, m.Appended)
            assert not again.complete

    run(body())


def test_many_entries_are_put_back(redis_server: RedisServer) -> None:
    """Also more than one script is given."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            first = await one.append()
            for _ in range(12):
                await one.append(bytes(1 << 20))
            lost = tuple(one.applied[1:])
            for placed in lost:
                redis_server.run("XDEL", LOG, f"{placed.position.ms}-{placed.position.seq}")
            # Redis remembers what it had: as after a failover, it must not.
            redis_server.run("XSETID", LOG, f"{first.position.ms}-{first.position.seq}")
            action = m.PutBack(90, first.mark, lost)
            assert await one.log.perform(action) == m.Done(90, True)
            assert await one.log.perform(action) == m.Done(90, False)
            fetched = await one.fetch(lost[9].mark)
            assert fetched.entries[1:] == lost[10:]
            await one.append()

    run(body())


def test_a_server_that_became_a_replica(start_redis: StartRedis) -> None:
    """It would answer from what it has got so far: it is not asked."""
    old, new = start_redis(), start_redis()

    async def body() -> None:
        async with writer(old.url) as one:
            first = await one.append()
            old.run("REPLICAOF", "127.0.0.1", new.port)
            fetch = m.Fetch(9, first.mark, False)
            assert await one.log.perform(fetch) == m.Failed(9)
            assert "replica" in one.log.problem
            assert isinstance(await one.send(), m.Failed)
            old.run("REPLICAOF", "NO", "ONE")
            event = await one.until(lambda: fetch)
            assert isinstance(event, m.Fetched)

    run(body())


def test_redis_comes_back_without_the_log(start_redis: StartRedis) -> None:
    """Its connections end, and the next answers tell that there is nothing."""
    server = start_redis()

    async def body() -> None:
        async with writer(server.url, timeout=1.0, wait=60.0) as one:
            first = await one.append()
            await one.fetch(first.mark, wait=True)
            waiting = asyncio.ensure_future(one.log.perform(m.Fetch(50, first.mark, True)))
            assert await wait_until_async(lambda: blocked(server))
            server.kill()
            assert await waiting == m.Failed(50)
            assert isinstance(await one.send(), m.Failed)
            server.start()
            event = await one.until(lambda: m.Fetch(51, first.mark, False))
            assert event == m.Fetched(51, (), None)
            assert await one.send() == m.Fetched(one.ref, (), None)  # nothing is appended

    run(body())


def test_the_stream_is_gone_and_its_end_is_still_known(redis_server: RedisServer) -> None:
    """Somebody deleted it, or Redis evicted it: nothing is appended behind what is not there."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            first = await one.append()
            redis_server.run("DEL", LOG)
            assert (await one.fetch(first.mark)) == m.Fetched(one.ref, (), None)
            assert await one.send() == m.Fetched(one.ref, (), None)
            assert redis_server.run("EXISTS", LOG) == 0

    run(body())


def unknown_kind() -> bytes:
    """An entry of a bloomery to come."""
    data = bytearray(LogEntry(b"12345678", 1, 1, Kind.WRITE).to_bytes())
    data[44] = 99
    data[:4] = struct.pack("<I", zlib.crc32(data[4:]))
    return bytes(data)


FOREIGN = {
    "another field": (b"x", b"y"),
    "two fields": (b"e", LogEntry(b"12345678", 1, 1, Kind.WRITE).to_bytes(), b"x", b"y"),
    "too short": (b"e", b"hello"),
    "large": (b"x", b"y" * 1_000_000),
}


@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("number", ["*", "18446744073709551615-18446744073709551615"])
def test_foreign_entries_are_set_aside(
    fields: tuple[bytes, ...], number: str, redis_server: RedisServer
) -> None:
    """By each script that meets them; the log is then as if they had never been there."""
    aside = f"{{{PREFIX}}}:foreign"

    async def body() -> None:
        async with writer(redis_server.url) as one:
            first = await one.append()
            redis_server.run("XADD", LOG, number, *fields)
            assert await one.fetch(first.mark) == m.Fetched(
                one.ref, (Placed(first.position, LogEntry(one.node, 1, 0, Kind.BARRIER)),), one.at
            )
            redis_server.run("XADD", LOG, number, *fields)
            second = await one.append(b"second")
            redis_server.run("XADD", LOG, number, *fields)
            third = Placed(Position(second.position.ms, second.position.seq + 1), second.entry)
            assert await one.log.perform(m.PutBack(8, second.mark, (third,))) == m.Done(8, True)
            one.last = third
            redis_server.run("XADD", LOG, number, *fields)
            last = await one.append(b"last")
            fetched = await one.fetch()
            assert fetched.entries == (first, second, third, last)
            assert fetched.end == last.mark
            assert redis_server.run("XLEN", aside) == 4
            ((_, kept),) = redis_server.run("XREVRANGE", aside, "+", "-", "COUNT", 1)
            assert kept[b"fields"] == b" ".join(fields)[:4096]

    run(body())


def test_a_stream_of_foreign_entries_is_no_stream(redis_server: RedisServer) -> None:
    """A new log begins after they are set aside, also after thousands of them."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            with redis_server.client() as client, client.pipeline() as pipeline:
                for number in range(3000):
                    pipeline.xadd(LOG, {"x": str(number)})
                pipeline.execute()
            assert await one.fetch() == m.Fetched(one.ref, (), None)
            last = await one.append()
            assert await one.fetch() == m.Fetched(one.ref, (last,), last.mark)
            assert redis_server.run("XLEN", f"{{{PREFIX}}}:foreign") == 100

    run(body())


def test_an_emptied_stream_is_no_stream(redis_server: RedisServer) -> None:
    """XTRIM leaves the key, and a node's mark next to it: nothing is appended there, and a restore
    brings the log back."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            last = await one.append()
            redis_server.run("XTRIM", LOG, "MAXLEN", "0")
            assert await one.fetch(last.mark) == m.Fetched(one.ref, (), None)
            assert await one.send() == m.Fetched(one.ref, (), None)
            write_chunks(redis_server.url, PREFIX, bytes(16), [b"copy"])
            restore = m.Restore(3, m.Manifest((m.Snapshot(bytes(16), last, 1),)), None)
            assert await one.log.perform(restore) == m.Done(3, True)
            assert (await one.fetch()).entries == (last,)
            await one.append()

    run(body())


@pytest.mark.parametrize(
    ("foreign", "problem"),
    [
        (b"x" * 100, errors.CorruptData),
        (LogEntry(b"12345678", 1, 1, Kind.WRITE, b"key").to_bytes()[:-1], errors.CorruptData),
        (unknown_kind(), errors.UnsupportedVersion),
    ],
    ids=["other", "cut", "newer"],
)
def test_what_is_no_entry_is_told(
    foreign: bytes, problem: type[Exception], redis_server: RedisServer
) -> None:
    """It is never skipped: whoever reads it must stop."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            first = await one.append()
            redis_server.run("XADD", LOG, "*", "e", foreign)
            redis_server.run("DEL", f"{{{PREFIX}}}:last")
            with pytest.raises(problem):
                await one.fetch(first.mark)
            with pytest.raises(problem):
                await one.fetch()
            with pytest.raises(problem):
                await one.send()

    run(body())


@pytest.mark.parametrize("value", [b"x", b"BLM1" + bytes(60), bytes(1000)])
def test_what_is_no_manifest_is_told(value: bytes, redis_server: RedisServer) -> None:
    """No log is begun next to it, and a node that has the filters replaces it."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            redis_server.run("SET", f"{{{PREFIX}}}:manifest", value)
            assert await one.send() == m.Fetched(one.ref, (), None)
            redis_server.run("DEL", f"{{{PREFIX}}}:manifest")
            last = await one.append()
            redis_server.run("SET", f"{{{PREFIX}}}:manifest", value)
            assert await one.log.perform(m.ReadManifest(1)) == m.ManifestRead(1, None)
            write_chunks(redis_server.url, PREFIX, bytes(16), [b"copy"])
            manifest = m.Manifest((m.Snapshot(bytes(16), last, 1),))
            swap = m.SwapManifest(2, bytes([1] * 16), manifest, None)
            assert await one.log.perform(swap) == m.Done(2, False)
            assert await one.log.perform(replace(swap, expected=None)) == m.Done(2, True)
            assert await one.log.perform(m.ReadManifest(3)) == m.ManifestRead(3, manifest)

    run(body())


def test_what_a_node_would_miss_is_told(redis_server: RedisServer) -> None:
    """Chunks, the manifest, the entry that a snapshot ends with; and that Redis may evict them."""
    manifest_key, chunk = f"{{{PREFIX}}}:manifest", f"{{{PREFIX}}}:chunk:{bytes(16).hex()}:0"

    async def body() -> None:
        async with writer(redis_server.url) as one:

            async def problem() -> str:
                found = await one.log.perform(m.CheckStore(1))
                assert isinstance(found, m.StoreChecked), one.log.problem
                return found.problem

            assert await problem() == ""
            first = await one.append()
            assert await problem() == ""  # the log from its start is enough
            await one.log.perform(m.WantSnapshot(1, b""))
            assert "from the log alone" in await problem()
            last = await one.append()
            write_chunks(redis_server.url, PREFIX, bytes(16), [b"copy"])
            manifest = m.Manifest((m.Snapshot(bytes(16), last, 1),))
            swap = m.SwapManifest(2, None, manifest, last.position)
            assert await one.log.perform(swap) == m.Done(2, True)
            assert first not in (await one.fetch()).entries
            assert await problem() == ""
            await one.log.perform(m.WantSnapshot(1, bytes(16)))
            assert "cannot start from the newest" in await problem()
            await one.log.perform(m.WantSnapshot(1, bytes([1] * 16)))
            assert await problem() == ""
            kept = redis_server.run("GET", chunk)
            redis_server.run("DEL", chunk)
            assert "chunks" in await problem()
            redis_server.run("SET", chunk, kept)
            kept = redis_server.run("GET", manifest_key)
            redis_server.run("DEL", manifest_key)
            assert "snapshots is missing" in await problem()
            redis_server.run("SET", manifest_key, b"garbage" * 10)
            assert "cannot be read" in await problem()
            redis_server.run("SET", manifest_key, kept)
            assert await problem() == ""
            one.last = last
            await one.append()
            redis_server.run("XTRIM", LOG, "MAXLEN", "1")
            assert "lacks the entry" in await problem()
            redis_server.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            redis_server.run("XADD", LOG, "*", "x", "y")
            await one.append()
            found = await one.log.perform(m.CheckStore(1))
            assert isinstance(found, m.StoreChecked)
            assert (found.policy, bool(found.aside)) == ("allkeys-lru", True)

    try:
        run(body())
    finally:
        redis_server.run("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_keys_of_another_type(redis_server: RedisServer) -> None:
    """An error of Redis, and no loop: it is said what."""

    async def body() -> None:
        redis_server.run("SET", LOG, "x")
        async with writer(redis_server.url) as one:
            assert isinstance(await one.send(), m.Failed | m.Fetched)
            assert await one.log.perform(m.Fetch(1, None, False)) == m.Failed(1)
            assert "WRONGTYPE" in one.log.problem

    run(body())


@pytest.mark.parametrize("faster", [False, True])
def test_tls_a_password_and_a_socket(faster: bool, start_redis: StartRedis, tmp_path: Path) -> None:
    """Every way to a Redis that a URL can say."""
    pairs = Pairs(tmp_path)
    secure = start_redis(password="secret", tls=pairs)
    local = start_redis(unixsocket="redis.sock")
    urls = [
        f"{secure.url}?ssl_ca_certs={pairs.trust()}",
        f"unix://{local.folder}/redis.sock?db=2",
    ]

    async def body() -> None:
        for url in urls:
            async with writer(url, wait=0.01) as one:
                first = await one.append(b"first")
                await one.append(bytes(100_000))
                assert len((await one.fetch(first.mark, wait=True)).entries) == 2
            data = os.urandom(5_000_000)
            write_chunks(url, PREFIX, bytes(16), [data])
            assert b"".join(read_chunks(url, PREFIX, bytes(16))) == data
        async with writer(f"rediss://127.0.0.1:{secure.port}") as one:
            assert isinstance(await one.send(), m.Failed)
            assert "certificate" in one.log.problem.lower()
        before = len(os.listdir("/proc/self/fd"))
        async with writer(urls[0].replace("secret", "wrong")) as one:
            assert isinstance(await one.send(), m.Failed)
            assert "secret" not in one.log.problem
            assert "wrong:" not in one.log.problem
        # redis-py does not wait for the end of TLS where a password is refused, and uvloop's event
        # loop cannot be closed before it.
        assert await wait_until_async(lambda: len(os.listdir("/proc/self/fd")) <= before)

    run(body(), faster)


def test_a_mark_of_another_log(redis_server: RedisServer) -> None:
    """The same position, another entry: nothing matches."""

    async def body() -> None:
        async with writer(redis_server.url) as one:
            first = await one.append()
            other = Placed(first.position, LogEntry(b"another-", 1, 1, Kind.WRITE))
            fetched = await one.fetch(other.mark)
            assert fetched.entries == (first,)
            assert fetched.end == first.mark
            answer = await one.send(after=other.mark)
            assert answer == m.Fetched(one.ref, (first,), first.mark)
            late = first.mark._replace(position=Position(2**63, 0))
            assert (await one.fetch(late)) == m.Fetched(one.ref, (), first.mark)

    run(body())
