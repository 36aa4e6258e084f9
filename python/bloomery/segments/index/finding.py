"""Rows with the values that were asked for, out of the parts that may have them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any

from bloomery.errors import InvalidParameter
from bloomery.segments.index.arrow_keys import as_scalar, equal_rows
from bloomery.segments.index.data_files import (
    DataFile,
    ParquetData,
    UnstableTypes,
    column_of,
    open_data,
)
from bloomery.storage.arrow_tables import concat

_FOOTERS = 64


class Finder:
    """Reads parts of files, and remembers the footers of the last Parquet files."""

    def __init__(self) -> None:
        self._footers: OrderedDict[tuple[str, int, int], Any] = OrderedDict()

    def _open(self, path: str, text: bool) -> DataFile:
        status = os.stat(path)
        which = (path, status.st_size, status.st_mtime_ns)
        footer = self._footers.pop(which, None)
        if footer is None:
            data = open_data(path, text)
            if not isinstance(data, ParquetData):
                return data
            footer = data.metadata
        else:
            data = ParquetData(path, metadata=footer)
        self._footers[which] = footer
        if len(self._footers) > _FOOTERS:
            self._footers.popitem(last=False)
        return data

    def schema(self, path: str, text: bool) -> Any:
        """Names and types of a file's columns."""
        data = self._open(path, text)
        try:
            return data.schema
        finally:
            data.close()

    def rows(
        self,
        path: str,
        text: bool,
        numbers: Collection[int] | None,
        conditions: Mapping[str, object],
        columns: Sequence[str] | None,
    ) -> tuple[int, int, list[Any]]:
        """Read these parts of a file, or all: how many, how many had rows, and the rows.

        A file that is gone has none.
        """
        try:
            data = self._open(path, text)
        except FileNotFoundError:
            return 0, 0, []
        try:
            return _matching(data, numbers, conditions, columns)
        except UnstableTypes:
            if text:
                raise
            return self.rows(path, True, numbers, conditions, columns)
        finally:
            data.close()

    def joined(
        self, tables: list[Any], columns: Sequence[str] | None, schema: Callable[[], Any]
    ) -> Any:
        """One table of all; an empty one has the schema of a file."""
        import pyarrow as pa

        joined = concat(tables) if tables else (schema() or pa.schema([])).empty_table()
        missing = [name for name in columns or () if name not in joined.column_names]
        if missing:
            names = (schema() or joined.schema).names
            raise InvalidParameter(
                f"there is no column {missing[0]!r}: there are {', '.join(names)}"
            )
        return joined if columns is None else joined.select(list(columns))


def _matching(
    data: DataFile,
    numbers: Collection[int] | None,
    conditions: Mapping[str, object],
    columns: Sequence[str] | None,
) -> tuple[int, int, list[Any]]:
    # Of Parquet the columns that are compared are read first, the others where rows match.
    whole = not isinstance(data, ParquetData)
    wanted = None if columns is None else list(dict.fromkeys([*columns, *conditions]))
    read = 0
    tables = []
    for part in data.parts(wanted if whole else list(conditions), numbers):
        read += 1
        mask = _mask(part.table, conditions, data.path)
        if mask is None or not mask.true_count:
            continue
        table = part.table if whole else next(data.parts(wanted, [part.number])).table
        there = [name for name in columns or table.column_names if name in table.column_names]
        tables.append(table.filter(mask).select(there))
    return read, len(tables), tables


def _mask(table: Any, conditions: Mapping[str, object], path: str) -> Any:
    """Which rows have all of the values; None if none can have."""
    import pyarrow as pa
    from pyarrow import compute

    masks = []
    for name, value in conditions.items():
        column = column_of(table, name, f"{path}: the column {name!r}")
        scalar = None if column is None else as_scalar(value, column.type)
        if scalar is None:
            return None
        masks.append(equal_rows(column, scalar))
    mask = reduce(compute.and_, masks)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
