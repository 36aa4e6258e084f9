"""What a column that is no batch of keys is told: its type by name, the row, and what to pass."""

from __future__ import annotations

import array
import datetime
import decimal
import math
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter, StaticFilter, errors
from conftest import require

INT64 = "an int column with missing values\\? use Int64"


def columns() -> dict[str, tuple[Any, str]]:
    pd, pl, pa = require("pandas"), require("polars"), require("pyarrow")
    return {
        "NumPy": (np.array([1.0, 2.0, math.nan]), f"array of float64 .*row 2 is NaN: {INT64}"),
        "NumPy, of 32 bits": (
            np.array([math.nan], "f4"),
            f"array of float32 .*row 0 is NaN: {INT64}",
        ),
        "NumPy, big": (np.array([1.0, math.nan], ">f8"), "row 1 is NaN"),
        "NumPy, strided": (np.array([1.0, 9.0, 1.0, math.nan])[1::2], "row 1 is NaN"),
        "NumPy without NaN": (np.array([1.5]), r"float64 .*astype\('int64'\).*astype\(str\)"),
        "array": (array.array("d", [1.0]), "array of float64"),
        "pandas": (pd.Series([1, None, 3]), f"array of float64 .*row 1 is NaN: {INT64}"),
        "pandas' own": (pd.Series([1.5, None], dtype="Float64"), f"column of float64 .*{INT64}"),
        "pandas, bools": (pd.Series([True, None], dtype="boolean"), "column of bool .*int8"),
        "Polars": (pl.Series([1.0, None]), f"column of float64 .*{INT64}"),
        "Polars, dates": (pl.Series([datetime.date(2024, 1, 1)]), "column of date32"),
        "Polars, instants": (pl.Series([datetime.datetime(2024, 1, 1)]), "column of timestamp"),
        "Polars, lists": (pl.Series([[1, 2]]), "column of list"),
        "pyarrow": (pa.array([1.5]), f"column of float64 .*{INT64}"),
        "pyarrow, half": (pa.array([np.float16(1)]), "column of float16"),
        "pyarrow, decimals": (pa.array([decimal.Decimal("1.5")]), "column of decimal"),
        "pyarrow, times": (pa.array([datetime.time(1)]), "column of time "),
        "pyarrow, durations": (pa.array([datetime.timedelta(1)]), "column of duration"),
        "pyarrow, maps": (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), "column of map"),
        "pyarrow, a dictionary of floats": (pa.array([1.5]).dictionary_encode(), "of float64"),
        "a LazyFrame": (pl.LazyFrame({"a": [1]}), r'frame\.select\("column"\)\.collect\(\)'),
    }


@pytest.mark.parametrize("name", columns())
def test_types_have_names(name: str) -> None:
    """A column is refused by the name of its type, never by a code, and with the way out."""
    batch, says = columns()[name]
    for way in (BloomFilter(10).add_many, BloomFilter(10).update, StaticFilter.build):
        with pytest.raises(errors.UnsupportedBatch, match=says) as caught:
            way(batch)
        assert "format" not in str(caught.value)


def test_duckdb() -> None:
    """A connection says that it takes a relation; a relation of one column is taken."""
    connection = require("duckdb").connect()
    relation = "SELECT range AS key FROM range(3)"
    for batch in (connection, connection.cursor().execute(relation)):
        with pytest.raises(errors.UnsupportedBatch, match=r"pass a relation, connection\.sql\("):
            BloomFilter(10).add_many(batch)
    assert list(BloomFilter(10, 1e-9).add_many(connection.sql(relation))) == [True] * 3
    with pytest.raises(errors.UnsupportedBatch, match=r"DOUBLE|column of float64"):
        BloomFilter(10).add_many(connection.sql("SELECT 1.5::DOUBLE AS key"))
    with pytest.raises(errors.UnsupportedBatch, match=r"2 columns .* pick one"):
        BloomFilter(10).add_many(connection.sql("SELECT 1 AS a, 2 AS b"))


def test_what_it_says_to_pass_is_taken() -> None:
    """A collected frame and a column of Int64 without its nulls are batches."""
    pd, pl = require("pandas"), require("polars")
    frame = pl.LazyFrame({"column": [1, 2]})
    assert list(BloomFilter(10, 1e-9).add_many(frame.select("column").collect())) == [True, True]
    column = pd.Series([1, None, 3]).astype("Int64")
    assert list(BloomFilter(10, 1e-9).add_many(column, nulls="skip")) == [True, False, True]
    assert list(BloomFilter(10, 1e-9).add_many(column.dropna())) == [True, True]


@pytest.mark.parametrize(
    "batch",
    [["a", "b", math.nan], np.array(["a", "b", math.nan], object), iter(("a", "b", math.nan))],
)
def test_objects_name_their_row(batch: Any) -> None:
    """Of objects, what cannot be a key is named with its row; NaN as a value that is missing."""
    with pytest.raises(errors.UnsupportedKey, match=r"^row 2: .*this one is NaN, a missing value"):
        BloomFilter(10).add_many(batch)


def test_rows_of_other_errors() -> None:
    """Errors of a key's own code are left as they are; those about keys get the row."""
    with pytest.raises(errors.UnsupportedKey, match=r"^row 1: float cannot be a key"):
        BloomFilter(10).add_many([1, 1.5])  # type: ignore[list-item]
    with pytest.raises(errors.InvalidKey, match=r"^row 1: "):
        BloomFilter(10).add_many(["a", "\ud800"])
    with pytest.raises(errors.UnsupportedKey, match=r"^float cannot be a key"):
        BloomFilter(10).add(1.5)  # type: ignore[arg-type]


def test_from_keys_says_the_same() -> None:
    """Whatever is no batch is told so before anything is sized for it."""
    pl = require("polars")
    with pytest.raises(errors.UnsupportedBatch, match=r"collect"):
        BloomFilter.from_keys(pl.LazyFrame({"a": [1]}))
    with pytest.raises(errors.UnsupportedBatch, match=r"connection\.sql"):
        BloomFilter.from_keys(require("duckdb").connect())
