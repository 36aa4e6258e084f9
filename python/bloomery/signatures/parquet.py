"""The rows of Parquet files, in the order in which the files were indexed.

A file is what it was when it was indexed: its size and time of change are kept, and looked at
before each answer, for of a file that was written anew the index would deny rows. They are those
of the file that was opened, before and after it is read: another may get its name meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bloomery.errors import CorruptData, InvalidParameter, InvalidSource
from bloomery.signatures.rows import BATCH, IndexedRows, as_table, narrowed, split
from bloomery.storage.arrow_tables import concat
from bloomery.storage.file_state import TICK_NS, FileState, is_settled

if TYPE_CHECKING:
    from bloomery.signatures.rows import RowNumbers


@dataclass(frozen=True)
class File:
    """A file as it was when it was indexed; its path is relative to the folder."""

    path: str
    size: int
    mtime_ns: int
    rows: int


class ParquetFolder(IndexedRows):
    """The rows of the files of a folder, or of one file."""

    def __init__(self, folder: str, files: Sequence[File]) -> None:
        self._folder = os.path.abspath(folder)
        self._files = list(files)
        counts = [file.rows for file in self._files]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        self._schema: pa.Schema | None = None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ParquetFolder:
        """All files under a path, in the order of their names."""
        folder, names = _listed(path)
        return cls(folder, [_file(folder, name) for name in names])

    @classmethod
    def saved(cls, about: object, folder: str | os.PathLike[str] | None) -> ParquetFolder:
        """Those that an index was saved with; in another folder, if they were moved there."""
        try:
            assert isinstance(about, dict)
            files = [File(**fields) for fields in about["files"]]
            assert all(type(f.path) is str and type(f.rows) is int and f.rows >= 0 for f in files)
            return cls(os.fspath(folder or about["folder"]), files)
        except (AssertionError, KeyError, TypeError):
            raise CorruptData("what it says of its Parquet files cannot be read") from None

    def about(self) -> dict[str, Any]:
        return {"folder": self._folder, "files": [asdict(file) for file in self._files]}

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            if not self._files:
                raise InvalidSource(f"{self._folder}: there is no Parquet file")
            with self._opened(self._files[0]) as file:
                self._schema = as_table(file.schema_arrow.empty_table()).schema  # as rows are
        return self._schema

    @property
    def num_rows(self) -> int:
        return int(self._starts[-1])

    def _path(self, file: File) -> str:
        return os.path.join(self._folder, file.path)

    def batches(self, columns: Sequence[str], start: int) -> Iterator[pa.RecordBatch]:
        for file, begin in zip(self._files, self._starts, strict=False):
            if begin < start:  # files are appended whole
                continue
            path = self._path(file)
            rows = 0
            with self._opened(file) as opened:
                self._check_columns(path, opened.schema_arrow)
                for batch in opened.iter_batches(BATCH, columns=list(columns)):
                    rows += batch.num_rows
                    yield batch.select(list(columns))
            if rows != file.rows:
                raise InvalidSource(f"{path}: {rows} rows, its footer says {file.rows}")

    def _check_columns(self, path: str, schema: pa.Schema) -> None:
        for field in self.schema:
            if schema.names.count(field.name) != 1:
                raise InvalidSource(
                    f"{path}: the column {field.name!r} is there "
                    f"{schema.names.count(field.name)} times, in the first file once: index these "
                    "files apart"
                )

    def find(
        self, numbers: RowNumbers, asked: Mapping[str, pa.Scalar], columns: Sequence[str] | None
    ) -> pa.Table:
        self._check_unchanged()
        wanted = list(self.schema.names if columns is None else columns)
        tables = []
        for part, within in split(numbers, self._starts):
            with self._opened(self._files[part]) as file:
                tables += list(_rows_of(file, within, asked, wanted))
        chosen = pa.schema([self.schema.field(name) for name in wanted])
        return concat([chosen.empty_table(), *tables])

    def _check_unchanged(self) -> None:
        for file in self._files:
            path = self._path(file)
            try:
                status = os.stat(path)
            except OSError as problem:
                raise _unreadable(path, problem) from None
            _check_indexed(path, file, status)

    @contextlib.contextmanager
    def _opened(self, file: File) -> Iterator[pq.ParquetFile]:
        """A file as it was indexed; InvalidSource if it is another, or has changed meanwhile."""
        path = self._path(file)
        with _opened(path) as (opened, status):
            _check_indexed(path, file, status)
            yield opened

    def with_more(self, more: Any) -> IndexedRows:
        folder, names = _listed(more)
        known = {os.path.normpath(self._path(file)) for file in self._files}
        new = [name for name in names if os.path.join(folder, name) not in known]
        relative = [os.path.relpath(os.path.join(folder, name), self._folder) for name in new]
        return ParquetFolder(
            self._folder, [*self._files, *(_file(self._folder, name) for name in relative)]
        )


def _rows_of(
    file: pq.ParquetFile, numbers: RowNumbers, asked: Mapping[str, pa.Scalar], wanted: list[str]
) -> Iterator[pa.Table]:
    """The rows of a file that are as asked: of a row group the other columns are read only if one
    of its rows is."""
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = np.concatenate([[0], np.cumsum(groups, dtype=np.int64)]).astype(np.int64)
    for group, within in split(numbers, starts):
        places = within
        for name, value in asked.items():
            if len(places):
                column = _read(file, group, [name]).column(name).combine_chunks()
                places = narrowed({name: column}.__getitem__, places, {name: value})
        if len(places):
            yield _read(file, group, wanted).select(wanted).take(pa.array(places))


def _read(file: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
    return as_table(file.read_row_group(group, columns=columns))


def _listed(path: str | os.PathLike[str]) -> tuple[str, list[str]]:
    """The folder, and the names of the Parquet files under it."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidParameter(
            f"an index of Parquet files takes the path of a folder or a file, not a "
            f"{type(path).__name__}"
        )
    place = os.path.abspath(path)
    if not os.path.isdir(place):
        return os.path.dirname(place), [os.path.basename(place)]
    row_groups = []
    for folder, below, names in os.walk(place):
        below[:] = [name for name in below if not name.startswith((".", "_"))]  # _delta_log
        row_groups += [
            os.path.relpath(os.path.join(folder, name), place)
            for name in names
            if name.endswith((".parquet", ".pq")) and not name.startswith((".", "_"))
        ]
    if not row_groups:
        raise InvalidSource(f"{place}: there is no file that ends in .parquet or .pq")
    return place, sorted(row_groups)


