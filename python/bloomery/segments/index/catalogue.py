"""What an index knows: its files and parts in SQLite, their filters end to end in one mapped file.

    catalogue.sqlite    meta, files, types, filters: where each part's filter is
    filters-NNNNNN.pack saved filters (docs/format.md), each at a multiple of 64 bytes

Filters are appended and on the disk before the transaction that names them commits: a crash leaves
bytes behind that nobody names, and the next writer cuts them off. Every row has a checksum, and
every file says how many parts it has: SQLite does not see it if a byte changes, and a row that is
wrong or lost would be a part that is skipped. Filters have checksums of their own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import sqlite3
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from bloomery.errors import CorruptData, UnsupportedVersion
from bloomery.segments.index.pack_file import REBUILD
from bloomery.storage.sqlite import Code, code_of, is_damage

_FORMAT = 1
NO_FILTER = -1  # in the place of a filter: the part has no value in that column
_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT, sum INTEGER);
CREATE TABLE types(id INTEGER PRIMARY KEY, schema BLOB UNIQUE, sum INTEGER);
CREATE TABLE files(id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT UNIQUE, size INTEGER,
    mtime_ns INTEGER, ends INTEGER, parts INTEGER, rows INTEGER, text INTEGER, sum INTEGER);
CREATE TABLE filters("column" INTEGER, file INTEGER, part INTEGER, type INTEGER, place INTEGER,
    nbytes INTEGER, keys INTEGER, bits INTEGER, sum INTEGER,
    PRIMARY KEY ("column", file, part)) WITHOUT ROWID;
"""
_ANY_ROW = "SELECT name FROM meta LIMIT 1"
_PATIENCE = 60.0  # seconds that a writer waits for readers


class FileEntry(NamedTuple):
    """A file as it was when it was indexed."""

    id: int
    path: str  # below the root, with /
    size: int
    mtime_ns: int
    ends: int  # checksum of its first and last bytes
    parts: int
    rows: int
    text: int


class FilterEntry(NamedTuple):
    """Where the filter of a column of a part is."""

    column: int
    file: int
    part: int
    type: int
    place: int
    nbytes: int
    keys: int
    bits: int  # what `filter_sum` says of it: the file of filters may be another index's

    def at(self, place: int) -> FilterEntry:
        """The same filter, at another place."""
        return self._replace(place=place)


@dataclass
class ColumnParts:
    """All parts of a column whose values are of one type, in arrays."""

    files: array[int] = field(default_factory=lambda: array("q"))
    parts: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))
    bits: array[int] = field(default_factory=lambda: array("q"))


def row_sum(row: tuple[Any, ...]) -> int:
    """The checksum of a row."""
    return zlib.crc32(repr(row).encode())


