"""Caches in a real Redis, for threads and for asyncio, in a cluster, behind Sentinels."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from decimal import Decimal
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.boottime import boottime
from bloomery.errors import CacheUnavailable, InvalidParameter, PoisonedCache
from bloomery.guard import AsyncGuard, AsyncRedisCache, Guard, RedisCache
from bloomery.guard.protocols import Cached
from conftest import require
from integration.conftest import open_folder, started
from integration.servers import RedisCluster, RedisServer, Sentinel, free_port, wait_until

redis = require("redis")
PREFIX = "bloomery:cache:"


class Either:
    """One for threads or for asyncio, called in the same way."""

    def __init__(self, made: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.made, self.loop = made, loop

    @classmethod
    def cache(cls, for_asyncio: bool, redis: Any, **options: Any) -> "Either":
        """One of the caches, with a loop of its own if it needs one."""
        if for_asyncio:
            return cls(AsyncRedisCache(redis, PREFIX, **options), asyncio.new_event_loop())
        return cls(RedisCache(redis, PREFIX, **options), None)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.made, name)
        loop = self.loop
        return method if loop is None else lambda *args: loop.run_until_complete(method(*args))

    def end(self) -> None:
        """Close it, and its loop."""
        self.close()
        if self.loop is not None:
            self.loop.close()


@pytest.fixture(params=["threads", "asyncio"])
def for_asyncio(request: pytest.FixtureRequest) -> bool:
    """Whether the cache is the one for asyncio."""
    return bool(request.param == "asyncio")


@pytest.fixture
def cache(redis_server: RedisServer, for_asyncio: bool) -> Iterator[Either]:
    """A cache in an empty Redis."""
    made = Either.cache(for_asyncio, f"redis://127.0.0.1:{redis_server.port}")
    yield made
    made.end()


@pytest.fixture
def other(redis_server: RedisServer) -> Iterator[Any]:
    """Somebody else at the same Redis."""
    with closing(redis.Redis(port=redis_server.port)) as client:
        yield client


def held(value: Any, seconds: float = 60.0) -> Cached:
    """An entry that is kept for so long."""
    return Cached(True, value, boottime() + seconds / 2, boottime() + seconds)


def said(entries: list[Cached | None]) -> list[tuple[bool, Any] | None]:
    """What entries say, whenever they end."""
    return [entry and (entry.found, entry.value) for entry in entries]


def absent() -> Cached:
    """An entry that says that there is none."""
    return Cached(False, None, boottime() + 600, boottime() + 600)


LONG = b"\0" + b"k" * 5000


def test_entries_come_back_as_they_were_set(cache: Either, other: Any) -> None:
    """Values of any kind, absent keys and long keys are read back, and deleted, in order."""
    entries = [
        (b"\0a", held({"id": 7, "price": Decimal("1.5"), "raw": b"\xff"})),
        (b"\0b", absent()),
        (LONG, held(None)),
    ]
    cache.set_many(entries)
    names = [b"\0b", b"\0x", b"\0a", LONG, LONG + b"k"]
    assert said(cache.get_many(names)) == said([absent(), None, entries[0][1], entries[2][1], None])
    assert all(len(name) < 64 for name in other.keys("*"))
    assert all(0 < other.pttl(name) <= 600_000 for name in other.keys("*"))
    cache.delete_many(names)
    assert cache.get_many(names) == [None] * 5
    assert other.dbsize() == 0
    assert cache.get_many([]) == []


def test_a_batch_is_one_round_trip(cache: Either, other: Any) -> None:
    """A thousand keys are read by one command."""
    entries = [(b"\1%d" % number, held(number)) for number in range(1000)]
    cache.set_many(entries)
    reads = other.info("commandstats").get("cmdstat_mget", {}).get("calls", 0)
    held_now = cache.get_many([key for key, _ in entries])
    assert said(held_now) == said([entry for _, entry in entries])
    assert other.info("commandstats")["cmdstat_mget"]["calls"] == reads + 1


def test_an_entry_expires(cache: Either, other: Any) -> None:
    """Redis forgets an entry at its end, and one that is over replaces nothing but is gone."""
    cache.set_many([(b"\0a", held(1, 0.05)), (b"\0b", held(1))])
    assert wait_until(lambda: other.dbsize() == 1)
    cache.set_many([(b"\0b", held(2, -1))])
    assert other.dbsize() == 0


def test_what_is_too_large_or_cannot_be_written_is_not_cached(
    redis_server: RedisServer, for_asyncio: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a value is left out, and takes an older entry with it; a warning names its type."""
    url = f"redis://127.0.0.1:{redis_server.port}"
    cache = Either.cache(for_asyncio, url, max_value_bytes=100)
    more = Either.cache(for_asyncio, url)
    cache.set_many([(b"\0a", held(1)), (b"\0b", held(2)), (b"\0c", held(3))])
    cache.set_many([(b"\0a", held("x" * 200)), (b"\0b", held({1, 2})), (b"\0c", held("x" * 90))])
    assert [entry and entry.value for entry in cache.get_many([b"\0a", b"\0b", b"\0c"])] == [
        *(None, None, "x" * 90)
    ]
    assert "values of type set are not cached" in caplog.text
    more.set_many([(b"\0a", held("x" * 200))])
    assert cache.get_many([b"\0a"]) == [None]
    cache.end()
    more.end()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes, must be 23 or more"),
        (b"\x80\x04" + b"x" * 40, "version 128, must be 2"),
        (b"\2" + b"t" * 8 + b"0" * 13 + b"2", "head is damaged"),
        (b"\2" + b"t" * 8 + b"\xff" * 13 + b"1", "head is damaged"),
        (b"\2" + b"t" * 8 + b"0" * 13 + b"0" + b"1", "not there"),
        (b"\2" + b"t" * 8 + b"0" * 13 + b"1" + b'{"$x":1}', "unknown tag"),
    ],
)
def test_what_others_wrote_is_poison(cache: Either, other: Any, data: bytes, why: str) -> None:
    """An entry that cannot be ours is deleted, and the error says what is wrong but no key."""
    cache.set_many([(b"\0good", held(1))])
    other.set(b"bloomery:cache:\0secret", data)
    with pytest.raises(PoisonedCache, match=why) as raised:
        cache.get_many([b"\0good", b"\0secret"])
    assert "secret" not in str(raised.value)
    assert cache.get_many([b"\0good", b"\0secret"])[1] is None
    assert other.dbsize() == 1


