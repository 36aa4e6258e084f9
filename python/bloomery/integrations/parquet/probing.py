"""Asks the filters of a Parquet file: which row groups may hold a value?"""

from __future__ import annotations

import os

import bloomery._native as _native
from bloomery.integrations.parquet.layout import ParquetLayout
from bloomery.integrations.parquet.values import stored


def might_contain(
    file: str | os.PathLike[str],
    column: str,
    value: object,
    *,
    sidecar: str | os.PathLike[str] | None = None,
) -> list[bool]:
    """For each row group: False if no row of the column is equal to the value, which is certain;
    True if one may be, or if there is no filter to tell.

    A column within others is named by its path: `user.id`, `tags.list.element`. The value is what
    the column shows: an int, a str, a Decimal, a datetime, …; of a wrong type it is an error.
    """
    with ParquetLayout(file, sidecar) as layout:
        return candidates(layout, layout.column(column), value)


def candidates(layout: ParquetLayout, column: int, value: object) -> list[bool]:
    """As might_contain, of a file that is open."""
    ways = stored(layout.columns[column], value)
    filters = layout.filters(column)
    if ways is None:
        return [True] * len(filters)
    hashes = [_native.parquet_hash(way) for way in ways]
    if not hashes:
        return [False] * len(filters)
    return [place is None or layout.may_hold(place, hashes) for place in filters]
