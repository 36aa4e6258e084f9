"""A source in a real PostgreSQL: types, one query a batch, outages, writes that are done once."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from bloomery._native import canonical
from bloomery.errors import InvalidSource, SourceUnavailable
from bloomery.guard import SqlSource
from conftest import require
from integration.servers import PostgresServer, wait_until
from privates import database_of

require("sqlalchemy")
psycopg = require("psycopg")

UTC = timezone.utc
NOW = datetime(2026, 1, 2, 3, 4, 5, 678)


@pytest.fixture
def source(postgres: PostgresServer, postgres_url: str) -> Iterator[SqlSource]:
    """A table of ten thousand users."""
    postgres.run(
        "CREATE TABLE users (name text PRIMARY KEY, id int, more jsonb);"
        "INSERT INTO users SELECT 'user' || n, n, '[1]' FROM generate_series(1, 10000) n"
    )
    with closing(SqlSource(postgres_url, table="public.users", key="name", value="id")) as made:
        yield made


def statements(postgres: PostgresServer) -> int:
    """How many statements were begun on the server that name the table's column."""
    return postgres.printed().count("= ANY(CAST(")


def test_a_batch_is_one_statement(postgres: PostgresServer, source: SqlSource) -> None:
    """A thousand keys are one statement, and none but the first question learns the types."""
    source.get_many(["user1"])
    postgres.run("ALTER SYSTEM SET log_statement = 'all'; ")
    postgres.run("SELECT pg_reload_conf()")
    try:
        keys = [f"user{n}" for n in range(9500, 10500)]
        before = statements(postgres)
        deadline = time.monotonic() + 30
        while statements(postgres) == before and time.monotonic() < deadline:
            source.get_many(["user1"])  # until the server logs
        before, logged = statements(postgres), postgres.printed().count("statement:")
        assert source.get_many(keys) == {f"user{n}": n for n in range(9500, 10001)}
        assert statements(postgres) == before + 1
        assert postgres.printed().count("statement:") == logged  # no BEGIN either
    finally:
        postgres.run("ALTER SYSTEM RESET log_statement")
        postgres.run("SELECT pg_reload_conf()")