def _file(folder: str, name: str) -> File:
    path = os.path.join(folder, name)
    for _ in range(_TICKS):
        with _opened(path) as (file, status):
            if is_settled(status.st_mtime_ns):
                return File(name, status.st_size, status.st_mtime_ns, int(file.metadata.num_rows))
        time.sleep(TICK_NS / 1e9)
    raise InvalidSource(f"{path} does not stop changing: index it once it is written")


def _check_indexed(path: str, file: File, status: os.stat_result) -> None:
    if (file.size, file.mtime_ns) != (status.st_size, status.st_mtime_ns):
        raise InvalidSource(
            f"{path} has changed since it was indexed, and rows of it would be denied: "
            "build the index anew"
        )


_footers: OrderedDict[tuple[str, FileState], pq.FileMetaData] = OrderedDict()
_footers_lock = threading.Lock()
_FOOTERS = 256
_TICKS = 5  # of the file system's clock for which a file may go on changing


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[pq.ParquetFile, os.stat_result]]:
    """A file, its footer parsed once for as long as it does not change.

    InvalidSource if it cannot be read, or was changed while it was.
    """
    try:
        source = pa.OSFile(path)
    except OSError as problem:
        raise _unreadable(path, problem) from None
    with source:
        status = os.fstat(source.fileno())
        which = (path, FileState.of(status))
        try:
            with _footers_lock:
                footer = _footers.pop(which, None)
            file = pq.ParquetFile(source, metadata=footer)
            with _footers_lock:
                if is_settled(status.st_mtime_ns):
                    _footers[which] = file.metadata
                if len(_footers) > _FOOTERS:
                    _footers.popitem(last=False)
            yield file, status
        except (pa.ArrowMemoryError, pa.ArrowCancelled):
            raise  # which say nothing of the file
        except (pa.ArrowException, OSError) as problem:
            _check_unchanged(path, which[1], source)
            raise _unreadable(path, problem) from None
        _check_unchanged(path, which[1], source)


def _check_unchanged(path: str, before: FileState, source: pa.OSFile) -> None:
    if FileState.of(os.fstat(source.fileno())) != before:
        raise InvalidSource(
            f"{path} changed while it was read: do not write to a file that is indexed; to replace "
            "it, write another, rename it, and build the index anew"
        )


def _unreadable(path: str, problem: Exception) -> InvalidSource:
    if isinstance(problem, OSError) and problem.errno is not None:
        return InvalidSource(f"{path}: {problem.strerror}: put it back, or build the index anew")
    return InvalidSource(f"{path}: {str(problem).splitlines()[0] or type(problem).__name__}")
