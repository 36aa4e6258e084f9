"""Arrow tables: of several files in one, though columns have different types; and as rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bloomery.errors import InvalidSource


def concat(tables: Sequence[Any]) -> Any:
    """All rows of pyarrow tables, at least one; a column whose types have no common one is text."""
    import pyarrow as pa

    if all(table.schema.equals(tables[0].schema) for table in tables):
        return pa.concat_tables(tables)
    for table in tables:
        if len(set(table.column_names)) != len(table.column_names):
            raise InvalidSource(
                f"columns have the same name, among {', '.join(table.column_names)}: name those "
                "that are wanted, or give them other names"
            )
    if (joined := _promoted(tables)) is not None:
        return joined
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        for change in (_without_dictionary, _text):
            if _promoted([table.select([name]) for table in tables if _has(table, name)]) is None:
                tables = [_changed(table, name, change) for table in tables]
    return pa.concat_tables(tables, promote_options="permissive")


def python_rows(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a pyarrow table as Python objects.

    A time that Python does not have, of the year 10,000 say, is the number that the column stores.
    """
    for batch in table.to_batches(max_chunksize=1000):
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            rows = [
                {name: _as_python(column[row]) for name, column in columns.items()}
                for row in range(batch.num_rows)
            ]
        yield from rows


def _as_python(scalar: Any) -> Any:
    import pyarrow as pa

    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        pass
    if isinstance(scalar, pa.StructScalar):
        return {name: _as_python(value) for name, value in scalar.items()}
    if isinstance(scalar, pa.MapScalar):
        return [tuple(_as_python(pair).values()) for pair in scalar.values]
    if isinstance(scalar, pa.ListScalar):
        return [_as_python(value) for value in scalar.values]
    if isinstance(scalar, pa.DictionaryScalar):
        return _as_python(scalar.value)
    text = scalar.cast(pa.string()).as_py()  # nanoseconds, for which as_py needs pandas
    return scalar.value if text.startswith("<") else text


def _promoted(tables: Sequence[Any]) -> Any:
    """The tables in one, in types that hold those of all; None if there are none such."""
    import pyarrow as pa

    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None


def _has(table: Any, name: str) -> bool:
    return name in table.column_names


def _changed(table: Any, name: str, change: Callable[[Any], Any]) -> Any:
    if not _has(table, name):
        return table
    return table.set_column(table.column_names.index(name), name, change(table.column(name)))


def _without_dictionary(column: Any) -> Any:
    from pyarrow import types

    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column


def _text(column: Any) -> Any:
    """A column as text; what has none of its own, as lists, as JSON."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        values = [
            None if value is None else json.dumps(value, default=str)
            for value in column.to_pylist()
        ]
        return pa.chunked_array([pa.array(values, pa.string())])
