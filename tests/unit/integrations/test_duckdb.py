"""A filter as a function of DuckDB answers as `contains_many` does, or the query fails."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from bloomery import BloomFilter, CuckooFilter, RotatingBloomFilter, ScalableBloomFilter
from bloomery.types import Batch, Mask
from conftest import require
from unit.kinds import KEYS, every_kind, made

duckdb = require("duckdb")

from bloomery.integrations.duckdb import register, unregister  # noqa: E402 (may be missing)

U = UUID("12345678-1234-5678-1234-567812345678")


@pytest.fixture
def con() -> Iterator[Any]:
    """A database in memory."""
    with duckdb.connect() as connection:
        yield connection


def new(*keys: Any) -> BloomFilter:
    """A filter with these keys and next to no wrong maybes."""
    return BloomFilter.from_keys(list(keys), error_rate=1e-9)


class Asked:
    """A filter that only Python can ask."""

    def __init__(self, filter: BloomFilter) -> None:
        self.filter = filter

    def contains_many(self, keys: Batch) -> Mask:
        """What the filter says."""
        return self.filter.contains_many(keys)


class OwnAnswers(BloomFilter):
    """A filter whose batches are answered by its own code."""

    def contains_many(self, keys: Any, **options: Any) -> Any:
        """True, whatever is asked."""
        return np.ones(len(keys), bool)


class Referred(BloomFilter):
    """A filter that can be referred to weakly."""


def answers(con: Any, expression: str) -> list[Any]:
    """What a query of one column gives."""
    return [row[0] for row in con.execute(f"SELECT {expression}").fetchall()]


def test_rows_of_a_query(con: Any) -> None:
    """A query keeps exactly the rows whose keys were added, over many vectors and threads."""
    register(con, "seen", BloomFilter.from_keys(np.arange(0, 200_000, 3), error_rate=1e-9))
    kept = con.execute("SELECT range FROM range(200000) WHERE seen(range) ORDER BY 1").fetchall()
    assert [row[0] for row in kept] == list(range(0, 200_000, 3))


@pytest.mark.parametrize(
    ("value", "other", "added"),
    [
        *((f"2::{u}{name}", f"3::{u}{name}", 2)
          for u in ("", "U") for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")),
        ("-1::TINYINT", "1::TINYINT", -1),
        ("18446744073709551615::UBIGINT", "0::UBIGINT", 2**64 - 1),
        ("'żelazo'", "'zelazo'", "żelazo"),
        ("'2'", "'3'", "2"),
        ("'b'::ENUM('a', 'b')", "'a'::ENUM('a', 'b')", "b"),
        ("'{}'::JSON", "'[]'::JSON", "{}"),
        (r"'\xFF\x00'::BLOB", r"'\xFF'::BLOB", b"\xff\x00"),
        (f"'{U}'::UUID", "uuid()", U),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lossless", [False, True])
def test_keys_of_each_type(con: Any, value: str, other: str, added: Any, lossless: bool) -> None:
    """What was added by itself is there in a column of each type; constants are answered alike."""
    con.execute(f"SET arrow_lossless_conversion = {lossless}")
    register(con, "seen", new(added))
    con.execute(f"CREATE TABLE t AS SELECT {other} AS key UNION ALL SELECT {value}")
    assert sorted(answers(con, "seen(key) FROM t")) == [False, True]
    assert answers(con, f"seen({value})") == [True]


@pytest.mark.parametrize(
    "value",
    [
        "1::DOUBLE",
        "1::FLOAT",
        "1::HUGEINT",
        "1::DECIMAL(9, 2)",
        "true",
        "DATE '2024-01-01'",
        "TIMESTAMP '2024-01-01'",
        "[1]",
        "{'a': 1}",
        "'101'::BIT",
    ],
)
@pytest.mark.parametrize("optimizer", ["enable", "disable"])
def test_no_keys(con: Any, value: str, optimizer: str) -> None:
    """A column whose rows are no keys fails the query, with its type; none is cast in silence."""
    register(con, "seen", new(1, "1"))
    con.execute(f"PRAGMA {optimizer}_optimizer")
    con.execute(f"CREATE TABLE t AS SELECT {value} AS key")
    with pytest.raises(duckdb.InvalidInputException, match=r"seen\(\) takes ints.* of type [A-Z]"):
        con.execute("SELECT count(*) FROM t WHERE seen(key)").fetchall()


def test_text_of_a_number_is_another_key(con: Any) -> None:
    """1 and '1' are two keys, whichever was added."""
    register(con, "ints", new(1))
    register(con, "texts", new("1"))
    con.execute("CREATE TABLE t AS SELECT 1 AS number, '1' AS text")
    asked = "SELECT ints(number), ints(text), texts(number), texts(text) FROM t"
    assert con.execute(asked).fetchall() == [(True, False, False, True)]


def test_null_is_null(con: Any) -> None:
    """A NULL is no key: its answer is NULL."""
    register(con, "seen", new(3))
    con.execute("CREATE TABLE t AS SELECT unnest([1, NULL, 3]) AS key")
    assert answers(con, "seen(key) FROM t") == [False, None, True]
    assert answers(con, "key FROM t WHERE NOT seen(key)") == [1]
    assert answers(con, "seen(NULL)") == [None]
    assert answers(con, "seen(NULL::UUID)") == [None]


@every_kind
def test_every_kind(con: Any, kind: str) -> None:
    """Any filter that answers for batches is a function."""
    register(con, "seen", made(kind))
    asked = f"seen(key) FROM (SELECT unnest(['another', '{KEYS[7]}']) AS key)"
    assert answers(con, asked) == [False, True]


def test_register_again(con: Any) -> None:
    """Another filter under the same name takes the place of the first; nothing of it is kept."""
    register(con, "seen", new(1))
    register(con, "seen", new(2))
    assert answers(con, "seen(unnest([1, 2]))") == [False, True]
    unregister(con, "seen")
    unregister(con, "seen")
    with pytest.raises(duckdb.CatalogException, match="seen does not exist"):
        con.execute("SELECT seen(1)")


def test_quoted_names(con: Any) -> None:
    """A name may be anything that SQL can quote."""
    register(con, 'have I seen "it\'s"', new(1))
    assert answers(con, '"have I seen ""it\'s"""(1)') == [True]
    with pytest.raises(duckdb.InvalidInputException, match='have I seen "it\'s"\\(\\) takes'):
        con.execute('SELECT "have I seen ""it\'s"""(1.5)')


