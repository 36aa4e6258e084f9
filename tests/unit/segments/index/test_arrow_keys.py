"""Values that are asked for, as the columns of files have them."""

import datetime
import decimal
from pathlib import Path
from typing import Any

import pytest

from bloomery.segments import SegmentIndex
from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")


@pytest.mark.parametrize(
    ("file", "values", "asked"),
    [
        (pa.decimal128(10, 2), [decimal.Decimal("5.00")], [5, 5.0, "5", decimal.Decimal(5)]),
        (pa.decimal128(5, 2), [decimal.Decimal("5.00")], [5, decimal.Decimal("5.000")]),
        (pa.float64(), [float(2**63), float(2**53), 0.5], [2**63, 2**53 + 1, " 0.5", "0.5 "]),
        (pa.float32(), [float(2**63)], [2**63]),
        (pa.float16(), [0.5, 3.0], ["0.5", 3]),
        (pa.uint64(), [2**63 + 5], [2**63 + 5, str(2**63 + 5)]),
        (pa.string(), [str(2**63 + 5)], [2**63 + 5, str(2**63 + 5)]),
        (pa.time32("s"), [datetime.time(10)], ["10:00:00", "10:00", datetime.time(10)]),
        (pa.time64("ns"), [datetime.time(10, 0, 0, 5)], ["10:00:00.000005", "10:00:00.000005000"]),
        (
            pa.timestamp("us"),
            [datetime.datetime(2020, 1, 1)],
            ["2020-01-01", "2020-01-01T00:00:00Z", "2020-01-01T02:00:00+02:00"],
        ),
        (
            pa.timestamp("us", "UTC"),
            [datetime.datetime(2020, 1, 1)],
            ["2020-01-01", "2020-01-01 00:00:00", "2020-01-01T00:00:00Z"],
        ),
        ("a.csv", ["42", " 43", "44 "], [42, "42", " 43", "44 ", "43"]),
        ("a.csv", [" 1.5", "2"], [" 1.5", "1.5", 2]),
        ("a.csv", [str(2**63 + 5), "5"], [2**63 + 5, str(2**63 + 5), 5]),
        ("a.csv", ["10:00:00"], ["10:00:00"]),
        ("a.csv", ["2020-01-01T00:00:00Z"], ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00"]),
        ("a.jsonl", ["2020-01-01T00:00:00Z"], ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00"]),
    ],
)
def test_a_value_is_found_however_it_is_written(
    tmp_path: Path, file: Any, values: list[Any], asked: list[object]
) -> None:
    """A number, text or a time that says what a row has finds it, whatever pyarrow casts."""
    if file == "a.csv":
        (tmp_path / file).write_text("".join(f"{line},1\n" for line in ["id", *values]))
    elif file == "a.jsonl":
        (tmp_path / file).write_text("".join(f'{{"id": "{value}"}}\n' for value in values))
    else:
        pq.write_table(pa.table({"id": pa.array(values, file)}), tmp_path / "a.parquet")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert {repr(one): index.find({"id": one}).num_rows for one in asked} == {
            repr(one): 1 for one in asked
        }


def test_an_instant_is_compared_whole(tmp_path: Path) -> None:
    """Noon is no row of a column of days; nanoseconds count, and surrogates are in no file."""
    pandas = require("pandas")
    stamp = pandas.Timestamp("2020-01-01 00:00:00.000000007")
    days = pa.array([datetime.date(2020, 1, 1)])
    times = pa.array([stamp.value], pa.int64()).cast(pa.timestamp("ns"))
    rough = pa.array([datetime.datetime(2020, 1, 1)])
    table = pa.table({"day": days, "time": times, "rough": rough, "text": ["x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with SegmentIndex.build(tmp_path, ["day", "time", "rough", "text"]) as index:

        def count(name: str, value: object) -> int:
            return int(index.find({name: value}).num_rows)

        assert count("time", stamp) == count("time", "2020-01-01T00:00:00.000000007") == 1
        assert count("time", stamp.floor("us")) == count("rough", stamp) == count("day", stamp) == 0
        assert count("day", datetime.datetime(2020, 1, 1)) == 1
        assert count("day", datetime.datetime(2020, 1, 1, 12)) == 0
        assert count("text", "\ud800") == 0