def test_another_type_in_its_place_is_no_entry(cache: Either, other: Any) -> None:
    """A list under a name of ours is a miss (MGET says nil), and the next write replaces it."""
    other.rpush(b"bloomery:cache:\0a", "1")
    assert cache.get_many([b"\0a"]) == [None]
    cache.set_many([(b"\0a", held(1))])
    assert cache.get_many([b"\0a"])[0].value == 1


def test_a_redis_that_is_away_is_told_at_once(cache: Either, redis_server: RedisServer) -> None:
    """While Redis is down each call raises CacheUnavailable; once it is back, all is well."""
    cache.set_many([(b"\0a", held(1))])
    redis_server.stop()
    calls = [("get_many", [b"\0a"]), ("set_many", [(b"\0a", held(1))]), ("delete_many", [b"\0a"])]
    started = time.monotonic()
    for method, argument in calls:
        with pytest.raises(CacheUnavailable, match=f"127.0.0.1:{redis_server.port}"):
            getattr(cache, method)(argument)
    assert time.monotonic() - started < 3
    redis_server.start()
    assert cache.get_many([b"\0a"]) == [None]


def test_a_redis_that_hangs_is_given_up(for_asyncio: bool) -> None:
    """Who accepts and never answers costs the timeout, once, and the password stays unsaid."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"redis://:hunter2@127.0.0.1:{deaf.getsockname()[1]}"
        cache = Either.cache(for_asyncio, url, timeout=0.05)
        started = time.monotonic()
        with pytest.raises(CacheUnavailable) as raised:
            cache.get_many([b"\0a"])
        assert time.monotonic() - started < 2
        assert "hunter2" not in str(raised.value) + repr(cache.made)
        cache.end()


def test_a_full_redis_counts_as_away(cache: Either, other: Any) -> None:
    """What Redis refuses to store raises, so that nobody takes it for stored."""
    other.config_set("maxmemory", 1)
    try:
        with pytest.raises(CacheUnavailable, match=r"OutOfMemory|OOM"):
            cache.set_many([(b"\0a", held(1))])
    finally:
        other.config_set("maxmemory", 0)


def test_a_guard_uses_it(cache: Either, other: Any, for_asyncio: bool) -> None:
    """A value comes from the source once, then from Redis; poison is one error, then the truth."""
    filter = BloomFilter(capacity=100, error_rate=0.01)
    filter.add("alice")
    kind = AsyncGuard if for_asyncio else Guard
    guard = Either(kind(filter, {"alice": Decimal(7)}.get, cache=cache.made), cache.loop)
    answers = [guard.get("alice") for _ in range(2)]
    assert [(answer.value, answer.by) for answer in answers] == [
        *((Decimal(7), "source"), (Decimal(7), "cache"))
    ]
    other.set(b"bloomery:cache:\0alice", b"poison")
    with pytest.raises(PoisonedCache):
        guard.get("alice")
    assert guard.get("alice").by == "source"
    guard.close()


class Cluster(RedisServer):
    """A cluster of one node, which refuses commands over several slots all the same."""

    def command(self) -> list[str]:
        # The nodes' own port, else 10,000 above the clients', may be beyond the last.
        bus = str(free_port())
        return [*super().command(), "--cluster-enabled", "yes", "--cluster-port", bus]

    def ready(self) -> bool:
        self.ask(b"CLUSTER ADDSLOTSRANGE 0 16383\r\n")
        return b"cluster_state:ok" in self.ask(b"CLUSTER INFO\r\n")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisServer]:
    """A cluster that runs."""
    with open_folder() as folder, started(Cluster(folder)) as server:
        yield server


def test_a_cluster_holds_entries_in_all_slots(cluster: RedisServer, for_asyncio: bool) -> None:
    """Keys of many slots are written, read and deleted together; a list there is poison."""
    module = redis.asyncio if for_asyncio else redis
    client = module.RedisCluster("127.0.0.1", cluster.port)
    cache = Either.cache(for_asyncio, client)
    entries = [(b"\1%d" % number, held(number)) for number in range(50)]
    cache.set_many(entries)
    names = [key for key, _ in entries]
    assert said(cache.get_many(names)) == said([entry for _, entry in entries])
    cache.delete_many(names[1:])
    assert cache.get_many(names)[1:] == [None] * 49
    cluster.ask(b"RPUSH bloomery:cache:list 1\r\n")
    with pytest.raises(PoisonedCache, match="no string"):
        cache.get_many([b"list"])
    assert cache.get_many([b"list"]) == [None]
    close = client.aclose if for_asyncio else client.close
    cache.loop.run_until_complete(close()) if cache.loop else close()
    cache.end()


def test_a_cluster_by_its_url(redis_cluster: RedisCluster, for_asyncio: bool) -> None:
    """Of all nodes one is enough; entries lie on every master."""
    host = redis_cluster.url.removeprefix("redis://").removesuffix("/0")
    cache = Either.cache(for_asyncio, f"redis+cluster://{host}", timeout=2.0)
    entries = [(b"\1%d" % number, held(number)) for number in range(50)]
    cache.set_many(entries)
    names = [key for key, _ in entries]
    assert said(cache.get_many(names)) == said([entry for _, entry in entries])
    assert all(master.run("DBSIZE") > 0 for master in redis_cluster.masters())
    cache.delete_many(names)
    assert cache.get_many(names) == [None] * 50
    cache.end()


def test_a_cluster_that_is_away(for_asyncio: bool) -> None:
    """Making a cache does not need it; using it says where it is looked for, without secrets."""
    port = free_port()
    cache = Either.cache(for_asyncio, f"redis+cluster://me:secret@127.0.0.1:{port}")
    with pytest.raises(CacheUnavailable, match=rf"the cluster of 127\.0\.0\.1:{port}") as raised:
        cache.get_many([b"a"])
    assert "secret" not in str(raised.value)
    cache.end()


def test_the_master_that_sentinels_name(redis_sentinel: Sentinel, for_asyncio: bool) -> None:
    """By a URL; after a failover the new master is used, without the entries that it lacks."""
    hosts = ",".join(f"{host}:{port}" for host, port in redis_sentinel.addresses)
    cache = Either.cache(
        for_asyncio, f"redis+sentinel://{hosts}/{redis_sentinel.name}", timeout=2.0
    )
    cache.set_many([(b"\1a", held(1))])
    assert said(cache.get_many([b"\1a"])) == said([held(1)])
    master = redis_sentinel.master
    assert master is not None
    master.wait_for_replicas(2)
    redis_sentinel.fail_over()

    def again() -> bool:
        try:
            return bool(said(cache.get_many([b"\1a"])) == said([held(1)]))
        except CacheUnavailable:  # which a guard goes past, and tries again a while later
            return False

    assert wait_until(again)
    cache.end()


def test_what_is_no_client_is_refused() -> None:
    """A wrong client, URL, prefix or bound gets one clear error, without the URL's secrets."""
    wrong: list[tuple[type, Any, dict[str, Any], str]] = [
        (RedisCache, 7, {}, "redis is a int"),
        (RedisCache, "http://:hunter2@x", {}, "the URL of Redis begins with 'http'"),
        (RedisCache, "redis://x", {"timeout": 0}, "timeout is 0"),
        (RedisCache, redis.asyncio.Redis(), {}, "use AsyncRedisCache"),
        (AsyncRedisCache, redis.Redis(), {}, "use RedisCache"),
        (RedisCache, redis.Redis(decode_responses=True), {}, "decode_responses"),
        (RedisCache, "redis://x", {"prefix": 7}, "prefix is a int"),
        (RedisCache, "redis://x", {"max_value_bytes": 0}, "max_value_bytes is 0"),
    ]
    for made, given, options, why in wrong:
        with pytest.raises(InvalidParameter, match=why) as raised:
            made(given, **{"prefix": PREFIX, **options})
        assert "hunter2" not in str(raised.value)