def test_no_file_keeps_it(tmp_path: Path) -> None:
    """A database file is left as it was: the function is the connection's alone."""
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as con:
        register(con, "seen", new(1))
        assert answers(con, "seen(1)") == [True]
    with duckdb.connect(str(path)) as con, pytest.raises(duckdb.CatalogException):
        con.execute("SELECT seen(1)")


# A column of each type that is a key, NULLs among the rows, and how it is made of the numbers i.
TYPES = {
    "TINYINT": "(i % 100)::TINYINT",
    "SMALLINT": "(i - 999)::SMALLINT",
    "INTEGER": "(i * 99991)::INTEGER",
    "BIGINT": "i * -99999999977",
    "UTINYINT": "(i % 200)::UTINYINT",
    "USMALLINT": "i::USMALLINT",
    "UINTEGER": "(i * 799991)::UINTEGER",
    "UBIGINT": "(18446744073709551615 - i::UHUGEINT)::UBIGINT",
    "VARCHAR": "repeat('ż', (i % 9)::INT) || i",
    "ENUM": "('e' || (i % 3))::ENUM('e0', 'e1', 'e2')",
    "BLOB": "('blob of some length ' || i)::BLOB",
    "UUID": "md5(i::VARCHAR)::UUID",
}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", TYPES)
def test_answers_are_those_of_contains_many(con: Any, kind: str, threads: int) -> None:
    """By native code, by Python and by `contains_many`, each row of each type has one answer."""
    con.execute(f"SET threads = {threads}; SET arrow_lossless_conversion = true")
    con.execute(
        f"CREATE TABLE t AS SELECT i, CASE WHEN i % 7 <> 3 THEN {TYPES[kind]} END AS key "
        "FROM range(5000) r(i)"
    )
    some = con.execute("SELECT key FROM t WHERE i % 2 = 0 AND key IS NOT NULL").fetchall()
    seen = BloomFilter.from_keys([row[0] for row in some], error_rate=0.01)
    assert register(con, "seen", seen) == "native"
    assert register(con, "asked", Asked(seen)) == "python"
    there = con.sql("SELECT key FROM t WHERE key IS NOT NULL ORDER BY i")
    expected = list(np.asarray(seen.contains_many(there)))
    for name in ("seen", "asked"):
        found = answers(con, f"{name}(key) FROM t ORDER BY i")
        assert [found[i] is None for i in range(5000)] == [i % 7 == 3 for i in range(5000)]
        assert [answer for answer in found if answer is not None] == expected
        kept = con.execute(f"SELECT count(*) FROM t WHERE {name}(key)").fetchone()
        assert kept == (sum(expected),)
        assert answers(con, f"{name}(key) FROM t WHERE i < 0") == []


