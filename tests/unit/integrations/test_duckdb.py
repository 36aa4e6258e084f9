"""A filter as a function of DuckDB answers as `contains_many` does, or the query fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from bloomery import BloomFilter
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
