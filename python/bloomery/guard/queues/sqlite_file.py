"""The file of a queue: opened and checked, changed in transactions, its errors in our words."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bloomery.errors import InvalidParameter, QueueUnavailable, UnsupportedVersion
from bloomery.storage.sqlite import Code, code_of, is_damage

_APPLICATION = 0x424C4D51  # "BLMQ": tells a queue of ours from any other file of SQLite
_VERSION = 1
_BUSY_SECONDS = 5.0
_HELD_BY_ANOTHER = "another process holds it: end that, or try again"
_DAMAGED = "the file is damaged: set it aside, and restore it from a backup"
# What to do about an error of SQLite's.
_NEXT_STEP: dict[int | None, str] = {
    Code.FULL: "make room on the disk",
    Code.LOCKED: _HELD_BY_ANOTHER,
    Code.BUSY: _HELD_BY_ANOTHER,
    Code.READONLY: "give this user the right to write the file and its folder",
    Code.CANTOPEN: "is the folder there, and may this user write to it?",
    Code.CORRUPT: "the file is damaged: set it aside, and save what sqlite3's .recover finds in it",
}
# Connections of the process that this one was forked from: they are neither used nor closed.
_ABANDONED: list[list[sqlite3.Connection]] = []
_HELD: list[threading.Lock] = []  # while a process forks


def _enter_wal_mode(connection: sqlite3.Connection) -> None:
    """Try until it is done: at this step SQLite does not wait for others that open the file too."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as failure:
            if code_of(failure) != Code.BUSY or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


class SqliteFile:
    """A file of SQLite in WAL mode, for any thread and several processes."""

    def __init__(self, path: str | os.PathLike[str], tables: str, *, fsync: bool) -> None:
        """`tables` makes those of a new file; one that is not ours is refused, and not touched."""
        self.path = Path(path)
        self._tables = tables
        self._fsync = fsync
        self._closed = False
        with self._failures_as_errors():
            self._make()
            self._connect()
        _FILES.add(self)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which is on disk when it ends, or was never there."""
        self._ready()
        with self._writer_lock, self._failures_as_errors():
            connection = self._connections[0]
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For reading, while others write."""
        self._ready()
        with self._reader_lock, self._failures_as_errors():
            yield self._connections[1]

    def close(self) -> None:
        """Let go of the file."""
        self._closed = True
        if self._process == os.getpid():
            with self._writer_lock, self._reader_lock:
                for connection in self._connections:
                    connection.close()

    def _ready(self) -> None:
        if self._closed:
            raise QueueUnavailable(f"{self.path}: the queue is closed: make a new one")
        if self._process != os.getpid():  # after a fork
            _ABANDONED.append(self._connections)
            with self._failures_as_errors():
                self._connect()

    def _connect(self) -> None:
        self._writer_lock, self._reader_lock = threading.Lock(), threading.Lock()
        self._connections = [self._connection(), self._connection()]
        self._process = os.getpid()

    def _connection(self) -> sqlite3.Connection:
        # mode=rw: a file that was removed is not made anew behind our back.
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,  # we begin and commit
            check_same_thread=False,  # one thread at a time: the locks above
        )
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'NORMAL'}")
        return connection

    def _make(self) -> None:
        """Make the tables of a new file; check those of one that is there."""
        if self.path.is_file() and self.path.stat().st_size:
            self._check_header()
        else:
            # Keys and values are nobody else's business.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = self._connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
            present = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not present:
                # All of it lands in the file itself, since there is no WAL yet: a header of ours
                # means that the tables are there.
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                for statement in self._tables.split(";"):
                    connection.execute(statement)
            connection.execute("COMMIT")
            _enter_wal_mode(connection)
            if present and _columns(connection) != self._expected():
                raise QueueUnavailable(
                    f"{self.path}: the tables are not those of a queue: {_DAMAGED}"
                )
        finally:
            connection.close()

    def _expected(self) -> dict[str, list[str]]:
        memory = sqlite3.connect(":memory:")
        try:
            memory.executescript(self._tables)
            return _columns(memory)
        finally:
            memory.close()

    def _check_header(self) -> None:
        """Read without SQLite, which might change what it opens."""
        with self.path.open("rb") as file:
            header = file.read(100)
        kind = int.from_bytes(header[68:72], "big")
        if not header.startswith(b"SQLite format 3\0") or kind != _APPLICATION:
            raise InvalidParameter(
                f"{self.path} is there and is no queue of bloomery: give a path of its own"
            )
        version = int.from_bytes(header[60:64], "big")
        if version != _VERSION:
            raise UnsupportedVersion(
                f"{self.path} is a queue of version {version}, must be {_VERSION}: use the "
                "bloomery that made it"
            )

    @contextmanager
    def _failures_as_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as problem:
            if isinstance(problem, QueueUnavailable):
                raise
            if self._closed:
                self._ready()
            step = _NEXT_STEP.get(code_of(problem)) or (_DAMAGED if is_damage(problem) else "")
            raise QueueUnavailable(
                f"{self.path}: {problem}{f': {step}' if step else ''}"
            ) from problem


def _before_fork() -> None:
    """No thread is inside SQLite, whose own locks a child would find taken for ever."""
    for file in list(_FILES):
        for lock in (file._writer_lock, file._reader_lock):
            lock.acquire()
            _HELD.append(lock)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().release()


_FILES: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


def _columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    rows = connection.execute(
        "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' ORDER BY t.name, c.cid"
    )
    columns: dict[str, list[str]] = {}
    for table, column in rows:
        columns.setdefault(table, []).append(column)
    return columns
