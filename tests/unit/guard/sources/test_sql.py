"""A source in SQL, on SQLite; tests/integration/guard has the same on PostgreSQL."""

import sqlite3
import threading
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bloomery import BloomFilter
from bloomery.errors import InvalidParameter, InvalidSource, SourceUnavailable
from bloomery.guard import Guard, SqlSource
from conftest import require
from privates import database_of

pytestmark = pytest.mark.slow
sa = require("sqlalchemy")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with a table of users, and one of everything."""
    path = tmp_path / "a b?.sqlite"
    run(
        str(path),
        "CREATE TABLE users (name TEXT PRIMARY KEY, id INTEGER, mail TEXT UNIQUE)",
        "INSERT INTO users VALUES ('alice', 1, 'a@x'), ('bob', 2, 'b@x'), ('5', 5, '5@x')",
        "CREATE TABLE loose (k TEXT COLLATE NOCASE PRIMARY KEY, v)",
        "INSERT INTO loose VALUES ('Alice', 1)",
        "CREATE TABLE numbers (k INTEGER PRIMARY KEY, v)",
        "INSERT INTO numbers VALUES (5, 'five'), (9223372036854775807, 'most')",
        "CREATE TABLE plain (k)",
        "INSERT INTO plain VALUES (x'616263'), ('text'), (7), (x'ff'), (NULL), (7)",
    )
    return f"sqlite:///{path}".replace("?", "%3F")


def run(path: str, *statements: str) -> list[Any]:
    """Run SQL as somebody else would; the rows of the last."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def rows(url: str, statement: str) -> list[Any]:
    """The same, by the URL."""
    return run(url.removeprefix("sqlite:///").replace("%3F", "?"), statement)


def test_values_are_a_column_several_or_none(url: str) -> None:
    """One column is the value, a list of them a dict, none is True; a query likewise."""
    for options, alice in [
        ({"table": "users", "key": "name", "value": "id"}, 1),
        ({"table": "main.users", "key": "name", "value": ["id"]}, {"id": 1}),
        ({"table": "users", "key": "name", "value": ("id", "mail")}, {"id": 1, "mail": "a@x"}),
        ({"table": "users", "key": "name"}, True),
        ({"query": "SELECT name, id FROM users WHERE name IN :keys"}, 1),
        ({"query": "SELECT name FROM users WHERE name in (:keys) AND id > 0"}, True),
        (
            {"query": "SELECT name, id, mail AS m FROM users WHERE name IN :keys"},
            {"id": 1, "m": "a@x"},
        ),
    ]:
        source = SqlSource(url, **options)  # type: ignore[arg-type]
        assert source.get_many(["alice", "nobody"]) == {"alice": alice}
        assert source.get_many([]) == {}
        source.close()


