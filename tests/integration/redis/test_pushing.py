"""A local filter pushed to a real Redis and fetched from it: the same bytes, whatever happens."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import BloomeryError, FilterExists, IncompatibleFilters, UnknownFilter
from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter
from bloomery.integrations.redis.transfer import reading
from bloomery.types import Layout
from conftest import require
from integration.servers import RedisServer, StartRedis, wait_until

redis = require("redis")
KEYS = [f"key-{i}" for i in range(2_000)]


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """A client of an empty Redis."""
    with redis_server.client() as made:
        yield made


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 1 KiB, four a round trip: a small filter takes many trips."""
    monkeypatch.setattr(reading, "CHUNK", 1024)
    monkeypatch.setattr(reading, "TOGETHER", 4)


def local(layout: Layout = "blocked", keys: list[str] = KEYS, **options: Any) -> BloomFilter:
    """Some 60 KB of bits."""
    made = BloomFilter(50_000, 0.01, layout=layout, **options)
    made.update(keys)
    return made


class Interrupted(Exception):
    """What a progress callback raises."""


class Steps(list[tuple[int, int]]):
    """What a progress callback was told; it ends the work when so much is done."""

    def __init__(self, end: int | None = None) -> None:
        super().__init__()
        self.end = end

    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))
        if self.end is not None and done >= self.end:
            raise Interrupted


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("layout", ["blocked", "classic"])
@pytest.mark.parametrize("shards", [1, 5])
def test_there_and_back(client: Any, layout: Layout, shards: int) -> None:
    """What was pushed is the filter, bit for bit, and so is what comes back."""
    mine, told = local(layout), Steps()
    pushed = RedisFilter.push(mine, client, "seen", shards=shards, progress=told)
    assert told[0] == (0, mine.nbytes)
    assert told[-1] == (mine.nbytes, mine.nbytes)
    assert sorted(told) == told
    assert all(pushed.contains_many(KEYS))
    again = RedisFilter.open(client, "seen")
    assert again.add("another")
    mine.add("another")
    fetched = Steps()
    assert again.to_local(progress=fetched) == mine
    assert fetched[-1] == (mine.nbytes, mine.nbytes)
    names = sorted(client.keys())
    assert len(names) == shards + 1, names  # nothing else is left