def test_vectors_of_every_kind(con: Any) -> None:
    """Rows that DuckDB keeps as one constant, a sequence, a dictionary or a selection of others."""
    register(con, "seen", new(*range(0, 9000, 3), "a long value of group 1", "x"))
    constant = "(SELECT 'x' AS c, range AS i FROM range(5000))"
    assert set(answers(con, f"seen(c) FROM {constant}")) == {True}
    assert set(answers(con, f"seen(c || '') FROM {constant}")) == {True}
    assert answers(con, "sum(seen(range)::INT) FROM range(9000)") == [3000]
    assert answers(con, "seen(range) FROM range(9000) WHERE range % 3 = 1 LIMIT 1") == [False]
    con.execute(
        "CREATE TABLE groups AS SELECT g, 'a long value of group ' || g AS name FROM range(4) r(g)"
    )
    joined = "(SELECT name FROM range(9000) r(i) JOIN groups ON g = i % 4)"
    assert answers(con, f"sum(seen(name)::INT) FROM {joined}") == [2250]
    con.register("codes", pa.table({"key": pa.array(["x", "y", None] * 3000).dictionary_encode()}))
    assert answers(con, "count(*) FROM codes WHERE seen(key)") == [3000]
    assert answers(con, "count(*) FROM codes WHERE NOT seen(key)") == [3000]


def test_who_answers(con: Any) -> None:
    """Native code asks filters of this process that stand still; Python asks all others."""
    assert register(con, "a", new(1)) == "native"
    assert register(con, "b", ScalableBloomFilter()) == "native"
    assert register(con, "c", CuckooFilter(100)) == "native"
    assert register(con, "d", RotatingBloomFilter(100, 0.01, window=60)) == "python"
    assert register(con, "e", Asked(new(1))) == "python"
    assert register(con, "f", OwnAnswers(100, 0.01)) == "python"
    assert answers(con, "f(5)") == [True]
    patched: Any = Referred.from_keys([1], error_rate=1e-9)
    patched.contains_many = lambda keys: [True] * len(keys)
    assert register(con, "g", patched) == "python"
    assert answers(con, "g(5)") == [True]
    lent: Any = type("Lent", (), {"__getattr__": lambda _, name: getattr(new(1), name)})()
    assert register(con, "h", lent) == "python"
    assert answers(con, "h(unnest([1, 5]))") == [True, False]