NONSENSE = {
    "a number": b":5\r\n",
    "too few": b"*0\r\n",
    "too many": b"*3\r\n:1\r\n:2\r\n:3\r\n",
    "no number": b"$five\r\n",
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no bytes": b"*2\r\n:1\r\n*1\r\n:7\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
def test_a_redis_that_answers_nonsense_is_gone_past(nonsense: bytes, for_asyncio: bool) -> None:
    """The source answers, and what is no Redis is let alone for a while."""

    def answer() -> None:
        with closing(server):
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                # A client that has read enough nonsense resets its connection.
                with connection, suppress(ConnectionError):
                    while nonsense and connection.recv(65536):
                        connection.sendall(nonsense)

    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    url = f"redis://127.0.0.1:{server.getsockname()[1]}?protocol=2"
    cache = Either.cache(for_asyncio, url)
    filter = BloomFilter(capacity=100, error_rate=0.01)
    filter.update(["alice", "bob"])
    kind = AsyncGuard if for_asyncio else Guard
    rows = {"alice": 1}
    guard = Either(kind(filter, rows.get, cache=cache.made), cache.loop)
    assert [one.by for one in guard.get_many(["alice", "bob"])] == ["source", "source"]
    rows["alice"] = 2
    assert (guard.get("alice").value, guard.get("bob").found) == (2, False)
    assert guard.info()["cache_failures"] >= 1
    with pytest.raises(CacheUnavailable):
        cache.get_many([b"\0a", b"\0b"])
    cache.end()
    server.shutdown(socket.SHUT_RDWR)
    thread.join(20)
