"""The servers that the other tests here rely on: they start, are killed, and come back."""

from integration.servers import PostgresServer, RedisServer


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
