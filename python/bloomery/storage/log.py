"""The log of a server: what was done to its filters, in order, before anybody was told that it was
done. A folder of SQLite databases, the segments; the one with the highest number is written to."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import threading
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from bloomery import errors, sizing
from bloomery.storage import files
from bloomery.storage.control import ControlWriter
from bloomery.storage.folder import FORMAT
from bloomery.storage.operations import Record

__all__ = ["Log", "remove_segment", "row_sum", "segment_path", "segments"]

Row: TypeAlias = tuple[float, int, int, bytes]  # the time of its turn, and a record
Fsync: TypeAlias = Literal["always", "everysec", "never"]

TABLE = (
    "CREATE TABLE log(seq INTEGER PRIMARY KEY, at REAL, filter INTEGER, op INTEGER, data BLOB, "
    "sum INTEGER)"
)
_INSERT = "INSERT INTO log VALUES(?,?,?,?,?,?)"
# The write-ahead file of a segment is folded into its database only when the segment is closed. A
# commit puts at least one page into it: small pages keep it short, large ones suit long records.
_PAGE_BYTES = 2048
SEGMENT_BYTES = 256 << 20
_LOOK_EVERY = 256  # appends between two looks at the size
# With "everysec" SQLite itself syncs nothing: `sync` does. With NORMAL it would sync the first page
# of each segment's write-ahead file, in the thread that serves: 64 ms, once, beside a busy disk.
_SYNCHRONOUS = {"always": "FULL", "everysec": "OFF", "never": "OFF"}
_ROW = struct.Struct("<qdqq")


def row_sum(seq: int, at: float, filter: int, op: int, data: bytes) -> int:
    """The checksum of a row."""
    return zlib.crc32(data, zlib.crc32(_ROW.pack(seq, at, filter, op)))


def segment_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Where a segment is."""
    return Path(folder, f"{number:08}.sqlite")