@pytest.mark.usefixtures("small_chunks")
def test_asyncio(redis_server: RedisServer, tmp_path: Path) -> None:
    """The same for asyncio, from a file too, and merged from here and from there."""
    mine, other, third = local(), local(keys=["other"]), local(keys=["third"])
    mine.save(tmp_path / "seen.bloom")

    async def both() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            pushed = await AsyncRedisFilter.load(tmp_path / "seen.bloom", client, "seen", shards=2)
            assert await pushed.to_local() == mine
            await pushed.merge(other)
            assert await pushed.to_local() == mine | other
            more = await AsyncRedisFilter.push(third, client, "more", shards=3)
            await pushed.merge(more)
            assert await pushed.to_local() == mine | other | third

    asyncio.run(both())


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("shards", [1, 3])
def test_goes_on_where_it_was(client: Any, shards: int) -> None:
    """Interrupted and called again, a push goes on; meanwhile nobody can open or make it."""
    mine = local()
    with pytest.raises(Interrupted):
        RedisFilter.push(mine, client, "seen", shards=shards, progress=Steps(mine.nbytes // 2))
    with pytest.raises(UnknownFilter, match="still being pushed"):
        RedisFilter.open(client, "seen")
    with pytest.raises(UnknownFilter, match="still being pushed"):
        RedisFilter.create(client, "seen", 50_000, 0.01, shards=shards)
    with pytest.raises(FilterExists, match="capacity"):
        RedisFilter.push(BloomFilter(60_000), client, "seen")
    assert all(
        client.pttl(name) > 0 for name in client.scan_iter()
    )  # what was begun ends by itself
    told = Steps()
    pushed = RedisFilter.push(mine, client, "seen", progress=told)
    assert told[0][0] >= mine.nbytes // 2
    assert pushed.to_local() == mine
    assert [client.pttl(name) for name in client.scan_iter()] == [-1] * (shards + 1)


@pytest.mark.usefixtures("small_chunks")
def test_another_takes_its_place(client: Any) -> None:
    """A filter that was changed, or another, begins anew, and who pushed the first is told."""
    first, second = local(keys=KEYS[:1000]), local(keys=KEYS[1000:])

    def meanwhile(done: int, total: int) -> None:
        if done >= total // 2 and not told:
            with pytest.raises(Interrupted):
                RedisFilter.push(second, client, "seen", progress=told)

    told = Steps(end=10_000)
    with pytest.raises(FilterExists, match="another filter is being pushed"):
        RedisFilter.push(first, client, "seen", progress=meanwhile)
    assert told[0][0] == 0
    assert RedisFilter.push(second, client, "seen").to_local() == second
    assert len(client.keys()) == 2
    # Now that one is there, another is merged into it.
    assert RedisFilter.push(first, client, "seen").to_local() == first | second


@pytest.mark.usefixtures("small_chunks")
def test_another_took_it_unseen(client: Any) -> None:
    """One that is overtaken before its first chunk puts nothing in place."""
    first, second = local(keys=KEYS[:1000]), local(keys=KEYS[1000:])
    told = Steps(end=10_000)

    def meanwhile(done: int, total: int) -> None:
        if not told:
            with pytest.raises(Interrupted):
                RedisFilter.push(second, client, "seen", progress=told)

    with pytest.raises(FilterExists, match="another filter is being pushed"):
        RedisFilter.push(first, client, "seen", progress=meanwhile)
    assert not client.exists("{seen}:bits")
    assert RedisFilter.push(second, client, "seen").to_local() == second


@pytest.mark.usefixtures("small_chunks")
def test_another_is_done_first(client: Any) -> None:
    """If another filter was pushed and is whole meanwhile, the first is merged into it."""
    first, second = local(keys=KEYS[:1000]), local(keys=KEYS[1000:])
    done: list[RedisFilter] = []

    def meanwhile(at: int, total: int) -> None:
        if at == total and not done:
            done.append(RedisFilter.push(second, client, "seen"))

    assert RedisFilter.push(first, client, "seen", progress=meanwhile).to_local() == first | second
    assert len(client.keys()) == 2


@pytest.mark.usefixtures("small_chunks")
def test_two_push_the_same(client: Any) -> None:
    """Two that push the same filter at once help each other, and nothing is lost."""
    mine = local()
    told = Steps()

    def meanwhile(done: int, total: int) -> None:
        if done >= total // 2 and not told:
            RedisFilter.push(mine, client, "seen", progress=told)

    assert RedisFilter.push(mine, client, "seen", progress=meanwhile).to_local() == mine
    assert told[0][0] >= mine.nbytes // 2


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    "part", [b":done", b"{seen:1}", b"{seen:1}:load:[^:]*$", b":config", b"seen"]
)
@pytest.mark.parametrize("when", [0.5, 0.95, 1])
def test_lost_on_the_way(client: Any, part: bytes, when: float) -> None:
    """What Redis loses of a half-pushed filter is sent again: no bit is missing at the end."""
    mine = local()
    lost: list[bytes] = []

    def lose(done: int, total: int) -> None:
        if done >= when * total and not lost:
            lost.extend(name for name in client.scan_iter() if re.search(part, name))
            client.delete(*lost)

    pushed = RedisFilter.push(mine, client, "seen", shards=2, progress=lose)
    assert lost
    assert pushed.to_local() == mine


def test_ttl(client: Any) -> None:
    """A filter that was pushed with a life has it, in each of its keys."""
    RedisFilter.push(local(), client, "seen", shards=3, ttl=100)
    assert all(90_000 < client.pttl(name) <= 101_000 for name in client.scan_iter())


def test_no_other_kind(client: Any) -> None:
    """Only a Bloom filter can be pushed as one."""
    with pytest.raises(IncompatibleFilters, match="a dict cannot be pushed"):
        RedisFilter.push({}, client, "seen")  # type: ignore[arg-type]


def test_gone_while_it_is_fetched(client: Any) -> None:
    """A string that is gone is an error, and no filter that denies keys; also if somebody's adding
    has set its last bit since."""
    pushed = RedisFilter.push(local(), client, "seen", shards=3)
    last = client.strlen("{seen:1}:bits") * 8 - 9
    client.delete("{seen:1}:bits")
    with pytest.raises(UnknownFilter, match="no longer whole"):
        pushed.to_local()
    client.setbit("{seen:1}:bits", last, 1)
    with pytest.raises(UnknownFilter, match="no longer whole"):
        pushed.to_local()


PUSHER = """
import sys, time
import redis
from bloomery import BloomFilter
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.transfer import reading
reading.CHUNK, reading.TOGETHER = 1024, 4
def slowly(done, total):
    print(done, flush=True)
    time.sleep(0.05)
with redis.Redis.from_url(sys.argv[1]) as client:
    RedisFilter.load(sys.argv[2], client, "seen", shards=2, progress=slowly)
"""


@pytest.mark.usefixtures("small_chunks")
def test_killed_in_the_middle(start_redis: StartRedis, tmp_path: Path) -> None:
    """The pusher is killed, then Redis: called again it goes on, and every bit is there."""
    server = start_redis(appendonly="yes", appendfsync="always")
    mine = local()
    mine.save(tmp_path / "seen.bloom")
    arguments = [sys.executable, "-c", PUSHER, server.url, str(tmp_path / "seen.bloom")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as pusher:
        assert pusher.stdout is not None
        while int(pusher.stdout.readline()) < mine.nbytes // 4:
            pass
        pusher.kill()
    with server.client() as client:

        def kill(done: int, total: int) -> None:
            told.append(done)
            if done >= total // 2 and server.process is not None:
                server.kill()

        told: list[int] = []
        with pytest.raises(BloomeryError):
            RedisFilter.push(mine, client, "seen", progress=kill)
        assert told[0] >= mine.nbytes // 4
        server.start()
        assert wait_until(lambda: _answers(client))
        told.clear()
        pushed = RedisFilter.push(mine, client, "seen", progress=lambda done, _: told.append(done))
        assert told[0] >= mine.nbytes // 2
        assert pushed.to_local() == mine


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
