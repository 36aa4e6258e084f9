"""Reads a write-ahead log. Every row that is not damaged is read, and all damage is listed;
`recovery` decides whether that is good enough."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from bloomery import _native, errors
from bloomery.service.durability.folder import FORMAT
from bloomery.service.durability.segment import TABLE, row_sum, segment_path, segments

Row: TypeAlias = tuple[int, float, int, int, bytes]  # seq, at, filter, op, data
_Stored: TypeAlias = tuple[int, float, int, int, bytes, int]

_SELECT = "SELECT seq, at, filter, op, data, sum FROM log"
_INDEX = struct.Struct("=12xBxHI28x")  # of SQLite: is it valid, bytes of a page, pages of the file
_WAL_HEAD, _FRAME_HEAD = 32, 24  # bytes
_MOST_LOOKUPS = 1_000_000
_REACH = 20_000  # numbers without a row, where nobody knows which is the last
_MOST_BYTES = 1 << 33  # of a segment
_TOGETHER = 256  # rows


class LogReader:
    """The rows of all segments from `first` on, up to before `end`, in order.

    `problems` has a sentence for each damage that was found so far: the first is in segment
    `broken`, behind row `intact`. `last` is the number of the last row, `format` the newest version
    of a segment.
    """

    def __init__(
        self, folder: str | os.PathLike[str], first: int, seq: int, end: int | None = None
    ) -> None:
        """`seq` is the number of the last row before `first`."""
        self.folder = Path(folder)
        self.problems: list[str] = []
        self.last = seq
        self.rows = 0
        self.format = 0
        self.intact = seq
        self.broken: int | None = None
        numbers = [n for n in segments(folder) if n >= first and (end is None or n < end)]
        # A snapshot is made behind the start of its segment: that one must be there.
        least = first if first > 1 else 0
        after = max([*numbers, least]) + 1 if end is None else end
        self.segments = numbers
        missing = sorted({*range(first, after)} - {*numbers})
        if missing:
            names = ", ".join(segment_path(folder, n).name for n in missing[:5])
            self._note_damage(missing[0], f"{self.folder}: no {names}: what was done then is lost")

    def paths(self) -> list[Path]:
        """Where the segments are."""
        return [segment_path(self.folder, number) for number in self.segments]

    def _note_damage(self, number: int, text: str) -> None:
        if self.broken is None:
            self.broken, self.intact = number, self.last
        self.problems.append(text)

    def __iter__(self) -> Iterator[Row]:
        """Yield every row that is as it was written."""
        for number in self.segments:
            path = segment_path(self.folder, number)
            damaged = 0
            for seq, at, filter, op, data, checksum in chain.from_iterable(
                self._read_segment(number, path)
            ):
                try:
                    good = row_sum(seq, at, filter, op, data) == checksum
                except (TypeError, struct.error):
                    good = False
                if not good or seq <= self.last:
                    damaged += 1
                    if damaged == 1:
                        what = "is there again" if good else "is damaged"
                        self._note_damage(number, f"{path}: row {seq!r:.40} {what}")
                    continue
                if seq != self.last + 1 and not damaged:
                    missing = f"{self.last + 1} to {seq - 1}"
                    self._note_damage(number, f"{path}: rows {missing} are missing")
                self.last = seq
                self.rows += 1
                yield seq, at, filter, op, data
            if damaged > 1:
                self._note_damage(number, f"{path}: {damaged - 1} more rows are damaged")
            lost = _lost_frames(Path(f"{path}-wal"))
            if lost:
                self._note_damage(
                    number, f"{path}-wal: damaged: its last {lost} pages could not be read"
                )
        if self.broken is None:
            self.intact = self.last

    def _read_segment(self, number: int, path: Path) -> Iterator[list[_Stored]]:
        try:
            with self._padded(number, path) as readable:
                # Read only: closing it does not fold the write-ahead file of a killed server in,
                # which takes seconds, and damaged files stay as they are. Without such a file
                # nobody writes.
                mode = "mode=ro" if Path(f"{readable}-wal").exists() else "immutable=1"
                opened = sqlite3.connect(f"file:{_quoted(readable)}?{mode}", uri=True, timeout=10)
                with contextlib.closing(opened) as connection:
                    self._check(connection)
                    yield from self._salvage(connection, number, path)
        except sqlite3.OperationalError as problem:
            # A full disk, no right to write: nothing is lost, and all can be read another time.
            raise errors.LogUnavailable(f"{path}: {problem}: it cannot be read") from None
        except sqlite3.DatabaseError as problem:
            self._note_damage(number, f"{path}: {problem}: nothing of it can be read")

    @contextlib.contextmanager
    def _padded(self, number: int, path: Path) -> Iterator[Path]:
        """The segment; or, if its end is missing, a copy with zeros there: SQLite would read
        nothing of one that is shorter than it says."""
        with path.open("rb") as file:
            head = file.read(32)
        nbytes = path.stat().st_size
        right = int.from_bytes(head[16:18], "big") * int.from_bytes(head[28:32], "big")
        if not nbytes < right <= _MOST_BYTES or Path(f"{path}-wal").exists():
            yield path
            return
        self._note_damage(number, f"{path}: {nbytes} bytes, expected {right}: its end is missing")
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(path, folder)
            os.truncate(copy, right)
            yield Path(copy)

    def _check(self, connection: sqlite3.Connection) -> None:
        """Look at what a query would not show: another version, another table by this name."""
        connection.execute("PRAGMA trusted_schema=OFF")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT:
            raise sqlite3.DatabaseError(
                f"version {version}, and this bloomery knows versions up to {FORMAT}: start the "
                "newer bloomery that wrote it"
            )
        self.format = max(self.format, version)
        schema = connection.execute("SELECT sql FROM sqlite_master WHERE name='log'").fetchone()
        if schema != (TABLE,):
            raise sqlite3.DatabaseError("it has no table of our log")

    def _salvage(
        self, connection: sqlite3.Connection, number: int, path: Path
    ) -> Iterator[list[_Stored]]:
        before = self.last
        try:
            cursor = connection.execute(f"{_SELECT} ORDER BY seq")
            while rows := cursor.fetchmany(_TOGETHER):
                before = rows[-1][0]
                yield rows
            return
        except sqlite3.DatabaseError as problem:
            self._note_damage(number, f"{path}: {problem}: rows after {before} are read one by one")
        end = None
        with contextlib.suppress(sqlite3.Error):
            end = connection.execute("SELECT max(seq) FROM log").fetchone()[0] or 0
        seq = last_seen = before
        while seq < (last_seen + _REACH if end is None else min(end, before + _MOST_LOOKUPS)):
            seq += 1
            with contextlib.suppress(sqlite3.Error):
                rows = connection.execute(f"{_SELECT} WHERE seq = ?", (seq,)).fetchall()
                last_seen = seq if rows else last_seen
                yield rows


def pages_cut_off(path: Path) -> int:
    """How much shorter a segment's write-ahead file is than its server had made it when it was
    killed: the index which SQLite keeps beside it tells, twice, until somebody opens it again. For
    folders of version 1, which have no control file."""
    wal, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    nbytes = wal.stat().st_size if wal.exists() else 0
    try:
        with index.open("rb") as file:
            head, same = file.read(_INDEX.size), file.read(_INDEX.size)
    except FileNotFoundError:
        return 0
    if len(same) < _INDEX.size or head != same:
        return 0
    begun, page_bytes, pages = _INDEX.unpack(head)
    there: int = max(0, nbytes - _WAL_HEAD) // (_FRAME_HEAD + page_bytes)
    return max(0, pages - there) if begun else 0


def _lost_frames(wal: Path) -> int:
    try:
        with wal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return _native.lost_frames(mapped)
    except (FileNotFoundError, ValueError):  # closed and gone, or empty
        return 0


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
