"""Values that are asked for, as the columns of files have them."""

import datetime
import decimal
import warnings
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import UnsupportedKey
from bloomery.segments import SegmentIndex
from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")
np = require("numpy")

PLUS_FIVE = datetime.timezone(datetime.timedelta(hours=5))


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


@pytest.mark.parametrize(
    ("kind", "value", "others"),
    [
        (pa.decimal128(10, 2), decimal.Decimal("1.23"), [1.234, "1.234", decimal.Decimal("1.234")]),
        (pa.decimal256(60, 20), decimal.Decimal("1.23"), [1.2300000000000002]),
        (pa.float32(), float("inf"), [1e300, "1e300", 10**300, decimal.Decimal("1e400")]),
        (pa.float16(), float("inf"), [70000.0, "70000", 70000]),
        (pa.float64(), float("inf"), ["1e400", 10**400, decimal.Decimal("1e400")]),
        (pa.float64(), 0.0, ["1e-400", decimal.Decimal("1e-400")]),
        (pa.float32(), 0.0, [1e-300, "1e-300"]),
        (pa.time32("s"), datetime.time(0), [datetime.datetime(2020, 2, 29)]),
        (pa.time64("us"), datetime.time(10), [datetime.time(10, tzinfo=PLUS_FIVE)]),
        (
            pa.date32(),
            datetime.date(2020, 2, 29),
            [
                datetime.datetime(2020, 2, 29, 12),
                datetime.datetime(2020, 2, 29, tzinfo=PLUS_FIVE),
                np.datetime64("2020-02-29T12:00:00"),
            ],
        ),
        (pa.int64(), 1, [1.5, decimal.Decimal("1.5"), float("nan"), decimal.Decimal("1e999999")]),
        (pa.bool_(), True, [2, 2.5, np.float32(2.5), decimal.Decimal(5)]),
        (pa.float64(), 0.0, [decimal.Decimal("sNaN"), decimal.Decimal("NaN")]),
        (pa.int64(), 10**9, [decimal.Decimal("sNaN"), np.float16("inf"), np.float32("nan")]),
    ],
)
def test_value_that_the_type_would_change_finds_nothing(
    tmp_path: Path, kind: Any, value: object, others: list[object]
) -> None:
    """The row itself is found; a value that becomes the row's only by a cast is not equal."""
    pq.write_table(pa.table({"id": pa.array([value], kind)}), tmp_path / "a.parquet")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert index.find({"id": value}).num_rows == 1
        found = {repr(one): index.find({"id": one}).num_rows for one in others}
        assert found == {repr(one): 0 for one in others}


@pytest.mark.parametrize(
    ("kind", "value", "asked"),
    [
        (pa.decimal128(10, 2), decimal.Decimal("1.23"), [1.23, "1.23", "1.230", np.float32(1.23)]),
        (pa.decimal256(60, 20), decimal.Decimal("1.23"), [1.23]),
        (pa.float32(), 0.1, [0.1, "0.1", decimal.Decimal("0.1"), np.float32(0.1)]),
        (pa.float16(), 0.1, [0.1, "0.1", np.float16(0.1)]),
        (pa.float64(), float("-inf"), ["-inf", "-Infinity", decimal.Decimal("-Infinity")]),
        (pa.int64(), 2**60, [2.0**60, decimal.Decimal(2**60), pa.scalar(2**60)]),
        (pa.date32(), datetime.date(2020, 2, 29), [np.datetime64("2020-02-29T00:00:00")]),
        (pa.duration("s"), datetime.timedelta(seconds=5), [np.timedelta64(5, "s"), 5]),
    ],
)
def test_equal_value_of_another_type_is_found(
    tmp_path: Path, kind: Any, value: object, asked: list[object]
) -> None:
    """A float stands for the nearest that a column of floats has."""
    column = pa.array([value], kind if kind != pa.float16() else pa.float32()).cast(kind)
    pq.write_table(pa.table({"id": column}), tmp_path / "a.parquet")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        found = {repr(one): index.find({"id": one}).num_rows for one in asked}
        assert found == {repr(one): 1 for one in asked}


