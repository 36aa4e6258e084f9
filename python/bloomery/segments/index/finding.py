"""Rows with the values that were asked for, out of the parts that may have them."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from bloomery.errors import InvalidParameter, UnsupportedKey
from bloomery.segments.index.arrow_keys import as_scalar, equal_rows
from bloomery.segments.index.data_files import (
    DataFile,
    FileChanged,
    ParquetData,
    UnstableTypes,
    column_of,
    open_data,
)
from bloomery.storage.arrow_tables import concat
from bloomery.storage.file_state import FileState, is_settled

_FOOTERS = 64
_ATTEMPTS = 10  # to read a file that others keep changing

Columns = Sequence[str] | None


@dataclass
class ChosenParts:
    """Parts of a file that may have rows, by what the index knows of it."""

    size: int
    mtime_ns: int
    text: bool
    numbers: set[int]

    def is_of(self, state: FileState) -> bool:
        """Whether a file that was opened is the one that was indexed."""
        return (self.size, self.mtime_ns) == (state.size, state.mtime_ns)


class FoundRows(NamedTuple):
    """What was read of a file."""

    read: int  # parts
    matched: int  # of them
    tables: list[Any]


class Question:
    """The values that rows must have, each judged by the types of one file after another."""

    def __init__(self, conditions: Mapping[str, object]) -> None:
        self.conditions = conditions
        self._judged: set[str] = set()
        self._refusals: dict[str, UnsupportedKey] = {}

    def scalar(self, name: str, kind: Any) -> Any:
        """Return a value as one of a column of this type; None if no such column can have it."""
        try:
            scalar = as_scalar(self.conditions[name], kind)
        except UnsupportedKey as refusal:
            self._refusals[name] = refusal
            return None
        self._judged.add(name)
        return scalar

    def check(self) -> None:
        """Raise UnsupportedKey for a value that every type refused."""
        for name, refusal in self._refusals.items():
            if name not in self._judged:
                raise refusal


class Finder:
    """Reads parts of files, and remembers the footers of the last Parquet files."""

    def __init__(self) -> None:
        self._footers: OrderedDict[tuple[str, FileState], Any] = OrderedDict()

    @contextlib.contextmanager
    def _open(self, path: str, text: bool = False) -> Iterator[DataFile]:
        data = open_data(path, text)
        try:
            if isinstance(data, ParquetData):
                which = (path, data.state)  # of what was opened: the name may be another's by now
                data.use_footer(self._footers.pop(which, None))
                if is_settled(data.state.mtime_ns):
                    self._footers[which] = data.metadata
                if len(self._footers) > _FOOTERS:
                    self._footers.popitem(last=False)
            yield data
        finally:
            data.close()

    def schema(self, path: str, text: bool) -> Any:
        """Names and types of a file's columns."""
        with self._open(path, text) as data:
            return data.schema

    def rows(
        self, path: str, chosen: ChosenParts | None, question: Question, columns: Columns
    ) -> FoundRows:
        """Read the chosen parts of a file, or all of it.

        FileNotFoundError if it is gone. Parts were chosen of the file that was indexed: of another
        that has its name by now, all is read. A file that changes meanwhile is read again; lines
        that are appended all the time are read as far as they are.
        """
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(FileChanged):
                return self._rows(path, chosen, question, columns)
        return self._rows(path, chosen, question, columns, may_grow=True)

    def _rows(
        self,
        path: str,
        chosen: ChosenParts | None,
        question: Question,
        columns: Columns,
        may_grow: bool = False,
    ) -> FoundRows:
        numbers = None
        with self._open(path) as data:
            data.may_grow = may_grow and not isinstance(data, ParquetData)
            if chosen is not None and chosen.is_of(data.state):
                numbers, data.text = chosen.numbers, chosen.text
            try:
                return _matching(data, numbers, question, columns)
            except UnstableTypes:
                if data.text:
                    raise
                data.text = True
                return _matching(data, numbers, question, columns)

    def joined(self, tables: list[Any], columns: Columns, schema: Callable[[], Any]) -> Any:
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
    data: DataFile, numbers: Collection[int] | None, question: Question, columns: Columns
) -> FoundRows:
    # Of Parquet the columns that are compared are read first, the others where rows match.
    whole = not isinstance(data, ParquetData)
    wanted = None if columns is None else list(dict.fromkeys([*columns, *question.conditions]))
    read = 0
    tables = []
    for part in data.parts(wanted if whole else list(question.conditions), numbers):
        read += 1
        mask = _mask(part.table, question, data.path)
        if mask is None or not mask.true_count:
            continue
        table = part.table if whole else next(data.parts(wanted, [part.number])).table
        there = [name for name in columns or table.column_names if name in table.column_names]
        tables.append(table.filter(mask).select(there))
    return FoundRows(read, len(tables), tables)


def _mask(table: Any, question: Question, path: str) -> Any:
    """Which rows have all of the values; None if none can have."""
    import pyarrow as pa
    from pyarrow import compute

    masks = []
    for name in question.conditions:
        column = column_of(table, name, f"{path}: the column {name!r}")
        scalar = None if column is None else question.scalar(name, column.type)
        if scalar is None:
            return None
        masks.append(equal_rows(column, scalar))
    mask = reduce(compute.and_, masks)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
