"""`SignatureIndex`: one small signature a row over many columns, for equality on any of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.signatures import columns as keys
from bloomery.signatures import saved
from bloomery.signatures.parquet import ParquetFolder
from bloomery.signatures.plan import SignaturePlan, plan
from bloomery.signatures.rows import IndexedRows, TableRows, as_table
from bloomery.storage import files

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.signatures.rows import RowNumbers

DEFAULT_LENGTH = 80
DEFAULT_BITS = 2
_SAMPLE = 16  # rows that are looked for when a table is given to a saved index


class SignatureIndex:
    """An index over many columns of a table: rows that equal what is asked for in any of them.

    A row that was indexed and equals it is always found; a row that does not is never returned,
    for each candidate is compared with its own values.
    """

    def __init__(
        self, native: _native.Signatures, length: int, schema: pa.Schema, bits: Sequence[int]
    ) -> None:
        """Not for users: `build` and `load` make one."""
        self._native = native
        self._length = length
        self._schema = schema
        self._bits = list(bits)
        self._rows: IndexedRows | None = None
        self._count = native.rows  # those whose every column is in
        self._writing = threading.Lock()

    @classmethod
    def build(
        cls,
        rows: Any,
        columns: Sequence[str] | None = None,
        *,
        length: int = DEFAULT_LENGTH,
        bits: int | Mapping[str, int] = DEFAULT_BITS,
        progress: Callable[[int], object] | None = None,
    ) -> Self:
        """Index the rows of a table, or of Parquet files.

        `rows` is an Arrow table of whatever library (pyarrow, Polars, pandas, DuckDB), which is
        kept and not copied, or the path of a folder of Parquet files or of one. `columns` are those
        that can be asked for, by default all. A signature has `length` bits, 1 to 4,096; a value
        sets `bits` of them, for all columns or by name (2 where not named). `progress` is called
        with the number of rows done, now and then.
        """
        source = _opened(rows)
        if columns is None:
            columns = source.schema.names
        chosen = _chosen(columns, source.schema)
        index = cls(
            _empty_signatures(length, each := _bits(bits, chosen.names)), length, chosen, each
        )
        index._take(source, progress)  # nobody else has it yet
        return index

    def append(self, rows: Any, *, progress: Callable[[int], object] | None = None) -> int:
        """Index more rows, behind those that are there; all of them or, after an error, none.

        A table if the index is of tables; for an index of Parquet files a folder, of which the
        files are taken that are not yet indexed. Returns how many rows came.
        """
        with self._changing():
            before = self._count
            self._take(self._known_rows().with_more(rows), progress)
            return self._count - before

    def _take(self, rows: IndexedRows, progress: Callable[[int], object] | None) -> None:
        try:
            for batch in rows.batches(self._schema.names, self._count):
                arrays = [
                    self._checked(field, batch.column(number))
                    for number, field in enumerate(self._schema)
                ]
                self._native.append(batch.num_rows, arrays)
                if progress is not None:
                    progress(self._native.rows)
            if self._native.rows != rows.num_rows:
                raise InvalidParameter(
                    f"{self._native.rows} rows were read, expected {rows.num_rows}: do not "
                    "change rows while they are indexed"
                )
        except BaseException:
            self._native.truncate(self._count)
            raise
        self._rows, self._count = rows, rows.num_rows

    def _checked(self, field: pa.Field, column: pa.Array) -> pa.Array:
        if pa.types.is_null(column.type):
            return column
        kind = keys.comparable_type(field.name, column.type)
        if kind != field.type:
            raise InvalidParameter(
                f"the column {field.name!r} is of type {kind}, and was of type {field.type} in the "
                "rows before: cast it to that"
            )
        return keys.keys(column)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One at a time; whoever comes meanwhile is told, and does not wait."""
        if not self._writing.acquire(blocking=False):
            raise InvalidParameter(
                "another thread is appending to this index or saving it: do so one after another"
            )
        try:
            yield
        finally:
            self._writing.release()

    def candidates(self, asked: Mapping[str, object]) -> RowNumbers:
        """The numbers of the rows that may hold these values, by column; in order, from 0 on.

        No row that holds them is missing. A None, which is SQL's NULL, equals nothing.
        """
        return self._candidates(self._scalars(asked))

    def _candidates(self, scalars: Mapping[str, pa.Scalar] | None) -> RowNumbers:
        if scalars is None:
            return np.empty(0, np.int64)
        wanted = [
            (self._schema.get_field_index(name), keys.keys(pa.array([value], value.type)))
            for name, value in scalars.items()
        ]
        rows = self._native.candidates(wanted, self._count)
        return np.frombuffer(rows or b"", np.int64)

    def find(self, asked: Mapping[str, object], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that hold these values, by column, as an Arrow table; `columns` of it, or all.

        Each candidate is compared with its own values, by SQL's equality: a None equals nothing.
        """
        rows = self._known_rows()
        unknown = [name for name in columns or () if name not in rows.schema.names]
        if unknown:
            raise InvalidParameter(
                f"there is no column {unknown[0]!r} among {', '.join(rows.schema.names)}"
            )
        scalars = self._scalars(asked)
        return rows.find(self._candidates(scalars), scalars or {}, columns)

    def _scalars(self, asked: Mapping[str, object]) -> dict[str, pa.Scalar] | None:
        if not asked:
            raise InvalidParameter("asked is empty: name a column and its value, or several")
        scalars = {}
        for name, value in asked.items():
            if name not in self._schema.names:
                raise InvalidParameter(
                    f"the column {name!r} is not indexed; {', '.join(self._schema.names)} are"
                )
            scalars[name] = keys.scalar(name, value, self._schema.field(name).type)
        return None if None in scalars.values() else scalars

    def _known_rows(self) -> IndexedRows:
        if self._rows is None:
            raise InvalidParameter(
                "this index was loaded without its rows: pass the table that it was built of, "
                "SignatureIndex.load(path, rows=table)"
            )
        return self._rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file: checksummed, and all of it or nothing.

        Rows of Parquet files are found again by `load`; a table in memory is not saved with it.
        """
        with self._changing(), files.replacing(path) as file:
            about = self._rows.about() if self._rows is not None else None
            description = saved.Description(self._schema, self._bits, about)
            saved.write(file, self._native, self._length, description)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        rows: Any = None,
        *,
        mmap: bool = False,
        verify: bool | None = None,
    ) -> Self:
        """Read a saved index.

        `rows` is the table that it was built of (its number of rows, its types and a few of its
        rows are compared), or the folder of its Parquet files, if they were moved. With `mmap` the
        file itself is the memory: it opens at once, only the bitmaps that questions need are read,
        and what is appended is kept in memory until it is saved. `verify` compares the checksum,
        which reads all of the file (the default without mmap).
        """
        native, length, description = saved.read(path, mmap, verify)
        index = cls(native, length, description.schema, description.bits)
        with files.naming(path):
            if description.rows is not None:
                index._attach(ParquetFolder.saved(description.rows, rows))
            elif rows is not None:
                index._attach(_opened(rows))
        return index

    def _attach(self, rows: IndexedRows) -> None:
        """Take these rows for those of the index, once they look like them."""
        if rows.num_rows != self._count:
            raise InvalidParameter(
                f"rows has {rows.num_rows} rows, the index {self._count}: pass what it was built of"
            )
        if isinstance(rows, TableRows):
            if _chosen(self._schema.names, rows.schema) != self._schema:
                raise InvalidParameter(
                    "rows has other types than the index: pass what it was built of"
                )
            for row in np.unique(np.linspace(0, self._count - 1, _SAMPLE, dtype=np.int64)):
                values = rows.find(np.array([row]), {}, self._schema.names) if self._count else None
                if values is not None and not self._holds(int(row), values):
                    raise InvalidParameter(
                        f"row {row} is not the one that was indexed: pass what the index was built "
                        "of, in the same order"
                    )
        self._rows = rows

    def _holds(self, row: int, values: pa.Table) -> bool:
        """Whether the index has a row with these values there."""
        scalars = {}
        for field in self._schema:
            column = keys.comparable(values.column(field.name).combine_chunks(), field.type)
            if column[0].is_valid:
                scalars[field.name] = column[0]
        return not scalars or row in self._candidates(scalars)

    @property
    def num_rows(self) -> int:
        """How many rows are indexed."""
        return self._count

    @property
    def length(self) -> int:
        """Bits of a row's signature."""
        return self._length

    @property
    def bits(self) -> dict[str, int]:
        """How many bits a value sets, by column."""
        return dict(zip(self._schema.names, self._bits, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the bitmaps."""
        return self._native.nbytes

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set: of a row without nulls, about what `plan` expects."""
        return self._native.set_bits() / max(1, self._count * self._length)

    def plan(self, distinct: Mapping[str, int] | None = None) -> SignaturePlan:
        """What this index weighs and lets through; `distinct` values of columns, where known."""
        known = distinct or {}
        shape = {name: known.get(name) for name in self._schema.names}
        return plan(self._count, shape, length=self._length, bits=self.bits)

    def __repr__(self) -> str:
        names = ", ".join(self._schema.names)
        return f"<SignatureIndex of {self._count:,} rows: {names}; {self._length} bits a row>"


def _opened(rows: Any) -> IndexedRows:
    if isinstance(rows, (str, os.PathLike)):
        return ParquetFolder.of(rows)
    table = as_table(rows)
    return TableRows(table.to_batches(), table.schema)


def _chosen(columns: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """The columns to index, in the types in which they are compared."""
    if isinstance(columns, str):
        raise InvalidParameter(f"columns is {columns!r}, must be a list of names: [{columns!r}]")
    fields = []
    for name in columns:
        if schema.names.count(name) != 1:
            what = "no" if name not in schema.names else "more than one"
            raise InvalidParameter(
                f"there is {what} column {name!r} among {', '.join(schema.names)}"
            )
        fields.append(pa.field(name, keys.comparable_type(name, schema.field(name).type)))
    if len(fields) != len({field.name for field in fields}) or not fields:
        raise InvalidParameter("columns must name at least one column, and none of them twice")
    return pa.schema(fields)


def _bits(bits: int | Mapping[str, int], names: Sequence[str]) -> list[int]:
    if isinstance(bits, int):
        return [bits] * len(names)
    for name in bits:
        if name not in names:
            raise InvalidParameter(f"bits names {name!r}, which is not among {', '.join(names)}")
    return [bits.get(name, DEFAULT_BITS) for name in names]


def _empty_signatures(length: int, bits: list[int]) -> _native.Signatures:
    for what, value in [("length", length), *(("bits", number) for number in bits)]:
        if type(value) is not int or not 1 <= value <= 4096:
            raise InvalidParameter(f"{what} is {value!r}, must be an int from 1 to 4096")
    return _native.Signatures(length, bits)
