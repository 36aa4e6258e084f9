"""Failures of databases: unavailable or wrong, and no secret and no value in the words."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import pytest

from bloomery.database_errors import describe, is_unavailable, redact, source_error
from bloomery.errors import InvalidSource, SourceUnavailable


class OperationalError(Exception):
    """As each driver has one."""


class ServerError(Exception):
    """A failure that the server numbers, with details that show a row."""

    def __init__(self, sqlstate: str, primary: str) -> None:
        super().__init__(f"{primary}\nDETAIL: Key (name)=(alice) is there")
        self.sqlstate = sqlstate
        self.diag = SimpleNamespace(message_primary=primary)


class Wrapped(Exception):
    """As SQLAlchemy puts a driver's failure into one of its own."""

    def __init__(self, orig: Exception) -> None:
        super().__init__(f"(driver) {orig} [SQL: SELECT 1] (Background on this error)")
        self.orig = orig


@pytest.mark.parametrize(
    ("failure", "unavailable"),
    [
        (ServerError("08006", "gone"), True),
        (ServerError("57P01", "shutting down"), True),
        (ServerError("25006", "read-only"), True),
        (ServerError("42P01", "no such table"), False),
        (ServerError("28P01", "no such user"), False),
        (Wrapped(ServerError("40001", "deadlock")), True),
        (OperationalError("connection refused"), True),
        (OperationalError('database "none" does not exist'), False),
        (OperationalError("password authentication failed"), False),
        (ValueError("connection refused"), False),
        (sqlite3.OperationalError("database is locked"), True),
        (sqlite3.DatabaseError("file is not a database"), False),
    ],
    ids=lambda value: str(value).partition("\n")[0],
)
def test_unavailable_or_wrong(failure: Exception, unavailable: bool) -> None:
    """What may pass by itself is SourceUnavailable, what will be refused again InvalidSource."""
    assert is_unavailable(failure) is unavailable
    expected = SourceUnavailable if unavailable else InvalidSource
    assert type(source_error("the database", failure)) is expected


def test_one_line_without_values() -> None:
    """Details and values are left out, and what SQLAlchemy adds; the rest is one line."""
    assert describe(ServerError("23505", "duplicate key")) == "duplicate key"
    assert describe(Wrapped(ServerError("23505", "duplicate key"))) == "duplicate key"
    assert describe(ServerError("22P02", 'invalid input: "alice"')) == "invalid input: …"
    assert describe(OperationalError("refused\n\tIs it running?")) == "refused Is it running?"
    assert describe(OperationalError("no 'alice'"), quotes=False) == "no …"
    assert describe(OperationalError("")) == "OperationalError"
    said = str(source_error("x", OperationalError("for ann:hunter2@host"), ["hunter2", None, ""]))
    assert said == "x: for ann:***@host"


def test_the_longest_secret_goes_first() -> None:
    """A secret that is part of another does not leave the rest of it behind."""
    assert redact("hunter22 hunter", ["hunter", "hunter22"]) == "*** ***"
