"""A source that is slow or answers nonsense, a cache that holds what nobody wrote: one clear error;
and a cache that was frozen while something was written."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery._native import canonical
from bloomery.errors import InvalidSource, PoisonedCache, SourceUnavailable
from bloomery.guard import AsyncRedisCache, RedisCache, SqlSource
from conftest import require
from integration.servers import PostgresServer, RedisServer, wait_until
from unit.guard.harness import guards

require("sqlalchemy")
require("psycopg")
redis = require("redis")


@pytest.fixture
def users(postgres: PostgresServer, postgres_url: str) -> str:
    """The URL of a database with a table of users."""
    postgres.run(
        "CREATE TABLE users (name text PRIMARY KEY, id int);"
        "INSERT INTO users SELECT 'user' || n, n FROM generate_series(1, 100) n;"
        "CREATE VIEW slow AS SELECT name, length(pg_sleep(5)::text) AS id FROM users"
    )
    return postgres_url


@pytest.fixture(params=["threads", "asyncio"])
def how(request: pytest.FixtureRequest) -> str:
    """For whom the guard is."""
    return str(request.param)


@contextmanager
def guarded(
    how: str, source: SqlSource, server: RedisServer | None = None, **options: Any
) -> Iterator[Any]:
    """A guard that knows all users, with a cache in Redis if there is one."""
    names = BloomFilter(100)
    names.update(f"user{number}" for number in range(1, 101))
    with closing(source), guards(how) as made:
        if server is not None:
            cache = RedisCache if how == "threads" else AsyncRedisCache
            options["cache"] = cache(f"redis://127.0.0.1:{server.port}", "users:")
        guard = made(names, source, **options)
        yield guard
        guard.close()
        if server is not None:
            closed = options["cache"].close()
            closed is None or guard.loop.run_until_complete(closed)


def test_a_slow_source_is_told_with_its_seconds(
    postgres: PostgresServer, users: str, how: str
) -> None:
    """Whoever gives up, guard or database: the error names the source and the seconds. A question
    that nobody waits for any more lets go of its connection when it ends."""
    for source, guard_s, said in [
        (SqlSource(users, table="slow", key="name", value="id"), 0.2, r"no answer within 0\.2 s"),
        (SqlSource(users, table="slow", key="name", value="id", timeout=0.2), 5, r"0\.2 s"),
    ]:
        with guarded(how, source, timeout=guard_s) as guard:
            began = time.monotonic()
            with pytest.raises(SourceUnavailable, match=rf"source slow at .*{said}"):
                guard.get("user1")
            assert time.monotonic() - began < 3
    others = "FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()"
    postgres.run(f"SELECT pg_cancel_backend(pid) {others}")
    assert wait_until(lambda: postgres.run(f"SELECT count(*) {others}") == [["0"]])


def test_a_source_that_answers_nonsense_is_wrong_and_not_away(users: str, how: str) -> None:
    """Keys that were not asked for, and one key with two values, are InvalidSource, each time."""
    wrong = [
        (
            "SELECT 'x' || name, id FROM users WHERE name IN :keys",
            "a key that it was not asked for",
        ),
        (
            "SELECT name, id FROM users WHERE name IN :keys UNION ALL SELECT 'user1', 7",
            "several rows",
        ),
    ]
    for query, said in wrong:
        with guarded(how, SqlSource(users, query=query), failures=1) as guard:
            for _ in range(3):
                with pytest.raises(InvalidSource, match=said):
                    guard.get("user1")
            assert guard.get("nobody").by == "filter"
            assert guard.info()["source"] == "closed"


def test_a_poisoned_entry_is_told_once(users: str, redis_server: RedisServer, how: str) -> None:
    """What no guard wrote is an error, is gone, and the source answers; then the cache again."""
    source = SqlSource(users, table="users", key="name", value="id")
    with (
        guarded(how, source, redis_server) as guard,
        closing(redis.Redis(port=redis_server.port)) as other,
    ):
        assert guard.get("user1").value == 1
        other.set(b"users:" + canonical("user1"), b"cos\nsystem\n(S'id'\ntR.")
        with pytest.raises(PoisonedCache):
            guard.get("user1")
        assert [
            (answer.by, answer.value) for answer in (guard.get("user1"), guard.get("user1"))
        ] == [
            ("source", 1),
            ("cache", 1),
        ]


def test_a_frozen_cache_never_serves_what_was_written_over(
    users: str, redis_server: RedisServer, how: str
) -> None:
    """It still has the old value when it goes on, and it is not served."""
    source = SqlSource(users, table="users", key="name", value="id")
    with guarded(how, source, redis_server) as guard:
        for key in ("user1", "user2", "user3"):
            guard.get(key)
        assert guard.get("user1").by == "cache"
        redis_server.freeze()
        try:
            guard.add("user1", 1001)
            guard.remove("user2")
            said = [guard.get(f"user{number}") for number in (1, 2, 3)]
            assert [(one.value, one.by) for one in said] == [
                *((1001, "source"), (None, "source"), (3, "source")),
            ]
        finally:
            redis_server.thaw()
        until = time.monotonic() + 20
        while guard.get("user1").by != "cache":
            assert guard.get("user1").value == 1001
            assert not guard.get("user2").found
            assert time.monotonic() < until
        assert guard.get("user1").value == 1001
        assert not guard.get("user2").found
