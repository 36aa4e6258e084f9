"""Reads the rows that are equal to a value, from those row groups alone whose filters allow it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from typing import Any

from bloomery.errors import CorruptData, InvalidParameter
from bloomery.extras import needed
from bloomery.integrations.parquet.layout import ParquetLayout, damage
from bloomery.integrations.parquet.pages import rows_of_pages, take_rows
from bloomery.integrations.parquet.probing import candidates
from bloomery.integrations.parquet.values import stored

with needed("pyarrow", "bloomery.integrations.parquet"):
    import pyarrow as pa
    import pyarrow.compute as pc


def read(
    file: str | os.PathLike[str],
    column: str,
    value: object,
    columns: Sequence[str] | None = None,
    *,
    sidecar: str | os.PathLike[str] | None = None,
) -> Any:
    """The rows whose column is equal to the value, as an Arrow table: every one of them, and none
    else. `columns` names those of the table; all by default.

    Row groups are left out by their filters. Of the others the column is read first, and the rest
    only where a row was found. NaN finds the rows that hold a NaN.
    """
    with ParquetLayout(file, sidecar) as layout:
        number = layout.column(column)
        about = layout.columns[number]
        if about.max_repetition_level:
            raise InvalidParameter(
                f"column {column!r} is within lists, so that a row has several values: ask "
                "might_contain, and look through the row groups that it leaves"
            )
        equal = _comparison(about, value)
        groups = [i for i, maybe in enumerate(candidates(layout, number, value)) if maybe]
        wanted = None if columns is None else [layout.known(name) for name in columns]
        with damage(layout.path):
            tables = [layout.reader([]).read_row_groups([], columns=wanted)]
        schema = tables[0].schema
        for group in groups:
            chunks = list(layout.stored_rows(group, number))
            count, expected = sum(map(len, chunks)), layout.footer.rows[group]
            if count != expected:  # those found would be other rows in the other columns
                raise CorruptData(
                    f"{layout.path}: damaged, row group {group} has {count} values in column "
                    f"{column!r}, expected {expected}"
                )
            rows = pc.indices_nonzero(pa.chunked_array([equal(c) for c in chunks], pa.bool_()))
            if len(rows):
                rows = rows.cast(pa.int64()).to_numpy()
                with damage(layout.path):
                    known = _shown_as_stored(column, chunks, rows, schema)
                table = rows_of_pages(layout, group, rows, schema, known)
                if table is None:
                    table = _rows_of_group(layout, group, rows, wanted)
                tables.append(table)
        with damage(layout.path):
            return pa.concat_tables(tables)


def _shown_as_stored(column: str, chunks: list[Any], rows: Any, schema: Any) -> dict[str, Any]:
    """The rows of the column that was looked through, if it shows just what it stores."""
    if schema.names.count(column) != 1 or chunks[0].type != schema.field(column).type:
        return {}
    whole = pa.table({column: pa.chunked_array(chunks)})
    return {column: take_rows(whole, rows).column(0)}


def _rows_of_group(layout: ParquetLayout, group: int, rows: Any, wanted: list[str] | None) -> Any:
    """Some rows of a row group, all of which is read."""
    reader = layout.reader([group])
    with damage(layout.path):
        return take_rows(reader.read_row_group(0, columns=wanted), rows)


def _comparison(column: Any, value: object) -> Any:
    """A function from stored values to which of them are equal to the value."""
    ways = stored(column, value)
    if column.physical_type == "BOOLEAN" and isinstance(value, bool):
        return lambda rows: pc.equal(rows, value)
    if ways is None:
        # Only a NaN is not told of these.
        if column.physical_type in ("FLOAT", "DOUBLE"):
            return pc.is_nan
        if column.logical_type.type == "FLOAT16":  # which pyarrow shows as two bytes
            return lambda rows: pc.is_nan(rows.view(pa.float16()).cast(pa.float32()))
        raise InvalidParameter(
            f"column {column.path!r} of type {column.physical_type} cannot be looked up by "
            f"{value!r}: filter it with pyarrow instead"
        )

    def equal(rows: Any) -> Any:
        return reduce(pc.or_, [pc.equal(rows, _scalar(way, rows.type)) for way in ways])

    return equal


def _scalar(data: bytes, kind: Any) -> Any:
    """Stored bytes as a scalar of the type in which stored values are read."""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(data, kind)
    return pa.array([data], pa.binary(len(data))).view(kind)[0]
