"""The servers that the other tests here rely on: they start, are killed, and come back."""

from pathlib import Path

import pytest
import redis
from redis.exceptions import AskError, MovedError, OutOfMemoryError

from integration.servers import (
    BloomeryServer,
    PostgresServer,
    RedisCluster,
    RedisServer,
    Sentinel,
    Serve,
    StartRedis,
    wait_until,
)
from unit.service.certificates import Pairs


def test_redis_runs_and_is_empty(redis_server: RedisServer) -> None:
    """A test finds an empty Redis that answers."""
    assert redis_server.ask(b"DBSIZE\r\n") == b":0\r\n"
    redis_server.ask(b"SET a b\r\n")


def test_redis_is_killed_and_started_again(redis_server: RedisServer) -> None:
    """After `kill -9` nobody answers; after a start somebody does, at the same port."""
    redis_server.kill()
    assert redis_server.ask(b"PING\r\n") == b""
    redis_server.start()
    assert redis_server.ask(b"DBSIZE\r\n") == b":0\r\n"


def test_postgres_keeps_its_data_when_killed(
    postgres: PostgresServer, postgres_database: str
) -> None:
    """What was committed before `kill -9` is there after the next start."""
    postgres.run("CREATE TABLE t AS SELECT 7 AS seven", postgres_database)
    postgres.kill()
    postgres.start()
    assert postgres.run("SELECT seven FROM t", postgres_database) == [["7"]]


def test_bloomery_keeps_its_data_when_killed(serve: Serve) -> None:
    """What was acknowledged before `kill -9` is there after the next start, on the same data."""
    server = serve()
    with redis.Redis(port=server.resp_port) as client:
        assert client.execute_command("BF.ADD", "seen", "a") == 1
    server.kill()
    server.start()
    with redis.Redis(port=server.resp_port) as client:
        assert client.execute_command("BF.EXISTS", "seen", "a") == 1


def test_bloomery_is_shared(server: BloomeryServer) -> None:
    """Tests that end nothing can share a server."""
    with redis.Redis(port=server.resp_port) as client:
        assert client.ping()


def test_redis_with_a_log_keeps_its_data_when_killed(start_redis: StartRedis) -> None:
    """With an append-only file, written at every command, `kill -9` takes nothing."""
    server = start_redis(appendonly="yes", appendfsync="always")
    server.run("SET", "a", "b")
    server.kill()
    server.start()
    assert server.run("GET", "a") == b"b"


def fill(server: RedisServer) -> None:
    """Ten megabytes, if it takes them."""
    for count in range(10):
        server.run("SET", f"large-{count}", bytes(1_000_000))


def test_redis_that_is_full(start_redis: StartRedis) -> None:
    """Past its memory it refuses writes, and nothing else."""
    server = start_redis(maxmemory="3mb", maxmemory_policy="noeviction")
    server.run("SET", "a", "b")
    with pytest.raises(OutOfMemoryError):
        fill(server)
    assert server.run("GET", "a") == b"b"


def test_redis_with_password_and_tls(start_redis: StartRedis, tmp_path: Path) -> None:
    """Who has password and root gets in, and nobody else."""
    server = start_redis(password="secret", tls=Pairs(tmp_path))
    assert server.run("SET", "a", "b")
    assert server.url == f"rediss://:secret@127.0.0.1:{server.port}/0"
    with server.client(password=None) as client, pytest.raises(redis.AuthenticationError):
        client.get("a")
    assert server.ask(b"PING\r\n")[:1] != b"+"


def test_redis_with_a_replica(start_redis: StartRedis) -> None:
    """A replica has what its master has, and takes no writes."""
    master = start_redis()
    replica = start_redis(replica_of=master)
    assert wait_until(lambda: replica.follows(master))
    master.run("SET", "a", "b")
    master.wait_for_replicas(1)
    assert replica.run("GET", "a") == b"b"
    with pytest.raises(redis.ReadOnlyError):
        replica.run("SET", "a", "c")


def test_cluster_fails_over(redis_cluster: RedisCluster) -> None:
    """A master that is killed is replaced by its replica, with its keys; it comes back as one."""
    with redis_cluster.client() as client:
        for number in range(30):
            client.set(f"key-{number}", number)
        old = redis_cluster.master_of("key-7")
        old.wait_for_replicas(1)
        new = redis_cluster.fail(old)
        assert redis_cluster.master_of("key-7") is new
        assert [client.get(f"key-{number}") for number in range(30)] == [
            b"%d" % number for number in range(30)
        ]
    redis_cluster.restart(old)
    assert redis_cluster.replicas_of(new) == [old]
    assert len(redis_cluster.masters()) == 3


def test_cluster_moves_a_slot(redis_cluster: RedisCluster) -> None:
    """Half-way the old owner says ASK for what has gone, and then MOVED; clients follow."""
    key = "{moved}:bits"
    with redis_cluster.client() as client:
        client.set(key, "a")
        old = redis_cluster.master_of(key)
        new = next(node for node in redis_cluster.masters() if node is not old)
        assert redis_cluster.begin_move(key, new) is old
        with pytest.raises(AskError):
            old.run("GET", key)
        assert client.get(key) == b"a"
        assert redis_cluster.master_of(key) is old
        redis_cluster.finish_move(key, new)
        with pytest.raises(MovedError):
            old.run("GET", key)
        assert client.get(key) == b"a"
    assert redis_cluster.master_of(key) is new
    redis_cluster.begin_move(key, old)
    redis_cluster.restore()
    assert [node.moving() for node in redis_cluster.masters()] == [[], [], []]


def test_sentinel_fails_over(redis_sentinel: Sentinel) -> None:
    """A master that is killed is replaced by a replica, with its keys; it comes back as one."""
    client = redis_sentinel.client()
    master = client.master_for(redis_sentinel.name)
    master.set("a", "b")
    assert int(master.wait(2, 30_000)) == 2
    old = redis_sentinel.master
    assert old is not None
    new = redis_sentinel.fail_over()
    assert new is not old
    assert master.get("a") == b"b"
    master.set("a", "c")
    redis_sentinel.start()
    assert old.follows(new)
    assert old.run("GET", "a") == b"c"
    master.close()
    for watcher in client.sentinels:
        watcher.close()