def test_spans_of_pandas_are_compared_whole(tmp_path: Path) -> None:
    """Nanoseconds count, and NaT equals nothing."""
    pandas = require("pandas")
    span = pandas.Timedelta(5_000_000_001, "ns")
    fine = pa.array([5_000_000_001, 5_000_000_000], pa.int64()).cast(pa.duration("ns"))
    rough = pa.array([datetime.timedelta(seconds=5), None])
    pq.write_table(pa.table({"fine": fine, "rough": rough}), tmp_path / "a.parquet")
    with SegmentIndex.build(tmp_path, ["fine", "rough"]) as index:
        assert index.find({"fine": span})["fine"].combine_chunks() == fine[:1]
        assert index.find({"fine": span.floor("us")})["fine"].combine_chunks() == fine[1:]
        assert index.find({"rough": span}).num_rows == 0
        assert index.find({"rough": span.floor("us")}).num_rows == 1
        assert index.find({"rough": pandas.NaT}).num_rows == 0


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float64(), pa.bool_()], ids=str)
@pytest.mark.parametrize(
    "value",
    [
        datetime.time(0, 0, 0, 1),
        datetime.date(1970, 1, 2),
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
        datetime.timedelta(microseconds=1),
        np.timedelta64(1, "s"),
        pa.scalar(1, pa.time32("s")),
    ],
    ids=repr,
)
def test_times_are_not_numbers(tmp_path: Path, kind: Any, value: object) -> None:
    """A column of numbers does not say in which unit they would be times."""
    pq.write_table(pa.table({"id": pa.array([1]).cast(kind)}), tmp_path / "a.parquet")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        with pytest.raises(UnsupportedKey, match="cannot be looked up in a column of type"):
            index.find({"id": value})
        assert index.find({"id": 1}).num_rows == 1


def test_numbers_of_numpy_are_looked_up_without_a_warning(tmp_path: Path) -> None:
    """A half cannot be compared with 2**64."""
    pq.write_table(pa.table({"id": [1, 65504]}), tmp_path / "a.parquet")
    with SegmentIndex.build(tmp_path, ["id"]) as index, warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (np.float16(65504), np.float32(1), np.float64(1)):
            assert index.find({"id": value}).num_rows == 1


def test_times_that_python_does_not_have_are_looked_up(tmp_path: Path) -> None:
    """A question about the year 146 billion is not a damaged catalogue."""
    column = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"ts": column, "n": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("ts,n\n2020-01-01 00:00:00,3\n")  # of seconds
    with SegmentIndex.build(tmp_path, ["ts"]) as index:
        assert index.find({"ts": 2**62}, ["n"]).to_pylist() == [{"n": 2}]
        assert index.find({"ts": 2**61}, ["n"]).num_rows == 0
        assert index.find({"ts": column[1]}, ["n"]).num_rows == 1


def test_files_that_cannot_have_the_value_do_not_refuse_it_for_others(tmp_path: Path) -> None:
    """Each file is judged by its own type, indexed or not; an error needs all of them."""
    pq.write_table(pa.table({"id": [5.5]}), tmp_path / "a.parquet")
    times = pa.table({"id": [datetime.datetime(2020, 1, 1)]})
    pq.write_table(times, tmp_path / "b.parquet")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert index.find({"id": 5.5}, ["id"]).num_rows == 1
        pq.write_table(times, tmp_path / "c.parquet")
        assert index.find({"id": 5.5}, ["id"]).num_rows == 1
        for path in ("a.parquet", "b.parquet"):
            (tmp_path / path).unlink()
        index.update()
        with pytest.raises(UnsupportedKey, match="float cannot be looked up"):
            index.find({"id": 5.5})
        pq.write_table(pa.table({"id": [5.5]}), tmp_path / "d.parquet")
        assert index.find({"id": 5.5}, ["id"]).num_rows == 1
        with pytest.raises(UnsupportedKey, match="list"):
            index.find({"id": [1]})
