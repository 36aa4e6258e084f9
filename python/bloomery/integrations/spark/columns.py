"""Which columns of Spark can be keys, and how many distinct ones they hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bloomery import errors
from bloomery.extras import needed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

# Of HyperLogLog, by which Spark counts; five standard deviations of it are added to its count.
_DEVIATION = 0.02
_MARGIN = 1 + 5 * _DEVIATION

_INTS = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
# Types of which equal keys have equal hashes. A string with a collation has not: "A" and "a" may be
# equal. An interval, a map or a variant cannot be joined by, or not simply.
_HASHED = {*_INTS, "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"}
_HASHED |= {"float", "double"}
# Where Spark keeps that a string was declared char(n): it pads those before it compares.
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"


def keys_of(frame: DataFrame, column: str | Column) -> DataFrame:
    """Return the column alone, named `key`, without nulls; UnsupportedBatch if it has no keys."""
    with needed("pyspark", "bloomery.integrations.spark", "spark"):
        from pyspark.sql import functions as sql
    chosen = frame.select(sql.col(column) if isinstance(column, str) else column)
    if len(chosen.schema.fields) != 1:
        raise errors.UnsupportedBatch(
            f"{len(chosen.schema.fields)} columns are not a batch of keys: pick one, or pass "
            'their hash, functions.xxhash64("a", "b")'
        )
    kind = chosen.schema.fields[0].dataType.simpleString()
    if kind.partition(" ")[0] not in {*_INTS, "string", "binary"}:
        raise errors.UnsupportedBatch(
            f"a column of type {kind} has no keys: cast it to one of {', '.join(_INTS)}, string "
            "or binary"
        )
    named = chosen.toDF("key")
    return named.where(named["key"].isNotNull())


def count_distinct(frame: DataFrame, column: str | Column) -> tuple[int, int]:
    """Return how many distinct keys a column has at most, by an estimate, and how many rows."""
    from pyspark.sql import functions as sql

    counts = frame.agg(
        sql.approx_count_distinct(column, _DEVIATION), sql.count(sql.lit(1))
    ).collect()
    distinct, rows = counts[0]
    return max(1, math.ceil(distinct * _MARGIN)), rows


def common_hashes(large: DataFrame, small: DataFrame, on: list[str]) -> tuple[Column, str]:
    """Return what to hash on both sides, so that keys that join have one hash; or why not."""
    from pyspark.sql import functions as sql

    columns = []
    for name in on:
        mine, theirs = (_field(frame, name) for frame in (large, small))
        kinds = [field.dataType.simpleString() for field in (mine, theirs)]
        if any(_CHAR in field.metadata for field in (mine, theirs)):
            return sql.lit(
                None
            ), f"{name} is a char or varchar, which Spark pads before it compares"
        if all(kind in _INTS for kind in kinds):
            columns.append(sql.col(name).cast("bigint"))
        elif kinds[0] != kinds[1]:
            return sql.lit(
                None
            ), f"{name} is {kinds[0]} on the large side and {kinds[1]} on the small"
        elif not _hashed(mine.dataType):
            return sql.lit(
                None
            ), f"equal values of {name}, a {kinds[0]}, need not have equal hashes"
        else:
            columns.append(sql.col(name))
    return sql.xxhash64(*columns), ""


def _field(frame: DataFrame, name: str) -> StructField:
    """Return the column of that name, as Spark finds it: names may differ in case."""
    (field,) = frame.select(name).schema.fields
    return field


def _hashed(kind: DataType) -> bool:
    name = kind.simpleString()
    return name in _HASHED or name.startswith("decimal(")


def row_bytes(frame: DataFrame) -> int:
    """Return about how many bytes a row has in Spark's own estimate."""
    kinds = [field.dataType.simpleString() for field in frame.schema.fields]
    return 8 + sum({**_INTS, "boolean": 1, "date": 4, "float": 4}.get(k, 20) for k in kinds)