def segments(folder: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the segments there are, in order."""
    found = Path(folder).glob("*.sqlite")
    return sorted(int(path.stem) for path in found if path.stem.isdecimal())


def _template(folder: Path) -> bytes:
    """An empty segment. A new one is a copy that gets its name when it is whole: a segment without
    a table is then a damaged one, and never one that a kill left half made."""
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


class _Segment:
    """A segment that is written to."""

    def __init__(self, path: Path, empty: bytes, synchronous: str) -> None:
        self.path = path
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
        except BaseException:
            self.connection.close()
            raise
        self.named = False  # on the disk, name and head

    def sync(self) -> None:
        """Return once all that was committed is on the disk."""
        os.fdatasync(self.wal)
        if not self.named:
            os.fsync(self.database)
            files.sync_folder(str(self.path.parent))
            self.named = True

    def close(self, durable: bool) -> None:
        """Fold the write-ahead file into the database; `durable`: which is on the disk before the
        write-ahead file goes."""
        try:
            if durable:
                self.connection.execute("PRAGMA synchronous=FULL")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.connection.close()
            os.close(self.wal)
            os.close(self.database)


class Log:
    """The log, open for writing, in a new segment.

    `append` is for the thread that serves; `sync` for another one, each second. With fsync="always"
    an append returns when the disk has it; with "everysec" a power cut may take what came after the
    last `sync`, a killed process loses nothing; with "never" the kernel chooses. `control` is told
    how far it was written and synced, before anybody is told.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        segment: int = 1,
        seq: int = 0,
        fsync: Fsync = "everysec",
        segment_bytes: int = SEGMENT_BYTES,
        control: ControlWriter | None = None,
    ) -> None:
        if fsync not in _SYNCHRONOUS:
            names = ", ".join(_SYNCHRONOUS)
            raise errors.InvalidParameter(f"fsync is {sizing.show(fsync)}, must be one of {names}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.fsync = fsync
        self.seq = seq  # of the last row
        self.segment = segment
        # Operations that are in memory and not yet in the log, each with its time.
        self.pending: list[Row] = []
        self._control = control
        self._segment_bytes = segment_bytes
        self._appends = 0
        self._unsynced = False  # did the last sync fail?
        self._closing: list[_Segment] = []
        self._syncing = threading.Lock()  # one at a time; and who closes waits for who syncs
        self._cutting = threading.Lock()  # who syncs finds every row in a segment that it syncs
        try:
            self._empty = _template(self.folder)
        except (sqlite3.Error, OSError) as problem:
            raise errors.LogUnavailable(f"{self.folder}: {problem}: no log can be made") from None
        self._current = self._made(segment)

    @property
    def path(self) -> Path:
        """The segment that is written to."""
        return self._current.path

    def append(self, records: Iterable[Record], at: float | None = None) -> None:
        """Write the records of a turn, as `write` does."""
        now = time.time() if at is None else at
        self.write([(now, *record) for record in records])

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows, all or none: then nobody may be told yet.

        LogUnavailable: they wait in `pending`, and are written before anything else is.
        """
        self.pending += rows
        self._write()
        self._appends += 1
        if self._appends % _LOOK_EVERY == 0:
            self._cut_if_large()

    def retry(self) -> bool:
        """Write what waits; True once nothing does. A segment that cannot be written any more is
        left for a new one; so is one that could not be synced: what the kernel failed to bring to
        the disk it does not try again, but closing the segment copies all of it."""
        for step in (self._write, self.cut)[self._unsynced :]:
            try:
                step()
                self._write()
            except errors.LogUnavailable:
                continue
            self._unsynced = False
            return True
        return False

    def _write(self) -> None:
        if not self.pending:
            return
        seq = self.seq
        rows = []
        for at, filter, op, data in self.pending:
            seq += 1
            rows.append((seq, at, filter, op, data, row_sum(seq, at, filter, op, data)))
        connection = self._current.connection
        try:
            if len(rows) == 1:
                connection.execute(_INSERT, rows[0])  # its own transaction: a third of the time
            else:
                connection.execute("BEGIN")
                connection.executemany(_INSERT, rows)
                connection.execute("COMMIT")
        except sqlite3.Error as problem:
            if connection.in_transaction:
                connection.rollback()
            raise errors.LogUnavailable(
                f"{self.path}: {problem}: {len(rows)} operations wait until it can be written"
            ) from None
        self.seq = seq
        if self._control is not None:
            self._control.wrote(seq)
        self.pending.clear()

    def _cut_if_large(self) -> None:
        if os.fstat(self._current.wal).st_size >= self._segment_bytes:
            with contextlib.suppress(errors.LogUnavailable):  # this one still serves
                self.cut()

    def cut(self) -> int:
        """Start the next segment; its number. The old one is closed by the next `sync`."""
        made = self._made(self.segment + 1)
        with self._cutting:
            self._closing.append(self._current)
            self._current = made
            self.segment += 1
        return self.segment

    def sync(self) -> None:
        """Bring to the disk what was appended before, and close old segments; in any thread."""
        with self._syncing:
            with self._cutting:
                seq, current = self.seq, self._current
                closing, self._closing = self._closing, []
            try:
                while closing:
                    closing.pop().close(self.fsync != "never")
                if self.fsync != "never":
                    current.sync()
                    # After a sync that failed the next one may say that all is well: it is not.
                    if self._control is not None and not self._unsynced:
                        self._control.synced(seq)
            except (sqlite3.Error, OSError) as problem:
                self._unsynced = True
                raise errors.LogUnavailable(
                    f"{current.path}: {problem}: what was written last may not survive a power cut"
                ) from None
            finally:
                self._closing += closing

    def close(self) -> None:
        """Bring everything to the disk and let go of the files."""
        if self.pending:
            self._write()
        self.sync()
        with self._syncing:
            self._current.close(self.fsync != "never")
            if self._control is not None:
                self._control.close()

    def _made(self, number: int) -> _Segment:
        path = segment_path(self.folder, number)
        if path.exists():
            raise errors.LogUnavailable(f"{path}: there is such a segment already")
        try:
            made = _Segment(path, self._empty, _SYNCHRONOUS[self.fsync])
            if self.fsync == "always":
                made.sync()
        except (sqlite3.Error, OSError) as problem:
            remove_segment(path)
            raise errors.LogUnavailable(f"{path}: {problem}: no segment can be made") from None
        return made
