"""A filter as a term of a Polars query: `frame.filter(contains("id", seen))`.

The expression is elementwise, so it runs in lazy and in streaming queries, and may be moved down to
the scan of a file. Every batch of rows is read where it lies, by `contains_many`: no Python object
a row. A row is the key that Polars shows for it, or the query fails with one error.
"""

from __future__ import annotations

from bloomery.extras import needed
from bloomery.types import ContainsMany

with needed("polars", "bloomery.integrations.polars"):
    import polars as pl
with needed("numpy", "bloomery.integrations.polars", "polars"):
    import numpy as np


def contains(expression: pl.Expr | str, filter: ContainsMany) -> pl.Expr:
    """True where the filter may contain a row's key, False where it definitely does not; null where
    the row is null. Any filter that has `contains_many` will do; a str names a column."""

    def answer(rows: pl.Series) -> pl.Series:
        if not rows.null_count():
            return pl.Series(rows.name, filter.contains_many(rows), dtype=pl.Boolean)
        answers = np.zeros(len(rows), bool)
        there = rows.is_not_null()
        answers[there.to_numpy()] = filter.contains_many(rows.drop_nulls())
        # A mask without nulls, made null where the row is.
        return pl.Series(rows.name, answers).set(~there, None)

    column = pl.col(expression) if isinstance(expression, str) else expression
    return column.map_batches(answer, return_dtype=pl.Boolean, is_elementwise=True)
