"""SQLite: rows come as they are read; values have the types they have."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from bloomery.building.sql import PLACEHOLDER


class Sqlite:
    """One database file."""

    lost: tuple[type[Exception], ...] = ()  # what is on a disk does not come back by itself
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    secrets: Sequence[object] = ()

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):  # connecting would only say that it is unable to
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.name = f"sqlite:///{path}"
        self._path = path

    def connect(self) -> Any:
        """A connection that only reads, all at one moment."""
        address = f"file:{quote(os.path.abspath(self._path))}?mode=ro"
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
        connection.execute("BEGIN")
        return connection

    def columns(self, connection: Any, sql: str) -> dict[str, str]:
        """The columns; which types they hold, their rows will say."""
        return {column[0]: "" for column in connection.execute(sql).description}

    def primary_key(self, connection: Any, table: str) -> str | None:
        """By the catalogue. Only those of whole numbers: others may be NULL in many rows."""
        schema, _, name = table.rpartition(".")
        sql = "SELECT name, type FROM pragma_table_info(?, ?) WHERE pk"
        rows = connection.execute(sql, [name, schema or "main"]).fetchall()
        return str(rows[0][0]) if [row[1].upper() for row in rows] == ["INTEGER"] else None

    def estimate(self, connection: Any, sql: str) -> int | None:
        """SQLite has none."""
        return None

    def fetch(self, connection: Any, sql: str, values: list[Any], size: int) -> Iterator[list[Any]]:
        """Read on, a batch at a time."""
        cursor = connection.execute(sql.replace(PLACEHOLDER, "?"), values)
        while rows := cursor.fetchmany(size):
            yield rows
