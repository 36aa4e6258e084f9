"""A durable queue in a file of SQLite, which survives a crash: any thread, several processes.

    waiting: one row for each item, in order      parked: what the source refuses
    counts: how many writes wait, and how many items     lease: who drains, for how many
    seconds, and until when by the machine's steady clock, which begins anew when it is started

Every change is one transaction, on disk when it returns: it survives a crash. Look-ups ask this
queue each time they reach the source: they read by a connection of their own, which waits for no
write.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

import bloomery._native as _native
from bloomery.boottime import boottime
from bloomery.errors import InvalidParameter, QueueUnavailable
from bloomery.guard.codec import encode, read_item
from bloomery.guard.protocols import Item
from bloomery.guard.queues.sqlite_file import SqliteFile

_VALUES = 500  # values in one statement: SQLite before 3.32 takes 999
_ITEM = "number, what, key, value, idempotency_key, at"
_TABLES = """
CREATE TABLE waiting (number INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL, name BLOB,
    key BLOB NOT NULL, value BLOB NOT NULL, idempotency_key TEXT NOT NULL UNIQUE, at REAL NOT NULL);
CREATE INDEX waiting_name ON waiting (name) WHERE name IS NOT NULL;
CREATE TABLE parked (number INTEGER PRIMARY KEY, what TEXT NOT NULL, key BLOB NOT NULL,
    value BLOB NOT NULL, idempotency_key TEXT NOT NULL, at REAL NOT NULL, why TEXT NOT NULL);
