"""Files of rows in parts: row groups of Parquet, runs of rows of CSV and JSONL, compressed too."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bloomery import extras
from bloomery._native import json_depth
from bloomery.errors import InvalidSource
from bloomery.storage.file_state import FileState
from bloomery.storage.inputs import InputFile, arrow_file, reader

# Rows of a CSV file for each filter. It has to be read from its start anyway.
PART_ROWS = 1 << 20
_BLOCK = 4 << 20  # bytes of CSV at a time; a row must fit into it
_JSON_DEPTH = 1000  # pyarrow's parser recurses, and ends the process at some 10,000
_JSON_BYTES, _LINE_BYTES = 16 << 20, 64 << 20  # of JSON for each filter; a line is no longer
_COMPRESSED = (".gz", ".zst", ".zstd")


@dataclass(frozen=True)
class Part:
    """Some rows of a file that lie side by side, in the columns that were asked for."""

    number: int
    rows: int
    table: Any  # of Arrow; without a column it has no rows


class FileChanged(InvalidSource):
    """A file was changed or replaced while it was read: what was read of it is not believed."""


class DataFile(ABC):
    """A file of rows, opened to be read by pyarrow; all that is read is of one `state`."""

    def __init__(self, path: str, text: bool = False, state: FileState | None = None) -> None:
        self.path = path
        self.text = text  # every column is text, for what looks like numbers first is not later
        self.state = FileState.of(os.stat(path)) if state is None else state
        self.may_grow = False  # lines may be appended while it is read

    def _check(self, status: os.stat_result) -> None:
        now = FileState.of(status)
        if now == self.state or (self.may_grow and now.is_longer(self.state)):
            return
        raise FileChanged(
            f"{self.path} changed while it was read: ask again once it is written. To replace a "
            "file that others read, write another and rename it"
        )

    @contextlib.contextmanager
    def _reading(self, status: Callable[[], os.stat_result], format: str) -> Iterator[None]:
        """Name errors of pyarrow; whatever they are, a file that has changed is FileChanged."""
        self._check(status())
        try:
            with _arrow_errors(self.path, format):
                yield
        except (InvalidSource, OSError):
            self._check(status())
            raise
        self._check(status())

    @contextlib.contextmanager
    def _input(self, format: str) -> Iterator[InputFile]:
        """The file, to be read from its start once more."""
        try:
            with InputFile(self.path) as source, self._reading(lambda: source.status, format):
                yield source
        except OSError as failure:
            if failure.errno in (errno.ENOENT, errno.ESTALE):  # it was there a moment ago
                raise FileChanged(
                    f"{self.path} was replaced while it was read: ask again"
                ) from None
            raise

    @property
    @abstractmethod
    def schema(self) -> Any:
        """Names and types of its columns."""

    @abstractmethod
    def parts(
        self, columns: Sequence[str] | None, numbers: Collection[int] | None = None
    ) -> Iterator[Part]:
        """Read parts, all or these, in order, in those of the columns that there are; None: all."""

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """Let go of the file."""


class ParquetData(DataFile):
    """A Parquet file; a part is a row group."""

    def __init__(self, path: str, text: bool = False) -> None:
        import pyarrow as pa

        # Not mapped: one that is cut short while it is read would end the process.
        self._source = pa.OSFile(path)
        super().__init__(path, text, FileState.of(self._status()))
        self._opened: Any = None

    def _status(self) -> os.stat_result:
        return os.fstat(self._source.fileno())

    @property
    def _file(self) -> Any:
        if self._opened is None:
            self.use_footer(None)
        return self._opened

    def use_footer(self, metadata: Any) -> None:
        """Read by a footer that was parsed before, of a file of this state; None: parse it."""
        from pyarrow import parquet

        with self._reading(self._status, "Parquet"):
            self._opened = parquet.ParquetFile(self._source, metadata=metadata)

    @property
    def schema(self) -> Any:
        return _without_views(self._file.schema_arrow)

    @property
    def metadata(self) -> Any:
        """The footer, parsed, which takes longest of a file with many row groups."""
        return self._file.metadata

    def parts(
        self, columns: Sequence[str] | None, numbers: Collection[int] | None = None
    ) -> Iterator[Part]:
        groups = range(self.metadata.num_row_groups) if numbers is None else sorted(numbers)
        wanted = _present(columns, self.schema.names)
        for group in groups:
            with self._reading(self._status, "Parquet"):
                table = self._file.read_row_group(group, columns=wanted, use_threads=False)
                plain = _without_views(table.schema)
                table = table if plain is table.schema else table.cast(plain)
            yield Part(group, self.metadata.row_group(group).num_rows, table)

    def close(self) -> None:
        self._source.close()


def _without_views(schema: Any) -> Any:
    """The schema with plain strings in the place of views, for which pyarrow has few functions."""
    import pyarrow as pa

    plain = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
    for number, field in enumerate(schema):
        if str(field.type) in plain:
            schema = schema.set(number, field.with_type(plain[str(field.type)]))
    return schema


class CsvData(DataFile):
    """A CSV file with names in its first line, with the types that pyarrow infers."""

    @contextlib.contextmanager
    def _open_batches(self) -> Iterator[Any]:
        with self._input("CSV") as source:
            yield self._open(arrow_file(source))

    @property
    def schema(self) -> Any:
        import pyarrow as pa

        if self.state.size == 0:
            return pa.schema([])
        with self._open_batches() as batches:
            return batches.schema

    def parts(
        self, columns: Sequence[str] | None, numbers: Collection[int] | None = None
    ) -> Iterator[Part]:
        import pyarrow as pa

        if self.state.size == 0:
            return
        last = None if numbers is None else max(numbers, default=-1)
        with self._open_batches() as batches:
            names = batches.schema.names
            wanted = (
                None
                if columns is None
                else [place for place, name in enumerate(names) if name in columns]
            )  # by place: a name may come twice
            number, rows, held = 0, 0, []
            for batch in batches:
                start = 0
                while start < batch.num_rows:
                    if last is not None and number > last:
                        return
                    piece = batch.slice(start, PART_ROWS - rows)
                    start += piece.num_rows
                    rows += piece.num_rows
                    if numbers is None or number in numbers:
                        held.append(piece if wanted is None else piece.select(wanted))
                    if rows == PART_ROWS:
                        if held:
                            yield Part(number, rows, pa.Table.from_batches(held))
                        number, rows, held = number + 1, 0, []
            if held:
                yield Part(number, rows, pa.Table.from_batches(held))

    def _open(self, file: Any) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        options: dict[str, Any] = {}
        if self.text:
            with self._input("CSV") as source:
                names = self._csv(csv, arrow_file(source), {}).schema.names
            options["column_types"] = dict.fromkeys(names, pa.string())
        return self._csv(csv, file, options)

    @staticmethod
    def _csv(csv: Any, file: Any, options: dict[str, Any]) -> Any:
        return csv.open_csv(
            file,
            read_options=csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(**options),
        )


class JsonData(DataFile):
    """A file of JSON objects, one a line; a part is some megabytes of them, with the fields and the
    types that pyarrow infers of these alone: a field may come late."""

    @property
    def schema(self) -> Any:
        import pyarrow as pa

        first = next(self.parts(None), None)
        return pa.schema([]) if first is None else first.table.schema

    def parts(
        self, columns: Sequence[str] | None, numbers: Collection[int] | None = None
    ) -> Iterator[Part]:
        import pyarrow as pa
        from pyarrow import json

        last = None if numbers is None else max(numbers, default=-1)
        options = json.ReadOptions(use_threads=False, block_size=_JSON_BYTES + _LINE_BYTES)
        with self._input("JSON lines") as source:
            for number, text in enumerate(_texts(reader(source), self.path)):
                if last is not None and number > last:
                    return
                if numbers is None or number in numbers:
                    try:
                        table = json.read_json(pa.py_buffer(text), options)
                    except pa.ArrowInvalid as failure:
                        # Arrow has no code for it, and the rest stays refused: of a key that
                        # is there twice, say, Python would keep one value.
                        if "changed from" not in str(failure):
                            raise
                        table = _of_mixed_types(text, self.path)
                    wanted = _present(columns, table.column_names)
                    rows = table.num_rows
                    yield Part(number, rows, table if wanted is None else table.select(wanted))


def _of_mixed_types(text: bytes, path: str) -> Any:
    """A table of JSON objects; a field that has values of several types is text."""
    import json

    import pyarrow as pa

    try:
        rows = [dict(json.loads(line).items()) for line in text.split(b"\n") if line.strip()]
    except (ValueError, AttributeError, RecursionError):
        raise InvalidSource(f"{path}: a line is no JSON object: repair it, or move it") from None
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            texts = (v if v is None or isinstance(v, str) else json.dumps(v) for v in values)
            columns[name] = pa.array(texts, pa.string())
    return pa.table(columns)


def _texts(file: io.BufferedReader, path: str) -> Iterator[bytes]:
    """Some megabytes at a time, to the end of a line; without what is blank."""
    while text := file.read(_JSON_BYTES):
        if not text.endswith(b"\n"):
            text += file.readline(_LINE_BYTES)
        if len(text) >= _JSON_BYTES + _LINE_BYTES:
            raise InvalidSource(f"{path}: a line is longer than {_LINE_BYTES >> 20} MiB")
        if json_depth(text) > _JSON_DEPTH:
            raise InvalidSource(f"{path}: a line has values nested over {_JSON_DEPTH} deep")
        if not text.isspace():
            yield text


def column_of(table: Any, name: str, where: str) -> Any:
    """A column of a table, None if it has none such; InvalidSource if it has several."""
    count = table.column_names.count(name)
    if count > 1:
        raise InvalidSource(f"{where} is there {count} times: give it other names")
    return table.column(name) if count else None


def _present(columns: Sequence[str] | None, names: Sequence[str]) -> list[str] | None:
    return None if columns is None else [name for name in columns if name in names]


_FORMATS: dict[str, type[DataFile]] = {
    ".parquet": ParquetData,
    ".pq": ParquetData,
    ".csv": CsvData,
    ".jsonl": JsonData,
    ".ndjson": JsonData,
}


def format_of(name: str) -> type[DataFile] | None:
    """Return the class of a file by its name; None if it is no file of rows."""
    stem = name.lower()
    for ending in _COMPRESSED:
        stem = stem.removesuffix(ending)
    return _FORMATS.get(os.path.splitext(stem)[1])


def open_data(path: str, text: bool = False) -> DataFile:
    """Open a file of rows by its name."""
    with extras.needed("pyarrow", "reading files of rows"):
        import pyarrow  # noqa: F401
    kind = format_of(path)
    if kind is None:
        raise InvalidSource(f"{path}: no file of rows: {', '.join(_FORMATS)} are, .gz or .zst too")
    return kind(path, text)


class UnstableTypes(InvalidSource):
    """Values further down a CSV file do not fit the types that its first rows have."""


@contextlib.contextmanager
def _arrow_errors(path: str, format: str) -> Iterator[None]:
    """Say what is wrong with a file, without the values that are in it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowMemoryError, pa.ArrowCancelled):
        raise  # which say nothing of the file
    except (pa.ArrowException, OSError) as failure:
        if isinstance(failure, OSError) and failure.errno is not None:
            raise  # of the file system; those of decoders have no number
        text = str(failure)
        if format == "CSV" and "conversion error" in text:
            raise UnstableTypes(f"{path}: a value is not of its column's type") from None
        raise InvalidSource(
            f"{path}: no {format} file, or a damaged one ({text.partition(':')[0][:80]}): repair "
            "it, or move it out of the folder"
        ) from None
