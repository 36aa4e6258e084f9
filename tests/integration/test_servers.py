"""The servers that the other tests here rely on: they start, are killed, and come back."""

import redis

from integration.servers import BloomeryServer, PostgresServer, RedisServer, Serve


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
