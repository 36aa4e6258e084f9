"""Parquet's own Bloom filters: read them, ask them, and add them to files that have none.

A Parquet file is row groups one behind the other, then a footer that says where everything lies. A
column of a row group may have a filter of its values; engines that know of it (DuckDB, Spark) skip
row groups by it. The filters are Parquet's, not this library's: split-block filters of XXH64 over
values as they are stored.

- `layout` opens a file: its footer, its schema, and the bytes of its filters.
- `values` says how a value of Python is stored in a column, or that no row can be equal to it.
- `probing` asks the filters; `reading` reads the rows that are left; `inspection` lists filters.
- `pages` cuts out of a row group the pages that rows are in, so that only these are decoded.
- `writing` adds filters: a new file whose data is the old one's byte for byte, then the filters,
  then the footer with their places; or a sidecar with all but the data.

A *no* is certain. Whatever cannot be told (no filter, a kind that is not known, NaN) is a *maybe*.
"""

from bloomery.integrations.parquet.inspection import ColumnFilter, Inspection, inspect
from bloomery.integrations.parquet.probing import might_contain
from bloomery.integrations.parquet.reading import read
from bloomery.integrations.parquet.writing import AddedFilter, add_bloom

__all__ = [
    "AddedFilter",
    "ColumnFilter",
    "Inspection",
    "add_bloom",
    "inspect",
    "might_contain",
    "read",
]
