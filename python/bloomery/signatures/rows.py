"""Where the rows of an index are: in Arrow tables in memory, or in Parquet files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bloomery.errors import InvalidParameter, UnsupportedBatch
from bloomery.signatures.columns import comparable

if TYPE_CHECKING:
    import numpy.typing as npt

    RowNumbers = npt.NDArray[np.int64]

# Rows hashed at once: of ten columns 10 MB of hashes.
BATCH = 1 << 17


class IndexedRows(ABC):
    """Rows in an order that does not change, some more now and then at the end."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns and their types."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """How many there are."""

    @abstractmethod
    def batches(self, columns: Sequence[str], start: int) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows from a row on, some rows at a time."""

    @abstractmethod
    def find(
        self, numbers: RowNumbers, asked: Mapping[str, pa.Scalar], columns: Sequence[str] | None
    ) -> pa.Table:
        """Those of the rows with these numbers, in order, whose columns equal what is asked for."""

    @abstractmethod
    def with_more(self, more: Any) -> IndexedRows:
        """These rows and others behind them."""

    def about(self) -> dict[str, Any] | None:
        """What is saved with an index so that the rows can be found again; None: nothing can."""
        return None


class TableRows(IndexedRows):
    """The rows of tables in memory, which are not copied."""

    def __init__(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = [batch for batch in batches if batch.num_rows]
        self._schema = schema
        lengths = [batch.num_rows for batch in self._batches]
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def num_rows(self) -> int:
        return int(self._starts[-1])

    def batches(self, columns: Sequence[str], start: int) -> Iterator[pa.RecordBatch]:
        for batch, begin in zip(self._batches, self._starts, strict=False):
            selected = batch.select(list(columns))
            for at in range(max(0, start - int(begin)), batch.num_rows, BATCH):
                yield selected.slice(at, BATCH)

    def find(
        self, numbers: RowNumbers, asked: Mapping[str, pa.Scalar], columns: Sequence[str] | None
    ) -> pa.Table:
        batches = []
        for part, within in split(numbers, self._starts):
            batch = self._batches[part]
            places = narrowed(batch.column, within, asked)
            if len(places):
                batches.append(_selected(batch, columns).take(pa.array(places)))
        return pa.Table.from_batches(batches, _chosen(self._schema, columns))

    def with_more(self, more: Any) -> IndexedRows:
        table = as_table(more)
        if table.schema.names != self._schema.names:
            raise InvalidParameter(
                f"the rows have the columns {', '.join(table.schema.names)}; those before have "
                f"{', '.join(self._schema.names)}: select and name them alike"
            )
        for field, known in zip(table.schema, self._schema, strict=True):
            if not pa.types.is_null(field.type) and _family(field.type) != _family(known.type):
                raise InvalidParameter(
                    f"the column {field.name!r} is of type {field.type}, and was of type "
                    f"{known.type} in the rows before: cast them first, if that says the same"
                )
        try:
            table = table.cast(self._schema)
        except (pa.ArrowException, ValueError) as problem:
            raise InvalidParameter(
                f"the rows do not fit those before: {str(problem).splitlines()[0]}: cast them first"
            ) from None
        return TableRows([*self._batches, *table.to_batches()], self._schema)


def _family(kind: pa.DataType) -> str:
    """What a type's values are: a cast within it changes none; "007" is text, and 7 is not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_timestamp(kind):
        return "local time" if kind.tz is None else "instant"
    for name in ("string", "binary", "date", "time", "duration"):
        if str(kind).removeprefix("large_").removeprefix("fixed_size_").startswith(name):
            return name
    return str(kind)


def as_table(rows: Any) -> pa.Table:
    """An Arrow table out of anything that speaks Arrow: pyarrow, Polars, pandas, DuckDB."""
    if isinstance(rows, pa.Table):
        table = rows
    elif hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        try:
            table = pa.table(rows)
        except (pa.ArrowException, TypeError, ValueError) as problem:
            raise UnsupportedBatch(
                f"the rows of this {type(rows).__name__} cannot be read as an Arrow table: "
                f"{str(problem).splitlines()[0]}"
            ) from None
    else:
        collect = ", which has to be collected first," if hasattr(rows, "collect") else ""
        raise UnsupportedBatch(
            f"a {type(rows).__name__}{collect} is not a table: pass a pyarrow, Polars or pandas "
            "table, a DuckDB relation, or the path of a folder of Parquet files"
        )
    for number, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        # Polars hands text over as views, of which pyarrow cannot take some rows: they are copied.
        if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
            plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
            column = _without_views(table.column(number), plain)
            table = table.set_column(number, field.name, column)
    return table


def _without_views(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        return column.cast(kind)
    parts = [
        pa.DictionaryArray.from_arrays(part.indices, part.dictionary.cast(kind))
        for part in column.chunks
    ]
    return pa.chunked_array(parts, pa.dictionary(column.type.index_type, kind))


def split(numbers: RowNumbers, starts: RowNumbers) -> Iterator[tuple[int, RowNumbers]]:
    """Row numbers by the part that they are in and counted from there, of parts that begin so."""
    edges = np.searchsorted(numbers, starts)
    for part in np.flatnonzero(np.diff(edges)):
        yield int(part), numbers[edges[part] : edges[part + 1]] - starts[part]


def _take(column: pa.Array, places: RowNumbers) -> pa.Array:
    """Some values of a column, of which the places are in order: it is enough to check the last. To
    check each takes pyarrow as long as to take the values."""
    if places[-1] >= len(column):
        raise IndexError(f"there is no row {places[-1]} among {len(column)}")
    return pc.take(column, pa.array(places), boundscheck=False)


def narrowed(
    column: Callable[[str], pa.Array], places: RowNumbers, asked: Mapping[str, pa.Scalar]
) -> RowNumbers:
    """Those of the places where each column equals what is asked of it. Of the second column only
    those rows are taken where the first was equal, and so on: mostly there are none."""
    for name, value in asked.items():
        if not len(places):
            break
        values = comparable(_take(column(name), places), value.type)
        equal = pc.equal(values, value)
        if equal.null_count:
            equal = equal.fill_null(False)
        places = places[equal.to_numpy(zero_copy_only=False)]
    return places


def _selected(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    return batch if columns is None else batch.select(list(columns))


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])
