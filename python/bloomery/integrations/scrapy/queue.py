"""Requests that wait, in a file of SQLite: each is there until its page is done."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bloomery.storage.sqlite import connect, failures_named

if TYPE_CHECKING:
    from bloomery.integrations.scrapy.settings import Order

_APPLICATION = 0x424C4D4A  # "BLMJ"
# What is asked for first comes first in the index: the highest priority, then what is no start
# request, then the newest (or, of start requests and of `fifo`, the oldest).
_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY AUTOINCREMENT, rank INTEGER NOT NULL, start INTEGER NOT NULL,
    position INTEGER NOT NULL, fingerprint BLOB, body BLOB, taken INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS waiting ON requests (rank, start, position) WHERE taken = 0;
CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY)
"""
_PUT = "INSERT INTO requests (rank, start, position, fingerprint, body) VALUES (?, ?, ?, ?, ?)"
_NEXT = "SELECT number, body FROM requests WHERE taken = 0 ORDER BY rank, start, position LIMIT 1"


class JobQueue:
    """The requests of a job. Whatever a method did is in the file when it returns: the end of the
    process does not take it back."""

    def __init__(self, path: str | os.PathLike[str], order: Order) -> None:
        self._path, self._order = path, order
        self.connection: sqlite3.Connection = connect(
            path, _APPLICATION, "queue of requests", _SCHEMA, fsync=False
        )
        with failures_named(path):
            # Those were in flight when the last run was killed.
            self.connection.execute("UPDATE requests SET taken = 0 WHERE taken = 1")
            number = self.connection.execute("SELECT max(number) FROM requests").fetchone()[0]
            self._last: int = number or 0
            self.connection.execute("INSERT INTO runs VALUES (NULL)")
            self.resumed: bool = self._count("runs") > 1
            self.waiting: int = self._count("requests")

    def _count(self, table: str) -> int:
        return int(self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def put(self, priority: int, start: bool, fingerprint: bytes | None, body: bytes | None) -> int:
        """Add a request, whose body is None if it cannot be written; return its number."""
        self._last += 1
        position = self._last if start or self._order == "fifo" else -self._last
        with failures_named(self._path):
            row = (-priority, start, position, fingerprint, body)
            number = self.connection.execute(_PUT, row).lastrowid
        self.waiting += 1
        assert number is not None
        return number

    def take(self) -> tuple[int, bytes | None] | None:
        """Return the number and the body of the next request, which stays until it is done."""
        with failures_named(self._path):
            row: tuple[int, bytes | None] | None = self.connection.execute(_NEXT).fetchone()
            if row is not None:
                take = "UPDATE requests SET taken = 1 WHERE number = ?"
                self.connection.execute(take, row[:1])
                self.waiting -= 1
        return row

    def done(self, numbers: list[int], *, taken: bool = True) -> None:
        """Forget requests: their pages are done."""
        with failures_named(self._path):
            try:
                self.connection.execute("BEGIN")
                self.connection.executemany(
                    "DELETE FROM requests WHERE number = ?", [(number,) for number in numbers]
                )
                self.connection.execute("COMMIT")
            except sqlite3.Error:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        if not taken:
            self.waiting -= len(numbers)

    def unwritten(self) -> list[int]:
        """Return the numbers of requests that an earlier run could not write, and so has lost."""
        with failures_named(self._path):
            rows = self.connection.execute("SELECT number FROM requests WHERE body IS NULL")
            return [number for (number,) in rows]

    def fingerprints(self) -> Iterator[bytes]:
        """Yield the fingerprints of all that wait."""
        with failures_named(self._path):
            query = "SELECT fingerprint FROM requests WHERE fingerprint IS NOT NULL"
            for (fingerprint,) in self.connection.execute(query):
                yield fingerprint

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()
