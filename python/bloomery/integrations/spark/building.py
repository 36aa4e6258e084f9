"""A filter out of a column of Spark: one for each partition, merged in a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bloomery import errors
from bloomery.filters.bloom import BloomFilter
from bloomery.integrations.spark import columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Filters of this size and less go to the driver as they are: thousands of partitions are some
# hundred MB. Larger ones are merged to 16 before, and those that are larger still to one.
FEW = 256 << 10
SOME = 32 << 20
GROUPS = 16
# Of a value in a row of Spark, which is a Java array.
_MOST_BYTES = 2**31 - (1 << 20)


def build(
    frame: DataFrame,
    column: str | Column,
    error_rate: float | str = 0.01,
    capacity: int | None = None,
) -> BloomFilter:
    """Make a filter of a column's keys, nulls left out: each partition its own, then their union.

    Without a capacity Spark counts the distinct keys first, approximately: a pass over the column
    more. Keys are those of the library: an int column has int keys, a string column str keys. For
    several columns pass their hash, `functions.xxhash64("a", "b")`, and ask for that as well.
    """
    keys = columns.keys_of(frame, column)
    if capacity is None:
        capacity, _ = columns.count_distinct(keys, "key")
    filter = BloomFilter(capacity, error_rate)
    if filter.nbytes > _MOST_BYTES:
        raise errors.InvalidParameter(
            f"a filter of {filter.nbytes:,} bytes does not fit into a row of Spark, which has at "
            f"most {_MOST_BYTES:,}: use a larger error_rate, or split the keys into several filters"
        )
    from bloomery.integrations.spark import worker

    parts = keys.mapInArrow(worker.filler(filter.capacity, filter.error_rate), worker.PARTS)
    groups = [] if filter.nbytes <= FEW else [GROUPS] if filter.nbytes <= SOME else [GROUPS, 1]
    for count in groups:
        parts = parts.groupBy(parts["part"] % count).applyInArrow(worker.merge, worker.PARTS)
    for data in parts.select("filter").toArrow().column(0):
        filter |= BloomFilter.from_bytes(data.as_buffer())
    return filter