def test_an_engine_can_be_given(url: str) -> None:
    """An engine of somebody else's is used, and left open."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (k TEXT, v TEXT)")
    source = SqlSource(engine, table="t", key="k", value="v")
    assert source.add("a", "1", "x") is True
    source.close()
    assert source.get_many(["a"]) == {"a": "1"}
    engine.dispose()


def test_keys_come_back_as_they_were_given(url: str) -> None:
    """Text and bytes of the same text are one key, in whichever form the database holds it."""
    source = SqlSource(url, table="plain", key="k")
    keys = ["abc", b"abc", "text", b"text", b"\xff", 7, True, "7", b"\0", "no", 2**64]
    assert set(source.get_many(keys)) == {"abc", b"abc", "text", b"text", b"\xff", 7}
    users = SqlSource(url, table="users", key="name", value="id")
    assert users.get_many([b"alice", "bob"]) == {b"alice": 1, "bob": 2}
    numbers = SqlSource(url, table="numbers", key="k", value="v")
    assert numbers.get_many([2**63 - 1, 2**63, -(2**70), 5]) == {2**63 - 1: "most", 5: "five"}
    for one in (source, users, numbers):
        one.close()


def test_a_key_of_another_type_is_an_error_and_no_absence(url: str) -> None:
    """Where SQLite takes "5" for 5, the answer says that the types differ."""
    users = SqlSource(url, table="users", key="name", value="id")
    numbers = SqlSource(url, table="numbers", key="k", value="v")
    with pytest.raises(InvalidSource, match="asked for an int, and its key column holds text"):
        users.get_many(["alice", 5])
    with pytest.raises(InvalidSource, match="a key of type int that it was not asked for"):
        numbers.get_many(["5"])
    with pytest.raises(InvalidSource, match="key of type int"):
        numbers.add("6", "six", "x")
    with pytest.raises(InvalidSource, match="holds text"):
        users.add(6, 6, "x")
    assert rows(url, "SELECT count(*) FROM users") == [(3,)]
    for key in (UUID(int=1), datetime(2026, 1, 1), ("a", 1)):
        with pytest.raises(InvalidSource, match="cannot hold that"):
            users.get_many([key])
    users.close()
    numbers.close()


def test_a_column_without_case_answers_for_its_own_keys_alone(url: str) -> None:
    """The row of "Alice" is no answer for "alice", and is not overwritten or removed as hers."""
    source = SqlSource(url, table="loose", key="k", value="v")
    assert source.get_many(["alice", "Alice", "ALICE"]) == {"Alice": 1}
    with pytest.raises(InvalidSource, match="takes another key for the same"):
        source.add("alice", 2, "x")
    with pytest.raises(InvalidSource, match="takes another key for the same"):
        source.remove("alice", "x")
    assert rows(url, "SELECT k, v FROM loose") == [("Alice", 1)]
    source.close()


def test_several_rows_of_a_key_are_an_error_if_they_differ(url: str) -> None:
    """Equal rows are one answer; different ones are none."""
    query = "SELECT name, {} FROM (SELECT 'a' AS name, 1 AS v UNION ALL SELECT 'a', 2)"
    same = SqlSource(url, query=query.format("7") + " WHERE name IN :keys")
    assert same.get_many(["a"]) == {"a": 7}
    other = SqlSource(url, query=query.format("v") + " WHERE name IN :keys")
    with pytest.raises(InvalidSource, match="several rows of one key"):
        other.get_many(["a"])
    same.close()
    other.close()


def test_writes_say_whether_the_key_is_new(url: str) -> None:
    """True for a new key, False for a replaced value; the same for what is removed."""
    source = SqlSource(url, table="users", key="name", value=["id", "mail"])
    assert source.add("carol", {"id": 3, "mail": "c@x"}, "1") is True
    assert source.add("carol", {"id": 4, "mail": None}, "2") is False
    assert source.get_many(["carol"]) == {"carol": {"id": 4, "mail": None}}
    assert source.remove("carol", "3") is True
    assert source.remove("carol", "4") is False
    plain = SqlSource(url, table="plain", key="k")
    assert [plain.add(b"new", True, "1"), plain.add("new", True, "2")] == [True, False]
    assert plain.remove(2**70, "3") is False
    with pytest.raises(InvalidSource, match="cannot hold this key"):
        plain.add(2**70, True, "4")
    source.close()
    plain.close()


def test_a_write_that_is_refused_changes_nothing(url: str) -> None:
    """A value of another shape, or one that must be unique and is not, is an InvalidSource."""
    source = SqlSource(url, table="users", key="name", value=["id", "mail"], once="done")
    for value in (7, {"id": 1}, {"id": 1, "mail": "x", "more": 1}):
        with pytest.raises(InvalidSource, match="no dict of id, mail"):
            source.add("dave", value, "1")
    with pytest.raises(InvalidSource, match="must be unique"):
        source.add("dave", {"id": 1, "mail": "a@x"}, "1")
    assert source.add("dave", {"id": 1, "mail": "d@x"}, "1") is True
    source.close()


def test_a_write_is_done_once_for_each_idempotency_key(url: str) -> None:
    """With `once` a second call changes nothing and says None, also from another process."""
    one, other = (
        SqlSource(url, table="users", key="name", value="id", once="done") for _ in range(2)
    )
    assert one.add("erin", 1, "first") is True
    assert other.add("erin", 2, "second") is False
    assert other.add("erin", 1, "first") is None
    assert one.get_many(["erin"]) == {"erin": 2}
    assert one.remove("erin", "third") is True
    assert one.add("erin", 9, "fourth") is True
    assert other.remove("erin", "third") is None
    assert one.get_many(["erin"]) == {"erin": 9}
    assert rows(url, "SELECT count(*), count(done_at) FROM done") == [(4, 4)]
    one.close()
    other.close()


def test_a_query_cannot_be_written_to(url: str) -> None:
    """A query has neither writes nor batches, and a guard says so."""
    source = SqlSource(url, query="SELECT name FROM users WHERE name IN :keys")
    assert not any(hasattr(source, name) for name in ("add", "remove", "batches"))
    guard = Guard(BloomFilter(capacity=100, error_rate=0.01), source)
    with pytest.raises(InvalidSource, match="has no add"):
        guard.add("x")
    guard.close()
    source.close()


def test_all_keys_are_read_in_batches(url: str) -> None:
    """Every key that is no NULL comes, so many at a time, and a filter can be rebuilt from them."""
    source = SqlSource(url, table="plain", key="k")
    assert [len(batch) for batch in source.batches(2)] == [2, 2, 1]
    keys = [key for batch in source.batches(2) for key in batch]
    assert sorted(map(str, keys)) == sorted(map(str, [b"abc", "text", 7, b"\xff", 7]))
    guard = Guard(BloomFilter(capacity=100, error_rate=0.01), source)
    assert not guard.get("text")
    guard.rebuild(BloomFilter(capacity=100, error_rate=0.01), source.batches)
    assert guard.get("text").by == "source"
    guard.close()
    source.close()


def test_a_locked_or_missing_database_is_away(url: str, tmp_path: Path) -> None:
    """One that cannot be written or opened now is unavailable; no file is made in its place."""
    source = SqlSource(url, table="users", key="name", value="id", timeout=0.01)
    path = url.removeprefix("sqlite:///").replace("%3F", "?")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(SourceUnavailable, match=r"users at .*: database is locked"):
            source.add("frank", 1, "x")
    assert source.add("frank", 1, "x") is True
    source.close()
    missing = SqlSource(f"sqlite:///{tmp_path}/none", table="t", key="k")
    with pytest.raises(SourceUnavailable, match="unable to open"):
        missing.get_many(["a"])
    assert not (tmp_path / "none").exists()


def test_what_the_database_refuses_is_told_without_keys(url: str) -> None:
    """A wrong table or statement is an InvalidSource with the database's words."""
    for options, why in [
        ({"table": "nowhere", "key": "k"}, "no such table: nowhere"),
        ({"query": "SELEC name WHERE name IN :keys"}, "syntax error"),
        ({"query": "SELECT 1.5 WHERE 'secret' IN :keys"}, "a float for a key"),
        ({"query": "SELECT name FROM users WHERE name IN :keys AND id = :id"}, "id"),
    ]:
        source = SqlSource(url, **options)  # type: ignore[arg-type]
        with pytest.raises(InvalidSource, match=why) as raised:
            source.get_many(["secret"])
        assert "secret" not in str(raised.value)
        source.close()


