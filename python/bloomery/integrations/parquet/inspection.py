"""Lists the filters of a Parquet file."""

from __future__ import annotations

import os
from dataclasses import dataclass

import bloomery._native as _native
from bloomery.integrations.parquet.layout import ParquetLayout


@dataclass(frozen=True)
class ColumnFilter:
    """The filter of a column in a row group."""

    row_group: int
    column: str
    num_bytes: int
    """Of its bits, without the header."""
    estimated_error_rate: float
    """How often it says maybe of a value that is not there, computed from the bits as they are."""


@dataclass(frozen=True)
class Inspection:
    """What a Parquet file has: rows in each row group, columns, and filters."""

    rows: list[int]
    columns: list[str]
    filters: list[ColumnFilter]


def inspect(
    file: str | os.PathLike[str], *, sidecar: str | os.PathLike[str] | None = None
) -> Inspection:
    """Say which columns of which row groups have filters, how large, and how often they are wrong.

    Filters of a kind that is not known are left out: nobody here can ask them.
    """
    with ParquetLayout(file, sidecar) as layout:
        filters = []
        for number, column in enumerate(layout.columns):
            for group, place in enumerate(layout.filters(number)):
                if place is not None:
                    rate = _native.parquet_error_rate(layout.read(*place))
                    filters.append(ColumnFilter(group, column.path, place.num_bytes, rate))
        filters.sort(key=lambda filter: filter.row_group)
        return Inspection(layout.footer.rows, [column.path for column in layout.columns], filters)
