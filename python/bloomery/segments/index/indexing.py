"""Making an index and keeping it up with its folder: files come, change and go."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidSource, UnsupportedBatch
from bloomery.segments import filters
from bloomery.segments.index.arrow_keys import as_keys, value_type
from bloomery.segments.index.catalogue import NO_FILTER, FileEntry, FilterEntry, IndexCatalogue
from bloomery.segments.index.data_files import (
    DataFile,
    FileChanged,
    UnstableTypes,
    column_of,
    format_of,
    open_data,
)
from bloomery.segments.index.pack_file import PackFile, filter_sum, map_pack
from bloomery.storage.file_state import TICK_NS, is_settled

NAME = ".bloomery-index"
_FILES, _BYTES = 512, 32 << 20  # after how many of either to commit
_WASTE = 1 << 20  # so much of the filters' file may belong to files that are gone
_ENDS = 64 << 10
_TICKS = 5  # so many of them a file may go on changing
_NEVER = -1  # in the place of a time: the file counts as changed, and is read

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class IndexChanges:
    """What an update did."""

    added: int
    changed: int
    removed: int
    unchanged: int


def walk(root: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield the files of rows below a folder, by their path there; `.` and `_` hide a name.

    Links to folders are followed, once all that is there itself was seen: no folder comes twice.
    A file or folder that another process removes or renames in the meantime has no status.
    """
    folders, links = [""], list[str]()
    seen: set[tuple[int, int]] = set()
    while folders or links:
        if not folders:
            links.sort(reverse=True)
            folders.append(links.pop())
        folder = folders.pop()
        place = os.path.join(root, folder)
        try:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            scan = os.scandir(place)
        except FileNotFoundError:
            if not folder:
                raise
            yield folder, None
            continue
        with scan as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")) or _is_loop(entry):
                    continue
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    (links if entry.is_symlink() else folders).append(path)
                elif format_of(entry.name) is not None and entry.is_file():
                    yield path, _status(entry)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def _is_loop(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link that leads to itself."""
    try:
        entry.is_dir()
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return True
        raise
    return False


def is_current(file: FileEntry, status: os.stat_result) -> bool:
    """Whether a file is, by its size and time, the one that was indexed."""
    return (file.size, file.mtime_ns) == (status.st_size, status.st_mtime_ns)


def ends_sum(path: str) -> int:
    """The checksum of a file's first and last bytes, among which Parquet has its footer."""
    with open(path, "rb") as file:
        head = file.read(_ENDS)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ENDS))
        return _native.checksum(head + file.read(_ENDS)) >> 1  # SQLite's integers are signed


