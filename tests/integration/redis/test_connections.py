"""What stands between a filter and its Redis: passwords, TLS, memory, replicas, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import InvalidParameter, StoreRefused, StoreUnavailable
from integration.redis.either import Either
from integration.servers import RedisServer, StartRedis, free_port
from unit.service.certificates import Pairs


def test_passwords(either: Either, start_redis: StartRedis) -> None:
    """With the password it works; without it or with another the error says so, and shows none."""
    server = start_redis(password="right-secret")
    at = f"127.0.0.1:{server.port}"
    either.create(server.url, "seen", 1000).add("alice")
    with pytest.raises(StoreRefused, match="Redis wants a password"):
        either.open(f"redis://{at}", "seen")
    with pytest.raises(StoreRefused, match="no such user and password") as caught:
        either.open(f"redis://:wrong-secret@{at}", "seen")
    assert "secret" not in str(caught.value)


def test_a_user_who_may_not(either: Either, redis_server: RedisServer) -> None:
    """A user of Redis who may read and not write is told so."""
    made = either.create(redis_server.url, "seen", 1000)
    made.add("alice")
    redis_server.run("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+@connection")
    reading = either.open(f"redis://reader:secret@127.0.0.1:{redis_server.port}", "seen")
    assert "alice" in reading
    with pytest.raises(StoreRefused, match="may not do that"):
        reading.add("bob")
    redis_server.run("ACL", "DELUSER", "reader")


def test_tls(either: Either, start_redis: StartRedis, tmp_path: Path) -> None:
    """rediss:// with the root of its certificate; without it nothing is sent."""
    pairs = Pairs(tmp_path)
    server = start_redis(password="secret", tls=pairs)
    made = either.create(f"{server.url}?ssl_ca_certs={pairs.trust()}", "seen", 1000)
    assert made.add("alice")
    assert "alice" in made
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate") as caught:
        either.open(server.url, "seen", timeout=2)
    assert "secret" not in str(caught.value)


def test_a_unix_socket(either: Either, start_redis: StartRedis, tmp_path: Path) -> None:
    """unix://"""
    path = tmp_path / "redis.sock"
    start_redis(unixsocket=str(path))
    made = either.create(f"unix://{path}", "seen", 1000)
    assert made.add("alice")
    assert str(path) in repr(made.made)


