"""Columns of CSV and Parquet files as rows, by pyarrow: columns go to the filter as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from bloomery import _native, extras
from bloomery.building.files import FileRows
from bloomery.building.rows import Batch
from bloomery.errors import InvalidParameter, InvalidSource, UnsupportedBatch
from bloomery.storage.inputs import InputFile, arrow_file

_BATCH = 65_536
_BLOCK = 4 << 20  # of a CSV file at a time; a row must fit into it


class CsvRows(FileRows):
    """Columns of CSV files, plain, gzip or zstd; it goes on behind a number of rows."""

    def __init__(
        self,
        paths: Sequence[str],
        columns: Sequence[str],
        *,
        type: Literal["str", "int"] = "str",
        header: bool = True,
        delimiter: str = ",",
    ) -> None:
        super().__init__(paths)
        _need_pyarrow("CSV")
        if len(delimiter) != 1 or not delimiter.isascii():
            raise InvalidParameter(f"delimiter is {delimiter!r}, must be one ASCII character")
        self._type, self._header, self._delimiter = type, header, delimiter
        self.options = {
            "columns": list(columns),
            "type": type,
            "header": header,
            "delimiter": delimiter,
        }
        if not self.unresumable:  # else the reading will find out
            for path in self.paths:
                self._names(path)

    def _names(self, path: str) -> list[str]:
        """The columns of the key, by name; the file is read up to its first rows."""
        with InputFile(path) as source, self._csv_errors(path):
            names: list[str] = self._open(source).schema.names
        return [_pick(path, names, column) for column in self.options["columns"]]

    def _open(self, source: InputFile, names: list[str] | None = None, skip: int = 0) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        kind = pa.int64() if self._type == "int" else pa.string()
        convert: dict[str, Any] = {"strings_can_be_null": False, "quoted_strings_can_be_null": True}
        if names is not None:
            convert["include_columns"] = names
            convert["column_types"] = dict.fromkeys(names, kind)
            convert["null_values"] = [""]
        return csv.open_csv(
            arrow_file(source),
            read_options=csv.ReadOptions(
                block_size=_BLOCK,
                autogenerate_column_names=not self._header,
                skip_rows_after_names=skip,
            ),
            parse_options=csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(**convert),
        )

    def _batches(self, path: str, skip: int) -> Iterator[Any]:
        names = self._names(path)
        with InputFile(path) as source, self._csv_errors(path):
            yield from self._open(source, names, skip)

    def _count(self, path: str) -> int:
        return sum(batch.num_rows for batch in self._batches(path, 0))

    def _read(self, path: str, start: int | None) -> Iterator[Batch]:
        rows = start or 0
        for batch in self._batches(path, rows):
            rows += batch.num_rows
            if batch.num_rows:
                yield _batch(batch.columns, batch.num_rows, rows)

    @contextmanager
    def _csv_errors(self, path: str) -> Iterator[None]:
        """Say what is wrong with a file without the values that are in it."""
        import pyarrow as pa

        try:
            yield
        except pa.ArrowInvalid as failure:
            text = str(failure)
            shape = re.search(r"Expected \d+ columns, got \d+", text)
            if shape:
                why = f"a row does not fit: {shape[0].lower()}"
            elif "straddl" in text:
                why = f"a row is larger than {_BLOCK >> 20} MiB; is it CSV?"
            elif "conversion error" in text:
                why = "a value is no whole number" if self._type == "int" else "it is not UTF-8"
            else:
                why = f"it is no CSV ({text.partition(':')[0]})"
            raise InvalidSource(f"{path}: {why}") from None


class ParquetRows(FileRows):
    """Columns of Parquet files; it goes on from a row group and a row in it."""

    def __init__(self, paths: Sequence[str], columns: Sequence[str]) -> None:
        super().__init__(paths)
        _need_pyarrow("Parquet")
        self.options = {"columns": list(columns)}
        self._rows = sum(self._count(path) for path in self.paths)

    def _open(self, path: str) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(path)
        except pa.ArrowInvalid:
            raise InvalidSource(f"{path}: it is no Parquet file, or damaged") from None

    def _count(self, path: str) -> int:
        """As the file says, once its columns are known to be keys."""
        with self._open(path) as file:
            schema = file.schema_arrow
            for column in self.options["columns"]:
                name = _pick(path, schema.names, column)
                if not _is_key(schema.field(name)):
                    raise InvalidSource(
                        f"{path}: the column {name!r} is of type {schema.field(name).type}, which "
                        "is no key: strings, integers, binary, UUIDs and timestamps are; write it "
                        "as one of these, and later ask for keys of that type"
                    )
            return int(file.metadata.num_rows)

    def count(self) -> int | None:
        """The number of rows, from the footers of the files."""
        return self._rows

    estimate = count

    def _read(self, path: str, start: list[int] | None) -> Iterator[Batch]:
        import pyarrow as pa

        with self._open(path) as file:
            names = [_pick(path, file.schema_arrow.names, one) for one in self.options["columns"]]
            try:
                first, done = start or (0, 0)
                for group in range(first, file.metadata.num_row_groups):
                    row = 0
                    for batch in file.iter_batches(_BATCH, [group], names):
                        new = batch.slice(max(0, done - row))
                        row += batch.num_rows
                        if new.num_rows:
                            columns = [new.column(name) for name in names]
                            yield _batch(columns, new.num_rows, [group, row])
                    done = 0
            except (pa.ArrowInvalid, OSError) as failure:
                raise InvalidSource(f"{path}: {str(failure).partition(':')[0]}") from None


def _batch(columns: list[Any], rows: int, position: Any) -> Batch:
    column = columns[0]
    if len(columns) == 1 and not _is_time(column.type):
        nulls = column.null_count
        return Batch(column.drop_null() if nulls else column, rows, nulls, position)
    lists = [_values(one) for one in columns]
    keys: list[Any] = [key for key in zip(*lists, strict=True) if None not in key]
    if len(columns) == 1:
        keys = [key for (key,) in keys]
    return Batch(keys, rows, rows - len(keys), position)


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    if _is_time(column.type):  # Python's times have microseconds
        column = column.cast(pa.timestamp("us", column.type.tz))
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        if not _is_time(column.type):
            raise
        raise pa.ArrowInvalid(
            "a time is not in the years 1 to 9999, and no key is; leave such rows out"
        ) from None
    return values


def _is_key(field: Any) -> bool:
    """Whether the values of a column, whose type was stored with it, are keys."""
    from pyarrow import types

    kind = field.type
    if (field.metadata or {}).get(b"ARROW:extension:name") is not None:
        return False  # a type that pyarrow does not know
    if _is_time(kind):
        return True
    try:
        _native.check_arrow_type(field)
    except UnsupportedBatch:
        return False
    return not (types.is_nested(kind) or types.is_null(kind))


def _is_time(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_timestamp(kind))


def _pick(path: str, names: list[str], column: str) -> str:
    """A column by its name or, from 1 on, its number."""
    if column not in names and column.isdecimal() and 1 <= int(column) <= len(names):
        column = names[int(column) - 1]
    if names.count(column) != 1:
        what = "no" if column not in names else "more than one"
        raise InvalidSource(f"{path}: {what} column {column!r} among {', '.join(names)}")
    return column


def _need_pyarrow(what: str) -> None:
    with extras.needed("pyarrow", what):
        import pyarrow  # noqa: F401
