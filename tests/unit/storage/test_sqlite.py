"""Errors of SQLite: by their codes, and by their texts where Python has no codes (3.10)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bloomery.storage.sqlite import Code, code_of, is_damage


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("database is locked", Code.BUSY),
        ("database table is locked", Code.BUSY),
        ("attempt to write a readonly database", Code.READONLY),
        ("interrupted", Code.INTERRUPT),
        ("disk I/O error", Code.IOERR),
        ("database disk image is malformed", Code.CORRUPT),
        ("malformed database schema (files)", Code.CORRUPT),
        ("database or disk is full", Code.FULL),
        ("unable to open database file", Code.CANTOPEN),
        ("file is not a database", Code.NOTADB),
        ("no such table: meta", Code.ERROR),
        ("no such column: full_name", Code.ERROR),
        ("no such column: locked", Code.ERROR),
        ("no such table: busy", Code.ERROR),
        ('near "full": syntax error', None),
        ("UNIQUE constraint failed: t.locked_by", None),
    ],
)
def test_codes_by_texts(text: str, code: int | None) -> None:
    """An error without a code has that of its text, whatever the names in it are."""
    failure = sqlite3.OperationalError(text)
    assert not hasattr(failure, "sqlite_errorcode")
    assert code_of(failure) == code


@pytest.mark.parametrize(
    ("query", "damaged"),
    [
        ("SELECT full_name FROM t", True),
        ("SELECT * FROM locked", True),
        ("INSERT INTO t(full_name) VALUES (1)", True),
        ("SELEKT 1", False),
        ("SELECT json('{')", False),
    ],
)
def test_what_is_missing_is_damage(query: str, damaged: bool) -> None:
    """A table or a column that a whole file has; a mistake in our own SQL is none of the file's."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t(x)")
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute(query)
    assert is_damage(caught.value) is damaged
    assert is_damage(sqlite3.OperationalError(str(caught.value))) is damaged


def test_a_format_that_no_sqlite_reads_is_damage(tmp_path: Path) -> None:
    """Of a header that changed, SQLite says no more than that."""
    path = tmp_path / "file"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(x)")
    data = bytearray(path.read_bytes())
    data[44:48] = (99).to_bytes(4, "big")  # the number of the schema's format
    path.write_bytes(data)
    told = pytest.raises(sqlite3.OperationalError, match="unsupported file format")
    with closing(sqlite3.connect(path)) as connection, told as caught:
        connection.execute("SELECT * FROM t")
    assert is_damage(caught.value)
