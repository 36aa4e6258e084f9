"""An exact set of keys on disk, with a filter in front: most questions never reach the disk.

    key ──> filter ── no ──────> definitely new: written to SQLite
                └──── maybe ───> SQLite is asked: seen, or a wrong maybe, and written

A row is the key's canonical bytes, or a digest of 33 bytes where those are longer than 32. The
filter is saved when the set is closed and removed when it is opened, so that one that is there is
whole; after a crash it is filled again from the rows, about a second for a million.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import bloomery._native as _native
from bloomery import errors
from bloomery.filters import AnyFilter, RotatingBloomFilter, ScalableBloomFilter
from bloomery.storage.sqlite import connect, failures_named

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Key

_APPLICATION = 0x424C4D53  # "BLMS"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (key BLOB PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS filter (token TEXT NOT NULL)
"""
_LONGEST = 32
_ROWS = 10_000  # at a time, to fill the filter; and between two looks for what is too old


class DiskSet:
    """A set of any number of keys in a file of SQLite, used as a filter is: but exact.

    >>> with DiskSet("seen.sqlite") as seen:
    ...     seen.add("alice"), seen.add("alice"), "bob" in seen
    (True, False, False)

    `filter` is what stands in front, empty and used by nobody else; by default one that grows. With
    a `RotatingBloomFilter` of a window, keys are forgotten when the window has passed since they
    were added. One process at a time has the file; its threads may share the set.

    Every `commit_every` new keys are made durable together. `fsync`: so that a power cut does not
    take them back; without, only the end of the process does not. Where they cannot be written, an
    OSError says how many are not in the set: those since the last commit.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        filter: AnyFilter | None = None,
        *,
        fsync: bool = True,
        commit_every: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the set, or make it. OSError if it cannot be written, or another process has it."""
        if type(commit_every) is not int or commit_every < 1:
            raise errors.InvalidParameter(
                f"commit_every is {commit_every!r}, must be an integer of at least 1"
            )
        self.path = Path(path)
        self.window = _window_of(filter)
        self.maybes = self.wrong_maybes = 0
        self._every, self._clock = commit_every, clock
        self._pending = 0  # keys that wait for the next commit
        self._added = 0
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = connect(
            self.path, _APPLICATION, "set of keys", _SCHEMA, fsync=fsync
        )
        try:
            with failures_named(self.path):
                self._filter = self._open_filter(filter)
        except BaseException:
            self._connection.close()
            raise

    def add(self, key: Key) -> bool:
        """Add the key; True if it is new."""
        row = _row_of(key)
        with self._lock, failures_named(self.path):
            connection = self._ready()
            now = self._clock() if self.window else 0.0
            new = self._filter.add(row) or not self._confirm(connection, row)
            if new or self.window:
                self._write(connection, row, now)
            return new

    def __contains__(self, key: Key) -> bool:
        """Return whether the key was added."""
        row = _row_of(key)
        with self._lock, failures_named(self.path):
            connection = self._ready()
            return row in self._filter and self._confirm(connection, row)

    contains = __contains__

    def __len__(self) -> int:
        """Return how many keys there are; this counts the rows."""
        with self._lock, failures_named(self.path):
            oldest = self._oldest()
            query = "SELECT count(*) FROM keys WHERE at >= ?"
            return int(self._ready().execute(query, (oldest,)).fetchone()[0])

    def __bool__(self) -> bool:
        """Return True, of an empty set too: as a filter does."""
        return True

    def commit(self) -> None:
        """Make durable whatever was added so far."""
        with self._lock, failures_named(self.path):
            if self._pending:
                self._commit(self._ready())

    def info(self) -> dict[str, Any]:
        """Return its figures, ready for JSON."""
        return {
            "path": str(self.path),
            "keys": len(self),
            "file_bytes": self.path.stat().st_size,
            "filter_bytes": self._filter.nbytes,
            "maybes": self.maybes,
            "wrong_maybes": self.wrong_maybes,
        }

    @property
    def nbytes(self) -> int:
        """Bytes of the filter; SQLite has a cache of 16 MiB beside it."""
        return self._filter.nbytes

    def close(self) -> None:
        """Make all of it durable and let go of the file."""
        with self._lock, failures_named(self.path):
            connection, self._connection = self._connection, None
            if connection is None or self._process != os.getpid():
                return
            try:
                if self._pending:
                    self._commit(connection)
                if self.window is None:  # what forgets is filled again from what is not forgotten
                    token = secrets.token_hex(8)
                    connection.execute("INSERT INTO filter VALUES (?)", (token,))
                    self._filter.save(self._saved(token))
            finally:
                connection.close()

    def __enter__(self) -> Self:
        """Be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            raise errors.InvalidParameter(f"{self.path}: the set is closed: open it again")
        if self._process != os.getpid():
            raise errors.InvalidParameter(
                f"{self.path}: was opened before a fork: open one set, in one process"
            )
        return self._connection

    def _write(self, connection: sqlite3.Connection, row: bytes, now: float) -> None:
        self._pending += 1
        self._added += 1
        try:
            if not connection.in_transaction:
                connection.execute("BEGIN")
            connection.execute("INSERT OR REPLACE INTO keys VALUES (?, ?)", (row, now))
            if self.window and self._added % _ROWS == 0:
                connection.execute("DELETE FROM keys WHERE at < ?", (self._oldest(),))
        except sqlite3.Error as problem:
            self._take_back(connection, problem)
        if self._pending >= self._every:
            self._commit(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as problem:
            self._take_back(connection, problem)
        self._pending = 0

    def _take_back(self, connection: sqlite3.Connection, problem: sqlite3.Error) -> NoReturn:
        """Roll back, unless SQLite did, and say what is lost. The filter may know keys that are no
        rows now: it says maybe to them, and the rows say no."""
        lost, self._pending = self._pending, 0
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise type(problem)(f"{problem}, keys since the last commit are not in the set: {lost}")

    def _confirm(self, connection: sqlite3.Connection, row: bytes) -> bool:
        self.maybes += 1
        query = "SELECT 1 FROM keys WHERE key = ? AND at >= ?"
        if connection.execute(query, (row, self._oldest())).fetchone():
            return True
        self.wrong_maybes += 1
        return False

    def _oldest(self) -> float:
        return self._clock() - self.window if self.window else 0.0

    def _saved(self, token: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{token}.bloom")

    def _open_filter(self, filter: AnyFilter | None) -> AnyFilter:
        """Return the filter with all rows in it: the saved one, or filled from them."""
        connection = self._ready()
        self._check_window(connection)
        tokens = [token for (token,) in connection.execute("SELECT token FROM filter")]
        saved = next((p for p in map(self._saved, tokens) if p.exists()), None)
        loaded = None
        if filter is None and saved is not None:
            with suppress(errors.CorruptData):  # the rows have all that was in it
                loaded = ScalableBloomFilter.load(saved)
        # From here on it may lack keys: whoever opens the set after a crash must not trust it.
        connection.execute("DELETE FROM filter")
        for path in map(self._saved, tokens):
            path.unlink(missing_ok=True)
        if loaded is not None:
            return loaded
        if self.window:
            connection.execute("CREATE INDEX IF NOT EXISTS keys_at ON keys (at)")
            connection.execute("DELETE FROM keys WHERE at < ?", (self._oldest(),))
        filled = ScalableBloomFilter(error_rate=0.01) if filter is None else filter
        rows = connection.execute("SELECT key FROM keys")
        while batch := rows.fetchmany(_ROWS):
            filled.update([row for (row,) in batch])
        return filled

    def _check_window(self, connection: sqlite3.Connection) -> None:
        """Refuse a set of times without a window, and one without times with it. Only a set that
        was opened with a window has the index, without which this would read all rows."""
        indexed = "SELECT 1 FROM sqlite_master WHERE name = 'keys_at'"
        timed = connection.execute(indexed).fetchone() is not None
        if self.window and connection.execute("SELECT 1 FROM keys WHERE at = 0 LIMIT 1").fetchone():
            raise errors.InvalidParameter(
                f"{self.path} was made without a window: leave it out, or name another file"
            )
        if (
            not self.window
            and timed
            and connection.execute("SELECT 1 FROM keys WHERE at > 0 LIMIT 1").fetchone()
        ):
            raise errors.InvalidParameter(
                f"{self.path} was made with a window: give one, or name another file"
            )


def _window_of(filter: AnyFilter | None) -> float | None:
    if not isinstance(filter, RotatingBloomFilter):
        return None
    if filter.window is None:
        raise errors.InvalidParameter(
            "filter is a RotatingBloomFilter without a window, must have one: window='7d', so that "
            "the file knows what to forget"
        )
    return filter.window


def _row_of(key: Key) -> bytes:
    canonical = _native.canonical(key)
    if len(canonical) <= _LONGEST:
        return canonical
    return blake2b(canonical, digest_size=_LONGEST + 1).digest()