SHOWN = {
    "text": "text",
    "varchar(9)": "character varying",
    "char(3)": "character",
    "bytea": "bytea",
    "smallint": "smallint",
    "bigint": "bigint",
    "numeric(30, 2)": "numeric",
    "uuid": "uuid",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
TYPES: list[tuple[str, list[Any], list[Any], list[Any]]] = [
    # type, keys that are there, keys that are not, keys of a wrong type
    ("text", ["a", "ü", "Alice"], [b"x", "alice", "a\0b", "a ", b"\xff"], [5, UUID(int=1), NOW]),
    ("varchar(9)", ["a", "Alice"], ["far too long for it", "alice"], [5]),
    ("char(3)", ["abc", "xyz"], ["ABC", "ab"], [5]),
    ("bytea", [b"\xff\0", b"abc"], ["x", b"\xff"], [5]),
    ("smallint", [1, -7], [2**15, 2**40, 2**63, -(2**80)], ["1", b"1"]),
    ("bigint", [1, 2**63 - 1], [2**63, 0], ["1"]),
    ("numeric(30, 2)", [1, 2**80], [2, 2**90], ["1"]),
    ("uuid", [UUID(int=7)], [UUID(int=8)], [str(UUID(int=7)), 7]),
    ("timestamp", [NOW], [NOW + timedelta(1)], [NOW.replace(tzinfo=UTC), "2026-01-01"]),
    (
        "timestamptz",
        [NOW.replace(tzinfo=timezone(timedelta(hours=5)))],
        [NOW.replace(tzinfo=UTC)],
        [NOW],
    ),
]


@pytest.mark.parametrize(("sql", "there", "absent", "wrong"), TYPES, ids=[t[0] for t in TYPES])
def test_keys_of_each_type(
    postgres_url: str,
    sql: str,
    there: list[Any],
    absent: list[Any],
    wrong: list[Any],
) -> None:
    """Keys come back as given, what a column cannot hold is absent, a wrong type is an error."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"CREATE TABLE t (k {sql} PRIMARY KEY, v int)")
        for number, key in enumerate(there):
            connection.execute("INSERT INTO t VALUES (%s, %s)", (key, number))
    with closing(SqlSource(postgres_url, table="t", key="k", value="v")) as source:
        asked = [*there, *absent]
        assert source.get_many(asked) == {key: number for number, key in enumerate(there)}
        both = [key.encode() for key in there if isinstance(key, str)]
        assert set(source.get_many(both)) == set(both)
        for key in wrong:
            with pytest.raises(InvalidSource, match=f"its key column is of type {SHOWN[sql]}: ask"):
                source.get_many([key])
        read = [canonical(key) for batch in source.batches(2) for key in batch]
        assert sorted(read) == sorted(map(canonical, there))
        for key in there[:1]:
            assert source.remove(key, "1") is True
            assert source.add(key, 5, "2") is True
            assert source.add(key, 6, "3") is False
            assert source.get_many([key]) == {key: 6}


def test_columns_that_change_or_confuse_keys(postgres: PostgresServer, postgres_url: str) -> None:
    """Padding and rounding are errors, case is none; a type that can be no key is named."""
    postgres.run(
        "CREATE EXTENSION IF NOT EXISTS citext;"
        "CREATE TABLE padded (k char(5) PRIMARY KEY); INSERT INTO padded VALUES ('ab');"
        "CREATE TABLE loose (k citext PRIMARY KEY, v int); INSERT INTO loose VALUES ('Alice', 1);"
        "CREATE TABLE coarse (k timestamp(0)); CREATE TABLE strange (k inet)"
    )
    padded = SqlSource(postgres_url, table="padded", key="k")
    loose = SqlSource(postgres_url, table="loose", key="k", value="v")
    strange = SqlSource(postgres_url, table="strange", key="k")
    coarse = SqlSource(postgres_url, table="coarse", key="k")
    with pytest.raises(InvalidSource, match="took the key for another"):
        coarse.add(NOW, True, "1")
    for ask in (lambda: padded.get_many(["ab"]), lambda: padded.add("cd", True, "1")):
        with pytest.raises(InvalidSource, match="pads its keys"):
            ask()
    assert padded.get_many(["ab   ", "cd"]) == {"ab   ": True}
    assert loose.get_many(["alice", b"Alice"]) == {b"Alice": 1}
    with pytest.raises(InvalidSource, match="another key for the same"):
        loose.add("alice", 2, "1")
    with pytest.raises(InvalidSource, match="a key column of type inet, must be text"):
        strange.get_many(["a"])
    # Made right, it is learned anew.
    postgres.run("DROP TABLE strange; CREATE TABLE strange (k int); INSERT INTO strange VALUES (3)")
    assert strange.get_many([3, 4]) == {3: True}
    for one in (padded, loose, strange, coarse):
        one.close()


def test_a_query_takes_keys_in_any_form(source: SqlSource, postgres_url: str) -> None:
    """`IN :keys`, `IN (:keys)` and `= ANY(:keys)` are the same; a cast beside them stays."""
    for where in ("IN :keys", "in (:keys)", "= ANY(:keys)"):
        query = f"SELECT name, id::text AS id, more FROM users WHERE id > 0::int AND name {where}"
        with closing(SqlSource(postgres_url, query=query)) as asked:
            assert asked.get_many(["user3", b"user4", "x"]) == {
                "user3": {"id": "3", "more": [1]},
                b"user4": {"id": "4", "more": [1]},
            }


def test_values_of_json_are_written_as_such(source: SqlSource, postgres_url: str) -> None:
    """Dicts and lists go into a column of JSON, and come back."""
    with closing(
        SqlSource(postgres_url, table="users", key="name", value=["id", "more"], once="done")
    ) as made:
        for value in ({"id": 1, "more": {"a": [1]}}, {"id": None, "more": [1, "x"]}):
            made.add("carol", value, str(value))
            assert made.get_many(["carol"]) == {"carol": value}


def test_threads_that_write_the_same_do_it_once(source: SqlSource, postgres_url: str) -> None:
    """Of many writers of one key one finds it new; of one idempotency key one does it at all."""
    with closing(
        SqlSource(postgres_url, table="users", key="name", value="id", once="done")
    ) as made:
        for number in range(5):
            barrier = threading.Barrier(4)
            done: list[bool | None] = []

            def write(
                name: str,
                key: str = f"new{number}",
                barrier: threading.Barrier = barrier,
                done: list[bool | None] = done,
            ) -> None:
                barrier.wait()
                done.append(made.add(key, 1, name))

            names = [f"{number}-{name}" for name in ("a", "a", "b", "c")]
            threads = [threading.Thread(target=write, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(done, key=str) == [False, False, None, True]


def test_all_keys_come_in_batches_as_of_one_moment(
    postgres: PostgresServer, source: SqlSource
) -> None:
    """A server-side cursor reads what was there when it began, and leaves nothing behind."""
    batches = source.batches(3000)
    first = next(batches)
    postgres.run("DELETE FROM users WHERE id > 9000")
    sizes = [len(first), *(len(batch) for batch in batches)]
    assert sizes == [3000, 3000, 3000, 1000]
    left = source.batches(10)
    next(left)
    left.close()
    idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    assert postgres.run(idle) == [["0"]]


def test_a_server_that_restarted_costs_no_failure(
    postgres: PostgresServer, source: SqlSource
) -> None:
    """While it is away each question says so at once; after that old connections fail nobody."""
    threads = [threading.Thread(target=source.get_many, args=(["user1"],)) for _ in range(6)]
    for thread in threads:  # several connections
        thread.start()
    for thread in threads:
        thread.join()
    postgres.restart()
    assert [source.get_many(["user1"]) for _ in range(8)] == [{"user1": 1}] * 8
    postgres.kill()

    def away() -> bool:
        """The processes that serve connections end a moment after the one that was killed."""
        try:
            source.get_many(["user1"])
        except SourceUnavailable:
            return True
        return False

    assert wait_until(away)
    started = time.monotonic()
    for ask in (
        lambda: source.get_many(["user1"]),
        lambda: source.add("x", 1, "1"),
        lambda: next(source.batches()),
    ):
        with pytest.raises(SourceUnavailable, match=r"public\.users at 127\.0\.0\.1") as raised:
            ask()
        assert postgres.password not in str(raised.value)
    assert time.monotonic() - started < 5
    postgres.start()
    assert source.get_many(["user1"]) == {"user1": 1}


def test_what_is_slow_or_ended_by_the_server_is_away(
    postgres: PostgresServer, source: SqlSource, postgres_url: str
) -> None:
    """A statement past its time, a lock, a full pool and a connection that is ended: all away."""
    query = "SELECT name, pg_sleep(9)::text FROM users WHERE name IN :keys"
    with closing(SqlSource(postgres_url, query=query, timeout=0.1, pool_size=1)) as slow:
        with pytest.raises(SourceUnavailable, match="statement timeout"):
            slow.get_many(["user1"])
        with database_of(slow).reading(), pytest.raises(SourceUnavailable, match="QueuePool"):
            slow.get_many(["user1"])
    ended: list[BaseException] = []
    query = "SELECT name, pg_sleep(60)::text FROM users WHERE name IN :keys"
    with closing(SqlSource(postgres_url, query=query, timeout=70)) as slow:

        def ask() -> None:
            try:
                slow.get_many(["user1"])
            except SourceUnavailable as problem:
                ended.append(problem)

        thread = threading.Thread(target=ask)
        thread.start()
        end = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE '%pg_sleep(60)%= ANY(CAST(%' AND pid <> pg_backend_pid()"
        )
        while thread.is_alive():  # it may have come before the statement had begun to sleep
            postgres.run(end)
    assert [type(problem) for problem in ended] == [SourceUnavailable]


def test_what_the_server_refuses_is_wrong_and_not_away(
    postgres: PostgresServer, postgres_url: str
) -> None:
    """Wrong names, values and passwords are InvalidSource, without key, value or password."""
    postgres.run(
        "CREATE TABLE users (name text);"
        "CREATE TABLE strict (k text PRIMARY KEY, v int CHECK (v > 0), u uuid)"
    )
    wrong_password = postgres_url.replace(postgres.password, "hunter2")
    look = ["secret"]
    for url, table, key, written, why in [
        (postgres_url, "strict", "k", {"v": -4321, "u": None}, "violates check constraint"),
        (postgres_url, "strict", "k", {"v": 1, "u": "zebra"}, "invalid input syntax for type uuid"),
        (postgres_url, "strict", "k", {"v": 2**40, "u": None}, "out of range"),
        (postgres_url, "strict", "k", {"v": object(), "u": None}, "cannot adapt type"),
        (postgres_url, "no", "k", None, 'relation "no" does not exist'),
        (postgres_url, "users", "no", None, 'column "no" does not exist'),
        (wrong_password, "t", "k", None, "password authentication failed"),
        (f"{postgres_url}x", "t", "k", None, 'database "postgresx" does not exist'),
    ]:
        columns = None if written is None else ["v", "u"]
        with (
            closing(SqlSource(url, table=table, key=key, value=columns)) as source,
            pytest.raises(InvalidSource, match=why) as raised,
        ):
            source.get_many(look) if written is None else source.add("secret", written, "1")
        for hidden in ("secret", "4321", "zebra", "hunter2", postgres.password):
            assert hidden not in str(raised.value)


def test_keys_that_are_padded_are_not_read_into_a_filter(
    postgres: PostgresServer, postgres_url: str
) -> None:
    """A filter of 'a       ' would deny 'a', which the table holds, as far as anybody can tell."""
    postgres.run("CREATE TABLE padded (k char(8) PRIMARY KEY); INSERT INTO padded VALUES ('a')")
    with (
        closing(SqlSource(postgres_url, table="padded", key="k")) as source,
        pytest.raises(InvalidSource, match="pads its keys with blanks"),
    ):
        next(source.batches())


_FORK = """
import os, sys
from bloomery.guard import SqlSource

source = SqlSource(sys.stdin.read(), table="users", key="name", value="id")
source.get_many(["user1"])  # a connection waits in the pool
child = os.fork()
first = 1 if child else 5001
right = all(source.get_many([f"user{n}"]) == {f"user{n}": n} for n in range(first, first + 100))
if child == 0:
    os._exit(not right)
assert right
assert os.waitpid(child, 0)[1] == 0
assert source.get_many(["user7"]) == {"user7": 7}  # nor has the child closed it
"""


@pytest.mark.usefixtures("source")
def test_a_forked_process_asks_by_connections_of_its_own(postgres_url: str) -> None:
    """A child on its parent's connection would read the answers to the other's questions."""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORK],
        input=postgres_url.encode(),
        check=True,
        timeout=120,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


@pytest.mark.parametrize("sign", ["%", "%s", "%(keys)s", ":v", ":keys", "%%", '"', "a b"])
def test_names_may_have_any_sign(postgres: PostgresServer, postgres_url: str, sign: str) -> None:
    """Tables and columns whose names drivers take for a parameter are looked up, written, counted
    and read."""

    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    table, key, value = f"{sign}t", f"{sign}k", f"{sign}v"
    postgres.run(
        f"CREATE TABLE {quoted(table)} ({quoted(key)} text PRIMARY KEY, {quoted(value)} int)"
    )
    with closing(
        SqlSource(postgres_url, table=table, key=key, value=[value], once=f"{sign}once")
    ) as named:
        assert named.add("a", {value: 1}, "one") is True
        assert named.add("a", {value: 2}, "two") is False
        assert named.add("a", {value: 3}, "two") is None
        assert named.get_many(["a", "b"]) == {"a": {value: 2}}
        assert (named.count(), list(named.batches())) == (1, [["a"]])
        assert named.remove("a", "three") is True