class IndexCatalogue:
    """The database of an index, to be read or, by one process, written."""

    def __init__(self, folder: Path, *, write: bool = False, create: bool = False) -> None:
        self.folder = folder
        self.path = folder / "catalogue.sqlite"
        if not create and not self.path.exists():
            raise FileNotFoundError(
                2, "there is no index: `bloomery index build` makes one", str(folder)
            )
        mode = "rwc" if create else "rw" if write else "ro"
        with self.errors():
            self._db = self._connect(mode)
            if create:
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.executescript(f"BEGIN; {_TABLES} COMMIT;")
                self.set_meta(format=_FORMAT)
        try:
            with self.snapshot():
                if self.meta("format") != _FORMAT:
                    raise UnsupportedVersion(f"{self.path}: of a newer bloomery: {REBUILD}")
        except BaseException:
            self.close()
            raise

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(self.path.absolute()))}?mode={mode}",
            uri=True,
            timeout=_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Say of SQLite's errors which file they are about."""
        try:
            yield
        except sqlite3.OperationalError as failure:
            if is_damage(failure):
                raise CorruptData(f"{self.path}: damaged ({failure}): {REBUILD}") from None
            if code_of(failure) == Code.ERROR:  # our SQL is wrong, and not the file
                raise
            number = errno.ENOSPC if code_of(failure) == Code.FULL else errno.EIO
            raise OSError(number, str(failure), str(self.path)) from None
        except (sqlite3.DatabaseError, OverflowError) as failure:
            raise CorruptData(f"{self.path}: damaged ({failure}): {REBUILD}") from None

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    # Reading.

    def _rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Rows whose last column is their checksum, which is checked and left out."""
        with self.errors():
            for row in self._db.execute(query, values):
                if row_sum(row[:-1]) != row[-1]:
                    raise CorruptData(f"{self.path}: a damaged row: {REBUILD}")
                yield row[:-1]

    def meta(self, name: str) -> Any:
        """A setting of the index."""
        for _, value in self._rows("SELECT name, value, sum FROM meta WHERE name = ?", name):
            return json.loads(value)
        raise CorruptData(f"{self.path}: {name} is missing: {REBUILD}")

    def file(self, path: str) -> FileEntry | None:
        """A file by its path; None if it is not indexed."""
        for row in self._rows("SELECT * FROM files WHERE path = ?", path):
            return FileEntry(*row)
        return None

    def file_by_id(self, number: int) -> FileEntry:
        """A file by its number."""
        for row in self._rows("SELECT * FROM files WHERE id = ?", number):
            return FileEntry(*row)
        raise CorruptData(f"{self.path}: file {number} is missing: {REBUILD}")

    def files(self) -> Iterator[FileEntry]:
        """All files."""
        for row in self._rows("SELECT * FROM files"):
            yield FileEntry(*row)

    def filters(self) -> Iterator[FilterEntry]:
        """All filters."""
        for row in self._rows("SELECT * FROM filters"):
            yield FilterEntry(*row)

    def types(self) -> dict[int, Any]:
        """The types of columns, by their number."""
        import pyarrow as pa

        types = {}
        for number, schema in self._rows("SELECT id, schema, sum FROM types"):
            types[number] = pa.ipc.read_schema(pa.py_buffer(schema)).field(0).type
        return types

    def column_parts(self, column: int) -> dict[int, ColumnParts]:
        """All parts of a column, by the type of its values; those without values are left out."""
        by_type: dict[int, ColumnParts] = {}
        counts: dict[int, int] = {}
        query = 'SELECT * FROM filters WHERE "column" = ? ORDER BY file, part'
        for row in self._rows(query, column):
            entry = FilterEntry(*row)
            counts[entry.file] = counts.get(entry.file, 0) + 1
            if entry.place != NO_FILTER:
                parts = by_type.setdefault(entry.type, ColumnParts())
                parts.files.append(entry.file)
                parts.parts.append(entry.part)
                parts.places.append(entry.place)
                parts.bits.append(entry.bits)
        for file in self.files():
            if counts.pop(file.id, 0) != file.parts:
                raise CorruptData(f"{self.path}: parts of {file.path} are missing: {REBUILD}")
        if counts:
            raise CorruptData(f"{self.path}: there are parts of no file: {REBUILD}")
        return by_type

    def totals(self) -> dict[str, int]:
        """How much there is of everything."""
        with self.errors():
            files, rows = self._db.execute("SELECT count(*), total(rows) FROM files").fetchone()
            filters, nbytes, keys = self._db.execute(
                "SELECT count(*), total(nbytes), total(keys) FROM filters WHERE place >= 0"
            ).fetchone()
            (parts,) = self._db.execute("SELECT total(parts) FROM files").fetchone()
        return {
            "files": files,
            "parts": int(parts),
            "rows": int(rows),
            "filters": filters,
            "filter_bytes": int(nbytes),
            "keys": int(keys),
        }

    def columns_with_values(self) -> set[int]:
        """The numbers of the columns in which any row has a value."""
        query = 'SELECT DISTINCT "column" FROM filters WHERE place >= 0'
        with self.errors():
            return {number for (number,) in self._db.execute(query)}

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Show one state of the index to all that is read within; writers wait."""
        with self.errors():
            try:
                self._begin_reading()
            except sqlite3.OperationalError as failure:
                if code_of(failure) not in (Code.READONLY, Code.CANTOPEN):
                    raise
                # A writer was killed: what it left half done is undone by who may write.
                with contextlib.closing(self._connect("rw")) as writer:
                    writer.execute(_ANY_ROW).fetchone()
                self._begin_reading()
        try:
            yield  # errors in here are not SQLite's: each statement judges its own
        finally:
            with self.errors():
                self._db.execute("COMMIT")

    def _begin_reading(self) -> None:
        """Begin a transaction, and lock what it reads: SQLite does so with the first row."""
        self._db.execute("BEGIN")
        try:
            self._db.execute(_ANY_ROW).fetchone()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    # Writing.

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is written within, or nothing of it."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield  # errors in here may be of the files that are indexed
            self._execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._execute("ROLLBACK")
            raise

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        with self.errors():
            return self._db.execute(statement, values)

    def set_meta(self, **values: Any) -> None:
        """Change settings."""
        for name, value in values.items():
            row = (name, json.dumps(value))
            self._execute("REPLACE INTO meta VALUES (?, ?, ?)", (*row, row_sum(row)))

    def type_number(self, kind: Any) -> int:
        """The number of a type, which gets one if it has none."""
        import pyarrow as pa

        schema = pa.schema([pa.field("value", kind)]).serialize().to_pybytes()
        for (number,) in self._execute("SELECT id FROM types WHERE schema = ?", (schema,)):
            return int(number)
        (number,) = self._execute("SELECT coalesce(max(id), 0) + 1 FROM types").fetchone()
        self._execute(
            "INSERT INTO types VALUES (?, ?, ?)", (number, schema, row_sum((number, schema)))
        )
        return int(number)

    def next_file(self) -> int:
        """A number that no file has had."""
        row = self._execute("SELECT seq FROM sqlite_sequence WHERE name = 'files'").fetchone()
        return int(row[0]) + 1 if row else 1

    def add_file(self, file: FileEntry, filters: list[FilterEntry]) -> None:
        """Enter a file with all of its filters."""
        self._execute(
            f"INSERT INTO files VALUES ({', '.join('?' * 9)})", (*file, row_sum(tuple(file)))
        )
        with self.errors():
            self._db.executemany(
                f"INSERT INTO filters VALUES ({', '.join('?' * 9)})",
                [(*entry, row_sum(tuple(entry))) for entry in filters],
            )

    def remove_file(self, number: int) -> None:
        """Forget a file and its filters."""
        self._execute("DELETE FROM files WHERE id = ?", (number,))
        self._execute("DELETE FROM filters WHERE file = ?", (number,))

    def move_filter(self, entry: FilterEntry, place: int) -> None:
        """Say that a filter is elsewhere."""
        moved = entry.at(place)
        self._execute(
            'UPDATE filters SET place = ?, sum = ? WHERE "column" = ? AND file = ? AND part = ?',
            (place, row_sum(tuple(moved)), entry.column, entry.file, entry.part),
        )
