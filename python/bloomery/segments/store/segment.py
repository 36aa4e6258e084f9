"""A segment: keys and values in order, in a file of SQLite that never changes, and its filter.

SQLite gives point gets of microseconds, ordered scans and a file that anybody can open; what it
does not give is a checksum, so the manifest has one of the whole file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import bloomery._native as _native
from bloomery.errors import CorruptData
from bloomery.segments import filters
from bloomery.segments.store.manifest import SegmentEntry
from bloomery.segments.store.wal import Entry
from bloomery.storage.files import CHUNK_BYTES, sync_folder
from bloomery.storage.sqlite import Code, code_of

_TABLE = "CREATE TABLE entries(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"
_RESTORE = "restore the store's folder from a copy"
_GET = "SELECT value FROM entries WHERE key = ?"


class Segment:
    """A segment that is open to be read."""

    def __init__(self, folder: Path, entry: SegmentEntry, *, verify: bool = True) -> None:
        self.entry = entry
        self.path, self._filter_path = segment_paths(folder, entry.number)
        self._verify(whole=verify)
        self.filter = self._open_filter()
        self._lock = threading.Lock()
        self._connection = _connect(self.path)

    def __del__(self) -> None:
        """Close the file as soon as no reader has the segment any more."""
        with contextlib.suppress(AttributeError):
            self._connection.close()

    @property
    def name(self) -> str:
        """What `explain` calls it."""
        return f"{self.entry.number:06}"

    def _verify(self, *, whole: bool) -> None:
        try:
            checksum = _checksum(self.path) if whole else self.entry.checksum
            actual = self.path.stat().st_size, checksum
        except FileNotFoundError:
            raise CorruptData(f"{self.path}: a segment is missing: {_RESTORE}") from None
        if actual != (self.entry.nbytes, self.entry.checksum):
            raise CorruptData(
                f"{self.path}: a damaged segment, by its size or checksum: {_RESTORE}"
            )

    def _open_filter(self) -> _native.Pack:
        """Open the filter; one that is missing or damaged is made anew, of the segment's keys."""
        with contextlib.suppress(OSError, CorruptData):
            data = self._filter_path.read_bytes()
            if _native.checksum(data) == self.entry.filter_checksum:
                return filters.open_saved(data)
        data = _filter_of(self.path, self.entry.fp_chance)
        with contextlib.suppress(OSError):  # it serves from memory all the same
            _write(self._filter_path, data)
        return filters.open_saved(data)

    def get(self, key: bytes) -> tuple[bytes | None] | None:
        """Return the value, None of a key that was deleted, in a tuple; None: it is not there."""
        try:
            with self._lock:
                row: tuple[bytes | None] | None = self._connection.execute(_GET, (key,)).fetchone()
        except sqlite3.DatabaseError as failure:
            raise CorruptData(f"{self.path}: damaged ({failure}): {_RESTORE}") from None
        return row

    def entries(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[Entry]:
        """Read entries in order, from a key on and up to another."""
        bounds: list[bytes] = [start]
        query = "SELECT key, value FROM entries WHERE key >= ?"
        if stop is not None:
            query += " AND key < ?"
            bounds.append(stop)
        # A connection of its own: others go on asking meanwhile.
        with contextlib.closing(_connect(self.path)) as connection:
            yield from connection.execute(f"{query} ORDER BY key", bounds)

    def remove_files(self) -> None:
        """Remove the files; whoever reads the segment goes on reading it."""
        for path in (self.path, self._filter_path):
            path.unlink(missing_ok=True)


def segment_paths(folder: Path, number: int) -> tuple[Path, Path]:
    """Where a segment is, and its filter."""
    return folder / f"segment-{number:06}.sqlite", folder / f"segment-{number:06}.filter"


def write_segment(
    folder: Path, number: int, entries: Iterable[Entry], fp_chance: float
) -> SegmentEntry | None:
    """Write a new segment of entries in order, and bring it to the disk; None if there are none.

    After an OSError there is no segment, and no file of one.
    """
    path, filter_path = segment_paths(folder, number)
    try:
        keys, deletions = _write_entries(path, entries)
        if not keys:
            path.unlink()
            return None
        data = _filter_of(path, fp_chance)
        _write(filter_path, data)
        sync_folder(str(folder))
        return SegmentEntry(
            number=number,
            keys=keys,
            deletions=deletions,
            nbytes=path.stat().st_size,
            checksum=_checksum(path),
            fp_chance=fp_chance,
            filter_bytes=len(data),
            filter_checksum=_native.checksum(data),
        )
    except BaseException:
        for leftover in (path, filter_path):
            with contextlib.suppress(OSError):
                leftover.unlink()
        raise


def _write_entries(path: Path, entries: Iterable[Entry]) -> tuple[int, int]:
    path.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            # Nobody needs the half of it: what goes wrong is removed as a whole.
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute(_TABLE)
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO entries VALUES (?, ?)", entries)
            connection.execute("COMMIT")
            counts: tuple[int, int] = connection.execute(
                "SELECT count(*), count(*) - count(value) FROM entries"
            ).fetchone()
    except sqlite3.Error as failure:
        full = code_of(failure) == Code.FULL
        raise OSError(errno.ENOSPC if full else errno.EIO, str(failure), str(path)) from None
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return counts


def _filter_of(path: Path, fp_chance: float) -> bytes:
    with contextlib.closing(_connect(path)) as connection:
        data, _ = filters.build(
            lambda: (key for (key,) in connection.execute("SELECT key FROM entries")), fp_chance
        )
    return data


def _connect(path: Path) -> sqlite3.Connection:
    # Immutable: no locks, and no look whether another process has changed it.
    name = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    return sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _checksum(path: Path) -> int:
    checksum = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            checksum = _native.checksum(chunk, checksum)
    return checksum