def test_threads_may_share_it(url: str) -> None:
    """More threads than connections look up at once."""
    source = SqlSource(url, table="users", key="name", value="id", pool_size=2)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(source.get_many(["alice", "x"])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"alice": 1}] * 8
    source.close()


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        ("nothing", {"table": "t", "key": "k"}, "URL cannot be read"),
        ("oracle99://u:hunter2@h/d", {"table": "t", "key": "k"}, "URL cannot be read"),
        (
            "postgresql://u:a@hunter2@h/d",
            {"table": "t", "key": "k"},
            "in a password is written %40",
        ),
        ("sqlite://", {"table": "t", "key": "k"}, "names no file"),
        ("sqlite:///:memory:", {"table": "t", "key": "k"}, "names no file"),
        (7, {"table": "t", "key": "k"}, "the source is a int"),
        ("sqlite:///x", {}, "needs a table"),
        ("sqlite:///x", {"table": "t"}, "needs key"),
        ("sqlite:///x", {"table": "t", "query": "q"}, "or else a query"),
        ("sqlite:///x", {"query": "SELECT 1"}, "no :keys"),
        ("sqlite:///x", {"query": "q :keys", "key": "k", "once": "o"}, "key and once go with"),
        ("sqlite:///x", {"table": "t", "key": "k", "timeout": 0}, "timeout is 0"),
        ("sqlite:///x", {"table": "t", "key": "k", "pool_size": 0}, "pool_size is 0"),
    ],
)
def test_wrong_options_get_one_clear_error(given: Any, options: Any, why: str) -> None:
    """What cannot be meant is refused before anything is asked, without the URL's secrets."""
    with pytest.raises(InvalidParameter, match=why) as raised:
        SqlSource(given, **options)
    assert "hunter2" not in str(raised.value)


def test_closing_while_it_is_asked(url: str) -> None:
    """A connection in use is closed when its query has ended; who asks again has one for that."""
    with closing(SqlSource(url, table="users", key="name", value="id")) as source:
        opened: list[object] = []
        database = database_of(source)
        sa.event.listen(database.engine, "connect", lambda made, _: opened.append(made))
        with database.reading():
            database.engine.dispose()  # as after a change of the table
        assert_closed(opened, 1)
        with database.reading():
            source.close()
        assert_closed(opened, 2)
        assert source.get_many(["bob"]) == {"bob": 2}
        assert_closed(opened, 3)


def test_closing_while_a_connection_goes_back(url: str) -> None:
    """Neither of two that end at the same time leaves it to the other."""
    with closing(SqlSource(url, table="users", key="name", value="id")) as source:
        opened: list[object] = []
        engine = database_of(source).engine
        sa.event.listen(engine, "connect", lambda made, _: opened.append(made))
        sa.event.listen(engine, "checkin", lambda _made, _record: source.close(), once=True)
        assert source.get_many(["bob"]) == {"bob": 2}
        assert_closed(opened, 1)


def assert_closed(opened: list[object], count: int) -> None:
    """Whether as many connections were made, and none is left open."""
    assert len(opened) == count
    for made in opened:
        with pytest.raises(sqlite3.ProgrammingError):
            made.total_changes  # type: ignore[attr-defined]  # noqa: B018