def test_database_that_was_there_before() -> None:
    """A database that was opened before the import has functions of Python, and is unharmed."""
    code = """
import duckdb
con = duckdb.connect()
con.execute("BEGIN")
from bloomery import BloomFilter
from bloomery.integrations.duckdb import register
seen = BloomFilter.from_keys([1], error_rate=1e-9)
who = register(con, "seen", seen), register(duckdb.connect(), "seen", seen)
print(who, con.execute("SELECT seen(1), seen(2)").fetchall())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "('python', 'native') [(True, False)]\n", done.stderr


@pytest.mark.parametrize("how", ["unregister", "register", "close"])
def test_filter_is_let_go(how: str) -> None:
    """Nothing keeps a filter once its function is gone, or the connection."""
    con = duckdb.connect()
    seen = Referred.from_keys([1], error_rate=1e-9)
    gone = weakref.ref(seen)
    assert register(con, "seen", seen) == "native"
    assert answers(con, "seen(1)") == [True]
    del seen
    if how == "unregister":
        unregister(con, "seen")
    elif how == "register":
        register(con, "seen", new(2))
    con.execute("SELECT 1").fetchall()
    if how == "close":
        con.close()
        del con
    gc.collect()
    assert gone() is None


def functions(con: Any) -> int:
    """How many functions the database has that `register` made."""
    ours = "regexp_matches(function_name, '^bloomery_[0-9]')"
    return int(answers(con, f"count(*) FROM duckdb_functions() WHERE {ours}")[0])


@pytest.mark.parametrize("wrapped", [False, True])
def test_cursors_have_functions_of_their_own(con: Any, wrapped: bool) -> None:
    """The same name is another filter for each cursor, also once another of them was closed."""
    filters = [Asked(new(i)) if wrapped else new(i) for i in range(3)]
    cursors = [con, con.cursor(), con.cursor()]
    for cursor, filter in zip(cursors, filters, strict=True):
        register(cursor, "seen", filter)
    for i, cursor in enumerate(cursors):
        assert answers(cursor, "seen(unnest([0, 1, 2]))") == [i == j for j in range(3)]
    cursors[1].close()
    register(cursors[2], "SEEN", filters[1])
    assert answers(con, "seen(unnest([0, 1, 2]))") == [True, False, False]
    assert answers(cursors[2], "seen(unnest([0, 1, 2]))") == [False, True, False]
    unregister(con, "seen")
    with pytest.raises(duckdb.CatalogException, match="seen does not exist"):
        con.execute("SELECT seen(1)")
    assert answers(cursors[2], "seen(1)") == [True]


@pytest.mark.parametrize("wrapped", [False, True])
def test_many_registrations_leave_nothing_behind(con: Any, wrapped: bool) -> None:
    """A name that is registered again and again, by the connection and by cursors that go."""
    for i in range(20):
        seen = Referred.from_keys([i], error_rate=1e-9)
        gone = weakref.ref(seen)
        with con.cursor() as cursor:
            for each in (con, cursor):
                register(each, "seen", Asked(seen) if wrapped else seen)
                assert answers(each, f"seen(unnest([{i}, 99]))") == [True, False]
            unregister(cursor, "seen")
        del seen
    unregister(con, "seen")
    con.execute("SELECT 1").fetchall()
    gc.collect()
    assert gone() is None
    assert functions(con) == 0


def test_statement_that_outlives_its_function(con: Any) -> None:
    """A prepared statement never asks another filter than it was made for."""
    register(con, "seen", new(1))
    con.execute("CREATE TABLE t AS SELECT 1 AS key")
    con.execute("PREPARE q AS SELECT seen(key) FROM t")
    assert con.execute("EXECUTE q").fetchall() == [(True,)]
    unregister(con, "seen")
    register(con, "other", new(2))
    with pytest.raises(duckdb.Error, match=r"unregistered|does not exist"):
        con.execute("EXECUTE q").fetchall()


def test_numbers_of_no_filter(con: Any) -> None:
    """The functions behind the macro refuse a number that no filter has, or more than one."""
    con.execute("CREATE TABLE t AS SELECT range::UINTEGER AS i FROM range(3)")
    with pytest.raises(duckdb.Error, match="unregistered"):
        con.execute("SELECT bloomery_int(4000000000::UINTEGER, i) FROM t").fetchall()
    with pytest.raises(duckdb.Error, match="same in all rows"):
        con.execute("SELECT bloomery_int(i, i) FROM t").fetchall()


@pytest.mark.parametrize("kind", [ScalableBloomFilter, BloomFilter])
def test_filter_that_is_written_meanwhile(con: Any, kind: Any) -> None:
    """What was there before a query began is found by it, while another thread adds to it."""
    seen = kind(1000, 0.001)
    seen.add_many(np.arange(1000))
    assert register(con, "seen", seen) == "native"
    con.execute("CREATE TABLE t AS SELECT range AS key FROM range(100000)")
    stop = threading.Event()

    def write() -> None:
        start = 1000
        while not stop.is_set() and start < 3_000_000:
            seen.add(start)
            seen.add_many(np.arange(start + 1, start + 5000))
            start += 5000

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            assert answers(con, "count(*) FROM t WHERE key < 1000 AND seen(key)") == [1000]
    finally:
        stop.set()
        writer.join()
    assert answers(con, "count(*) FROM t WHERE key < 1000 AND seen(key)") == [1000]


def test_fork_while_a_query_runs() -> None:
    """A child of a fork can use the filter that threads of DuckDB asked in the parent, and fork."""
    code = """
import os, signal, threading
import duckdb, numpy as np
from bloomery import ScalableBloomFilter
from bloomery.integrations.duckdb import register
seen = ScalableBloomFilter()
seen.add_many(np.arange(1000))
con = duckdb.connect()
assert register(con, "seen", seen) == "native"
done = False
def ask():
    while not done:
        con.execute("SELECT count(*) FROM range(300000) r(i) WHERE seen(i)").fetchall()
thread = threading.Thread(target=ask)
thread.start()
good = 0
for i in range(20):
    child = os.fork()
    if not child:
        signal.alarm(20)
        seen.add(10**9 + i)
        grandchild = os.fork()
        if not grandchild:
            os._exit(0 if 7 in seen else 1)
        whole = os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if whole and 5 in seen and 10**9 + i in seen else 1)
    good += os.waitpid(child, 0)[1] == 0
done = True
thread.join()
print(good)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "20\n", done.stderr