class Indexer:
    """A run over a folder: indexes what is new, forgets what is gone."""

    def __init__(self, catalogue: IndexCatalogue, root: str, columns: Sequence[str], chance: float):
        self._catalogue, self._root = catalogue, root
        self._columns, self._chance = columns, chance
        self._pack = PackFile(self._pack_path(), catalogue.meta("pack_bytes"))

    def _pack_path(self) -> Path:
        return self._catalogue.folder / str(self._catalogue.meta("pack"))

    def run(self, on_file: Progress | None) -> IndexChanges:
        """Bring the index up to date; what was committed before a failure stays."""
        catalogue = self._catalogue
        total = sum(1 for _ in walk(self._root))
        before = catalogue.next_file()
        seen = bytearray(before)
        waiting: list[tuple[str, os.stat_result, int]] = []
        self._counts = dict.fromkeys(("added", "changed", "removed", "unchanged"), 0)
        try:
            for done, (path, status) in enumerate(walk(self._root)):
                if status is None:
                    continue  # searches look for it under its new name
                if on_file is not None:
                    on_file(done, max(total, done), path)
                old = catalogue.file(path)
                if old is not None and old.id < before:
                    seen[old.id] = 1
                if old is not None and is_current(old, status):
                    self._counts["unchanged"] += 1
                    continue
                waiting.append((path, status, 0 if old is None else old.id))
                if len(waiting) >= _FILES:
                    self._commit(waiting)
            self._commit(waiting)
            gone = [file.id for file in catalogue.files() if file.id < before and not seen[file.id]]
            with catalogue.transaction():
                for number in gone:
                    catalogue.remove_file(number)
                self._count_up()
            self._counts["removed"] += len(gone)
            self._tidy()
        finally:
            self._pack.close()
        return IndexChanges(**self._counts)

    def _count_up(self) -> None:
        self._catalogue.set_meta(
            generation=self._catalogue.meta("generation") + 1, pack_bytes=self._pack.nbytes
        )

    def _commit(self, waiting: list[tuple[str, os.stat_result, int]]) -> None:
        """Index files, a transaction for every few; each is in the index whole or not at all."""
        while waiting:
            start = self._pack.nbytes
            with self._catalogue.transaction():
                while waiting and self._pack.nbytes - start < _BYTES:
                    path, status, old = waiting.pop()
                    if old:
                        self._catalogue.remove_file(old)
                    end = self._pack.nbytes
                    try:
                        self._add(path, status)
                        self._counts["changed" if old else "added"] += 1
                    except FileNotFoundError:  # another process has just removed it
                        self._pack.cut(end)
                        self._counts["removed"] += bool(old)
                self._pack.sync()
                self._count_up()

    def _add(self, path: str, status: os.stat_result) -> None:
        whole = os.path.join(self._root, path)
        mtime_ns = _NEVER
        for _ in range(_TICKS):
            if is_settled(status.st_mtime_ns):
                mtime_ns = status.st_mtime_ns
                break
            time.sleep(TICK_NS / 1e9)
            status = os.stat(whole)
        number, start = self._catalogue.next_file(), self._pack.nbytes
        parts = rows = 0
        entries: list[FilterEntry] = []
        text = False
        for _ in range(_TICKS):
            entries = []
            try:
                data = open_data(whole, text)
                parts, rows = self._add_parts(data, number, entries)
                if (data.state.size, data.state.mtime_ns) != (status.st_size, status.st_mtime_ns):
                    mtime_ns = _NEVER
                break
            except UnstableTypes:
                if text:
                    raise
                text = True
            except FileChanged:
                mtime_ns = _NEVER
            self._pack.cut(start)
            parts, rows, entries = 0, 0, []  # it has no filter, and is read
        file = FileEntry(
            number,
            path,
            status.st_size,
            mtime_ns,
            ends_sum(whole),
            parts,
            rows,
            int(text),
        )
        self._catalogue.add_file(file, entries)

    def _add_parts(
        self, data: DataFile, number: int, entries: list[FilterEntry]
    ) -> tuple[int, int]:
        try:
            parts = rows = 0
            for part in data.parts(self._columns):
                parts, rows = parts + 1, rows + part.rows
                for column, name in enumerate(self._columns):
                    where = f"{data.path}: the column {name!r}"
                    values = column_of(part.table, name, where)
                    entries.append(self._filter(column, number, part.number, values, where))
            return parts, rows
        finally:
            data.close()

    def _filter(self, column: int, file: int, part: int, values: Any, where: str) -> FilterEntry:
        """The filter of a column of a part, appended to the others."""
        if values is None or values.null_count == len(values):
            return FilterEntry(column, file, part, 0, NO_FILTER, 0, 0, 0)
        try:
            keys = as_keys(values)
        except UnsupportedBatch:
            raise InvalidSource(
                f"{where} is of type {values.type}, whose values cannot be looked up: index another"
            ) from None
        data, count = filters.build(lambda: keys, self._chance)
        kind = self._catalogue.type_number(value_type(values.type))
        place, bits = self._pack.append(data), filter_sum(data)
        return FilterEntry(column, file, part, kind, place, len(data), count, bits)

    def _tidy(self) -> None:
        """Write the filters' file anew if more than half of it belongs to files that are gone."""
        catalogue, old = self._catalogue, self._pack
        live = catalogue.totals()["filter_bytes"]
        if old.nbytes <= 2 * live + _WASTE:
            return
        number = int(old.path.stem.rpartition("-")[2]) + 1
        path = catalogue.folder / f"filters-{number:06}.pack"
        path.unlink(missing_ok=True)
        mapped = map_pack(old.path, old.nbytes)
        self._pack = PackFile(path, 0)
        with catalogue.transaction():
            for entry in list(catalogue.filters()):
                if entry.place != NO_FILTER and mapped is not None:
                    data = mapped[entry.place : entry.place + entry.nbytes]
                    catalogue.move_filter(entry, self._pack.append(data))
            self._pack.sync()
            catalogue.set_meta(pack=path.name)
            self._count_up()
        old.close()
        old.path.unlink()


def create(folder: Path, root: str, columns: Sequence[str], chance: float) -> IndexCatalogue:
    """Make an empty index; what was there of another is removed."""
    for path in [*folder.glob("filters-*.pack"), *folder.glob("catalogue.sqlite*")]:
        path.unlink()
    new = IndexCatalogue(folder, create=True)
    inside = os.path.realpath(folder.parent) == os.path.realpath(root)
    with new.transaction():
        new.set_meta(
            root=".." if inside else os.path.abspath(root),
            columns=list(columns),
            fp_chance=chance,
            pack="filters-000001.pack",
            pack_bytes=0,
            generation=0,
        )
    return new


def root_of(folder: Path, catalogue: IndexCatalogue) -> str:
    """The folder whose files an index is of; one beside the index moves with it."""
    return os.path.normpath(os.path.join(folder, catalogue.meta("root")))
