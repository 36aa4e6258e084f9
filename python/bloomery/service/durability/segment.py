"""Segments of the log: SQLite databases, each written to until the next one begins."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import zlib
from pathlib import Path

from bloomery.service.durability.folder import FORMAT
from bloomery.storage import files

TABLE = (
    "CREATE TABLE log(seq INTEGER PRIMARY KEY, at REAL, filter INTEGER, op INTEGER, data BLOB, "
    "sum INTEGER)"
)
# The write-ahead file of a segment is folded into its database only when the segment is closed. A
# commit puts at least one page into it: small pages keep it short, large ones suit long records.
_PAGE_BYTES = 2048
_ROW = struct.Struct("<qdqq")


def row_sum(seq: int, at: float, filter: int, op: int, data: bytes) -> int:
    """The checksum of a row."""
    return zlib.crc32(data, zlib.crc32(_ROW.pack(seq, at, filter, op)))


def segment_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Return the path of a segment."""
    return Path(folder, f"{number:08}.sqlite")


def segments(folder: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the segments there are, in order."""
    paths = Path(folder).glob("*.sqlite")
    return sorted(int(path.stem) for path in paths if path.stem.isdecimal())


def template(folder: Path) -> bytes:
    """Return the bytes of an empty segment. A new segment is a copy that gets its name when it is
    whole: one without a table is then damaged, and never one that a kill left half made."""
    path = folder / ".template.tmp"
    path.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.execute(TABLE)
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def remove_segment(path: Path) -> None:
    """Remove a segment and what SQLite keeps beside it."""
    for name in (f"{path}-wal", f"{path}-shm", path, path.with_name(f".{path.name}.tmp")):
        Path(name).unlink(missing_ok=True)


class LogSegment:
    """A segment of the log that is open for writing."""

    def __init__(self, path: Path, empty: bytes, synchronous: str) -> None:
        self.path = path
        self.wal = self.database = -1
        self.named = False  # on the disk, name and head
        self.flushed = False  # nothing more comes, and all of it is on the disk
        self.doubtful = False  # a sync failed: what the kernel says of it from now on may be wrong
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(empty)
        temporary.rename(path)
        # Any thread may use it, one at a time. Without a timeout: nobody else writes.
        self.connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self.connection.execute("PRAGMA wal_autocheckpoint=0")
            self.connection.execute(f"PRAGMA synchronous={synchronous}")
            self.connection.execute("SELECT 1 FROM log").fetchall()  # makes the write-ahead file
            self.wal = os.open(f"{path}-wal", os.O_RDWR)
            # Kept open: closing any handle of a file gives up all locks that this process has on
            # it, SQLite's too; another process would then take the segment for nobody's.
            self.database = os.open(path, os.O_RDWR)
            if synchronous == "FULL":
                self._name()
        except BaseException:
            self.close()
            raise

    def sync(self) -> None:
        """Bring all that was committed to the disk."""
        try:
            os.fdatasync(self.wal)
            if not self.named:
                self._name()
        except OSError:
            self.doubtful = True
            raise

    def _name(self) -> None:
        os.fsync(self.database)
        files.sync_folder(str(self.path.parent))
        self.named = True

    def fold(self, durable: bool) -> None:
        """Fold the write-ahead file into the database; `durable`: which is on the disk before the
        write-ahead file goes. If it cannot be, all is as before."""
        if durable:
            self.connection.execute("PRAGMA synchronous=FULL")
        busy, _, _ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("somebody reads it")

    def close(self) -> None:
        """Close the files."""
        self.connection.close()
        for file in (self.wal, self.database):
            if file >= 0:
                os.close(file)
