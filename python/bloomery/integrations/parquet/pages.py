"""Cuts out of a row group the pages that some rows are in: of the others nothing is decoded.

A column of a row group is one page after another, perhaps with a dictionary before them, each behind
a header that says how long it is and how many values it has. pyarrow reads all of them or none. So
those that are needed are put behind each other, byte for byte, and pyarrow is given a footer that
says they are all there is.

It is a shortcut and no more: whatever is not as expected (columns within others, pages that do not
add up, a result of another length) is None, and then all of the row group is to be read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import bloomery._native as _native
from bloomery.extras import needed
from bloomery.integrations.parquet.layout import MAGIC, ParquetLayout, damage, metadata_of

with needed("pyarrow", "bloomery.integrations.parquet"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

# A header has statistics, of which a value may be long; one that is longer is not looked for.
_HEADER_BYTES = 512


class _Cut(NamedTuple):
    """What is needed of a column: bytes of the file, and where the rows are in their pages."""

    values: int
    dictionary_bytes: int
    spans: list[tuple[int, int]]
    """Offset and length, the dictionary's first."""
    rows: Any

    @property
    def num_bytes(self) -> int:
        return sum(length for _, length in self.spans)


def rows_of_pages(layout: ParquetLayout, group: int, rows: Any, schema: Any) -> Any:
    """These rows of a row group, in order from 0 on, as a table of that schema; None if that cannot
    be had by their pages alone."""
    names = [column.path for column in layout.columns]
    if len(set(names)) < len(names) or not set(schema.names) <= set(names):
        return None
    numbers = [names.index(name) for name in schema.names]
    cuts = {}
    for number in numbers:
        cut = _cut(layout, group, number, rows)
        if cut is None:
            return None
        cuts[number] = cut
    footer = layout.footer.cut(
        group,
        [(n, cut.values, cut.dictionary_bytes, cut.num_bytes) for n, cut in cuts.items()],
    )
    with damage(layout.path):
        metadata = metadata_of(footer)
        columns = [_read(layout, metadata, number, cuts[number]) for number in numbers]
    found = [column for column in columns if column is not None]
    return pa.table(found, schema=schema) if len(found) == len(columns) else None


def _cut(layout: ParquetLayout, group: int, column: int, rows: Any) -> _Cut | None:
    """The pages of a column that these rows are in."""
    place = layout.footer.pages(group, column)
    if place is None or layout.columns[column].max_repetition_level:
        return None
    at, end = place[0], sum(place)
    if not len(MAGIC) <= at <= end <= layout.footer_start:
        return None
    dictionary, pages, counts = 0, [], [0]
    while at < end:
        page = _native.parquet_page(layout.read(at, min(_HEADER_BYTES, end - at)))
        if page is None or page[0] > end - at:
            return None
        length, values = page
        if values is not None:
            pages.append((at, length))
            counts.append(values)
        elif pages or dictionary:
            return None  # a dictionary is the first page, if there is one
        else:
            dictionary = length
        at += length
    starts = np.cumsum(counts)
    if starts[-1] != layout.footer.rows[group]:
        return None
    needed = np.unique(of := np.searchsorted(starts, rows, side="right") - 1)
    before = np.concatenate([[0], np.cumsum(np.diff(starts)[needed])])
    within = rows - starts[of] + before[np.searchsorted(needed, of)]
    spans = [(place[0], dictionary)] if dictionary else []
    return _Cut(int(before[-1]), dictionary, [*spans, *(pages[n] for n in needed)], within)


def _read(layout: ParquetLayout, metadata: Any, column: int, cut: _Cut) -> Any:
    """The rows of a column, of which the pages alone are read; None if pyarrow reads other pages
    than it should."""
    data = pa.allocate_buffer(len(MAGIC) + cut.num_bytes)
    view, at = memoryview(data), len(MAGIC)
    for offset, length in cut.spans:
        layout.read_into(offset, view[at : at + length])
        at += length
    reader = pq.ParquetFile(pa.BufferReader(data), metadata=metadata).reader
    table = reader.read_row_group(0, column_indices=[column], use_threads=False)
    if table.num_rows != cut.values or table.num_columns != 1:
        return None
    return taken(table, pa.array(cut.rows)).column(0)


def taken(table: Any, rows: Any) -> Any:
    """Some rows of a table."""
    try:
        return table.take(rows)
    except pa.ArrowNotImplementedError:
        # Some types (views of strings in pyarrow 26) can be sliced only.
        return pa.concat_tables([table.slice(row, 1) for row in rows.to_pylist()])
