"""Arrow tables of several files in one: columns of one name may be of different types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
