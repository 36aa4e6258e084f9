"""Cuts out of a row group the pages that some rows are in: of the others nothing is decoded.

A column of a row group is one page after another, perhaps with a dictionary before them, each
behind a header that says how long it is and how many values it has. pyarrow reads all of them or
none. So those that are needed are put behind each other, byte for byte, and pyarrow is given a
footer that says they are all there is.

It is a shortcut and no more: whatever is not as expected (columns within others, pages that do not
add up, a result of another length) is None, and then all of the row group is to be read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from bloomery.extras import needed
from bloomery.integrations.parquet.layout import MAGIC, ParquetLayout, damage, metadata_of

with needed("pyarrow", "bloomery.integrations.parquet"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq


class _Cut(NamedTuple):
    """What is needed of a column: bytes of the file, and where the rows are in their pages."""

    column: int
    values: int
    dictionary_bytes: int
    spans: list[tuple[int, int]]
    """Offset and length, the dictionary's first."""
    rows: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return sum(length for _, length in self.spans)


def rows_of_pages(
    layout: ParquetLayout, group: int, rows: Any, schema: Any, known: Mapping[str, Any]
) -> Any:
    """These rows of a row group, in order from 0 on, as a table of that schema; None if that cannot
    be had by their pages alone. Columns that are known already are not read."""
    names = [column.path for column in layout.columns]
    if len(set(names)) < len(names) or not set(schema.names) <= set(names):
        return None
    cuts = []
    for name in (name for name in schema.names if name not in known):
        cut = _cut(layout, group, names.index(name), rows)
        if cut is None:
            return None
        cuts.append(cut)
    columns = dict(known)
    # Pages mostly end at the same rows in all columns: they are read together, by all threads.
    together = defaultdict(list)
    for cut in cuts:
        together[cut.values, cut.rows].append(cut.column)
    with damage(layout.path):
        reader = _reader(layout, group, cuts)
        for (values, places), alike in together.items():
            table = reader.read_row_group(0, column_indices=alike)
            if table.num_rows != values or table.num_columns != len(alike):
                return None
            table = take_rows(table, places)
            columns |= dict(zip(table.column_names, table.columns, strict=True))
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _reader(layout: ParquetLayout, group: int, cuts: list[_Cut]) -> Any:
    """The file that the pages are put into, as pyarrow reads it."""
    data = pa.allocate_buffer(len(MAGIC) + sum(cut.num_bytes for cut in cuts))
    view, at = memoryview(data), len(MAGIC)
    places = []
    for cut in cuts:
        places.append((cut.column, at, cut.values, cut.dictionary_bytes, cut.num_bytes))
        for offset, length in cut.spans:
            layout.read_into(offset, view[at : at + length])
            at += length
    metadata = metadata_of(layout.footer.cut(group, places))
    return pq.ParquetFile(pa.BufferReader(data), metadata=metadata).reader


def _cut(layout: ParquetLayout, group: int, column: int, rows: Any) -> _Cut | None:
    """The pages of a column that these rows are in."""
    if layout.columns[column].max_repetition_level:
        return None
    found = layout.pages(group, column)
    if not found:
        return None
    total = layout.footer.rows[group]
    dictionary, pages, counts = 0, [], [0]
    for page in found:
        if page.values is not None:
            if not 0 <= page.values <= total:
                return None  # by an overflow they may add up nevertheless
            pages.append((page.offset, page.num_bytes))
            counts.append(page.values)
        elif pages or dictionary:
            return None  # a dictionary is the first page, if there is one
        else:
            dictionary = page.num_bytes
    starts = np.cumsum(counts)
    if starts[-1] != total:
        return None
    needed = np.unique(of := np.searchsorted(starts, rows, side="right") - 1)
    before = np.concatenate([[0], np.cumsum(np.diff(starts)[needed])])
    within = rows - starts[of] + before[np.searchsorted(needed, of)]
    spans = [(found[0].offset, dictionary)] if dictionary else []
    spans += [pages[number] for number in needed]
    return _Cut(column, int(before[-1]), dictionary, spans, tuple(within.tolist()))


def take_rows(table: Any, rows: Any) -> Any:
    """Some rows of a table, in order."""
    # Not by `take`, which puts the chunks of a column together: of text no more than 2 GiB can be.
    mask = np.zeros(table.num_rows, bool)
    mask[np.asarray(rows)] = True
    try:
        return table.filter(pa.array(mask))
    except pa.ArrowNotImplementedError:
        # Some types (views of strings in pyarrow 26) can be sliced only.
        return pa.concat_tables([table.slice(row, 1) for row in rows])