CREATE TABLE counts (items INTEGER NOT NULL, writes INTEGER NOT NULL);
INSERT INTO counts VALUES (0, 0);
CREATE TABLE lease (owner TEXT NOT NULL, until REAL NOT NULL);
INSERT INTO lease VALUES ('', 0);
"""


class SqliteQueue:
    """A queue in a file, made if it is not there.

        Guard(filter, source, queue=SqliteQueue("waiting.sqlite"), on_outage="queue")

    `max_items` bounds it, of which look-ups take at most half: writes matter more. `fsync=False`
    is faster, and may lose the last items when the machine crashes (not when the process does).
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_items: int = 1_000_000, fsync: bool = True
    ) -> None:
        if type(max_items) is not int or max_items < 2:
            raise InvalidParameter(f"max_items is {max_items!r}, must be an integer of at least 2")
        self.max_items = max_items
        self._file = SqliteFile(path, _TABLES, fsync=fsync)

    def put(self, items: Sequence[Item]) -> None:
        """Write them down, behind all that wait; one whose idempotency key waits already stays
        where it is. One that was parked waits again."""
        rows = [
            (
                *(item.what, None if item.what == "look" else _native.canonical(item.key)),
                *(encode(item.key), encode(item.value), item.idempotency_key, item.at),
            )
            for item in items
        ]
        looks = all(item.what == "look" for item in items)
        with self._file.writing() as connection:
            kept = writes = 0
            for row in rows:
                new = connection.execute(
                    "INSERT OR IGNORE INTO waiting (what, name, key, value, idempotency_key, at)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    row,
                ).rowcount
                kept += new
                writes += new if row[1] is not None else 0
            if not kept:
                return
            connection.executemany(
                "DELETE FROM parked WHERE idempotency_key = ?", [(row[4],) for row in rows]
            )
            connection.execute(
                "UPDATE counts SET items = items + ?, writes = writes + ?", (kept, writes)
            )
            (waiting,) = connection.execute("SELECT items FROM counts").fetchone()
            most = self.max_items // 2 if looks else self.max_items
            if waiting > most:
                raise QueueUnavailable(
                    f"{self._file.path}: the queue is full ({waiting - kept} items wait, of at "
                    f"most {most}{' with look-ups' if looks else ''}): let the source answer "
                    "again, or give a larger max_items"
                )

    def pending(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of these keys (canonical) have a write that waits."""
        pending: set[bytes] = set()
        with self._file.reading() as connection:
            if not _count(connection, "writes"):
                return pending
            for start in range(0, len(keys), _VALUES):
                batch = keys[start : start + _VALUES]
                pending.update(
                    name
                    for (name,) in connection.execute(
                        f"SELECT name FROM waiting WHERE name IN ({_placeholders(batch)})", batch
                    )
                )
        return pending

    def writes(self) -> int:
        """How many writes wait."""
        with self._file.reading() as connection:
            return _count(connection, "writes")

    def waiting(self) -> int:
        """How many items wait."""
        with self._file.reading() as connection:
            return _count(connection, "items")

    def keys(self) -> list[Any]:
        """The keys of all adds that wait, as they were given."""
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT {_ITEM} FROM waiting WHERE what = 'add' ORDER BY number"
            )
            return [self._item(*row).key for row in rows]

    def head(self, most: int) -> list[Item]:
        """The first items, which stay."""
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT {_ITEM} FROM waiting ORDER BY number LIMIT ?", (most,)
            )
            return [self._item(*row) for row in rows]

    def done(self, items: Sequence[Item]) -> int:
        """These are done: they wait no more, nor are they parked. How many waited until now."""
        waited = 0
        with self._file.writing() as connection:
            for start in range(0, len(items), _VALUES):
                numbers = [item.id for item in items[start : start + _VALUES]]
                waited += self._take_out(connection, numbers)
        return waited

    def park(self, item: Item, why: str) -> None:
        """Set this one aside, so that those behind it go on. `put` lets it wait again, `done`
        drops it."""
        with self._file.writing() as connection:
            connection.execute(
                f"INSERT OR IGNORE INTO parked ({_ITEM}, why)"
                f" SELECT {_ITEM}, ? FROM waiting WHERE number = ?",
                (why, item.id),
            )
            self._take_out(connection, [item.id], "waiting")

    def _take_out(self, connection: sqlite3.Connection, numbers: list[Any], *tables: str) -> int:
        places, waited = _placeholders(numbers), 0
        (writes,) = connection.execute(
            f"SELECT count(name) FROM waiting WHERE number IN ({places})", numbers
        ).fetchone()
        for table in tables or ("waiting", "parked"):
            gone = connection.execute(f"DELETE FROM {table} WHERE number IN ({places})", numbers)
            if table == "waiting":
                connection.execute(
                    "UPDATE counts SET items = items - ?, writes = writes - ?",
                    (gone.rowcount, writes),
                )
                waited = gone.rowcount
        return waited

    def parked(self) -> list[tuple[Item, str]]:
        """What was set aside, and why."""
        with self._file.reading() as connection:
            rows = connection.execute(f"SELECT why, {_ITEM} FROM parked ORDER BY number")
            return [(self._item(*row), why) for why, *row in rows]

    def lease(self, owner: str, seconds: float) -> bool:
        """Let this owner, and nobody else, drain for so long; False if another does."""
        return self._lease(owner, seconds, renews=False)

    def renew(self, owner: str, seconds: float) -> bool:
        """Let it drain for so long from now on; False if the lease was lost meanwhile."""
        return self._lease(owner, seconds, renews=True)

    def _lease(self, owner: str, seconds: float, *, renews: bool) -> bool:
        with self._file.writing() as connection:
            lease, until = connection.execute("SELECT owner, until FROM lease").fetchone()
            length, space, name = lease.partition(" ")
            now = boottime()
            # One that ends later than it can was given before the machine was started again.
            free = not (space and now < until <= now + float(length))
            if name != owner and (renews or not free):
                return False
            connection.execute(
                "UPDATE lease SET owner = ?, until = ?",
                (f"{float(seconds)} {owner}", now + seconds),
            )
            return True

    def release(self, owner: str) -> None:
        """Drain no longer."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE lease SET owner = '', until = 0"
                " WHERE substr(owner, instr(owner, ' ') + 1) = ?",
                (owner,),
            )

    def _item(self, number: int, what: Any, key: Any, value: Any, token: Any, at: Any) -> Item:
        try:
            return read_item(what, key, value, token, at, number)
        except ValueError as problem:
            raise QueueUnavailable(
                f"{self._file.path}: item {number} is damaged ({problem}): nothing behind it "
                "is done until its row is mended or deleted, by sqlite3"
            ) from None

    def close(self) -> None:
        """Let go of the file; what waits in it stays."""
        self._file.close()


def _count(connection: sqlite3.Connection, of: str) -> int:
    number: int = connection.execute(f"SELECT {of} FROM counts").fetchone()[0]
    return number


def _placeholders(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