def test_a_full_redis(either: Either, start_redis: StartRedis) -> None:
    """Creating what does not fit fails at once, and adding to what is there goes on or says why."""
    server = start_redis(maxmemory="4mb", maxmemory_policy="noeviction")
    made = either.create(server.url, "small", 1000)
    with pytest.raises(StoreRefused, match="maxmemory"):
        either.create(server.url, "large", 10_000_000)
    server.run("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(StoreRefused, match="maxmemory"):
        made.add("bob")
    assert "bob" not in made
    server.run("CONFIG", "SET", "maxmemory", "100mb")
    assert made.add("bob")
    # What could not be made before is made now, by whoever comes next.
    assert either.create(server.url, "large", 10_000_000).add("alice")


def test_a_replica(either: Either, start_redis: StartRedis) -> None:
    """A replica is asked and not written to; the error names the master's way."""
    master = start_redis()
    made = either.create(master.url, "seen", 1000)
    made.add("alice")
    replica = start_redis(replica_of=master)
    master.wait_for_replicas(1)
    with pytest.raises(StoreRefused, match="this Redis is a replica: give the master"):
        either.open(replica.url, "seen").add("bob")
    with pytest.raises(StoreRefused, match="this Redis is a replica"):
        either.create(replica.url, "other", 1000)


@pytest.mark.parametrize("by_url", [True, False])
def test_a_restart(either: Either, start_redis: StartRedis, by_url: bool) -> None:
    """Connections that a restart has ended do no harm: the next call goes through."""
    server = start_redis(appendonly="yes", appendfsync="always")
    made = either.create(
        server.url if by_url else either.client(server.url), "seen", 1000, timeout=30
    )
    made.update(range(500))
    for ends in (server.stop, server.kill):
        ends()
        server.start()
        assert all(made.contains_many(range(500)))
    server.kill()
    server.spawn()  # and not waited for: it is loading, or not yet there
    made.update(range(500, 600))
    assert all(made.contains_many(range(600)))


def test_nobody_there(either: Either) -> None:
    """A Redis that is not there is an error when the time is up."""
    port = free_port()
    for scheme in ("redis", "redis+cluster"):
        with pytest.raises(StoreUnavailable, match=rf"{port}.* within 0\.3 s"):
            either.create(f"{scheme}://127.0.0.1:{port}", "seen", 1000, timeout=0.3)


def test_a_redis_that_hangs(either: Either, start_redis: StartRedis) -> None:
    """One that takes connections and answers nothing is unavailable, and is used when it wakes."""
    server = start_redis()
    made = either.create(server.url, "seen", 1000, timeout=2)
    made.add("alice")
    server.freeze()
    with pytest.raises(StoreUnavailable, match=r"(?i)timeout"):
        made.add("bob")
    server.thaw()
    assert "alice" in made
    assert made.add_many(["carol", "alice"]) == [True, False]


def test_clients_of_all_sorts(either: Either, redis_server: RedisServer) -> None:
    """Clients that decode, of RESP3, of another database, with one connection, all work."""
    sorts: list[dict[str, Any]] = [
        {"decode_responses": True},
        {"protocol": 3},
        {"protocol": 2},
        {"decode_responses": True, "encoding": "latin-1"},
        {"db": 3},
        {"single_connection_client": True},
    ]
    for number, options in enumerate(sorts):
        made = either.create(either.client(redis_server.url, **options), f"seen-{number}", 1000)
        assert made.add_many(["alice", "alice", 7]) == [True, False, True]
        assert made.contains_many(["alice", 8]) == [True, False]
        assert made.info()["estimated_count"] == 2


BAD = [
    "localhost:6379",
    "http://localhost",
    "redis+sentinel://:pass-word@localhost:26379",
    "redis+cluster://:pass-word@localhost:port",
    "unix+cluster://localhost",
    "redis://:pass-word@localhost?socket_timeout=x",
    "",
    5,
    None,
    [],
]


@pytest.mark.parametrize("what", BAD, ids=str)
def test_what_is_no_redis(either: Either, what: Any) -> None:
    """What cannot be a Redis is told before anything is sent, without secrets."""
    with pytest.raises(InvalidParameter, match="must be") as caught:
        either.open(what, "seen")
    assert "pass-word" not in str(caught.value)


def test_a_redis_that_is_no_sentinel(either: Either, redis_server: RedisServer) -> None:
    """The message says what it is, and how that is named."""
    url = f"redis+sentinel://127.0.0.1:{redis_server.port}/main"
    with pytest.raises(StoreRefused, match="this is a Redis and no Sentinel"):
        either.open(url, "seen")


def test_the_other_kind_of_client(either: Either, redis_server: RedisServer) -> None:
    """A client for asyncio where one for threads is needed, and the reverse, and a pipeline."""
    other = Either(not either.loop)
    try:
        client = other.client(redis_server.url)
        with pytest.raises(InvalidParameter, match=r"the client is for"):
            either.open(client, "seen")
        with pytest.raises(InvalidParameter, match="Pipeline"):
            either.open(either.client(redis_server.url).pipeline(), "seen")
    finally:
        other.close()


def test_another_value_in_its_place(either: Either, redis_server: RedisServer) -> None:
    """Something else under the filter's keys is named, and stays as it is."""
    with redis_server.client() as client:
        client.rpush("{list}:bits", "mine")
        with pytest.raises(StoreRefused, match="another value is in the place"):
            either.create(redis_server.url, "list", 1000)
        assert client.lrange("{list}:bits", 0, -1) == [b"mine"]
        client.hset("{hash}:config", "a", "b")
        with pytest.raises(StoreRefused, match="another value"):
            either.open(redis_server.url, "hash")
