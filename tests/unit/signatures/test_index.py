"""A signature index over tables: the rows that are equal, no others, whatever they come from."""

import datetime as dt
import threading
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from bloomery.errors import InvalidParameter, UnsupportedBatch
from conftest import require

pa = require("pyarrow")
from bloomery.signatures import SignatureIndex  # noqa: E402

UTC = dt.timezone.utc
# A column of each type, and two values of it; the third row is null.
TYPES: list[tuple[Any, Any, Any]] = [
    (pa.int8(), 1, -1),
    (pa.uint64(), 2**64 - 1, 0),
    (pa.string(), "żelazo", ""),
    (pa.large_string(), "a", "b"),
    (pa.binary(), b"\xff", b""),
    (pa.binary(3), b"abc", b"abd"),
    (pa.dictionary(pa.int8(), pa.string()), "a", "b"),
    (pa.dictionary(pa.int8(), pa.float64()), 1.5, 2.0),
    (pa.bool_(), True, False),
    (pa.date32(), dt.date(2024, 2, 29), dt.date(1, 1, 1)),
    (pa.date64(), dt.date(2024, 2, 29), dt.date(1970, 1, 1)),
    (pa.time32("s"), dt.time(12, 30), dt.time(0)),
    (pa.time64("us"), dt.time(12, 30, 0, 1), dt.time(0)),
    (pa.timestamp("us"), dt.datetime(2024, 2, 29, 12), dt.datetime(1960, 1, 1)),
    (pa.timestamp("ms", tz="UTC"), dt.datetime(2024, 2, 29, tzinfo=UTC), None),
    (pa.duration("us"), dt.timedelta(1), dt.timedelta(0)),
    (pa.decimal128(20, 2), Decimal("1.50"), Decimal("-1.50")),
    (pa.decimal256(50, 0), Decimal(10**40), Decimal(0)),
    (pa.float32(), 0.5, 0.0),
    (pa.float64(), -0.0, 1e300),
    (pa.uuid(), uuid.UUID(int=1), uuid.UUID(int=2)),
]


@pytest.mark.parametrize(("kind", "first", "second"), TYPES, ids=lambda x: str(x)[:30])
def test_every_type_is_found_by_its_values(kind: Any, first: Any, second: Any) -> None:
    """Rows are found by the value that their own library shows, in every type that has equality."""
    table = pa.table({"v": pa.array([first, second, None], kind), "n": [0, 1, 2]})
    index = SignatureIndex.build(table, ["v"])
    for value, row in [(first, 0), (second, 1)]:
        found = index.find({"v": value}, ["n"]).column("n").to_pylist()
        assert found == ([row] if value is not None else [])
        scalar = index.find({"v": table.column("v")[row]}, ["n"]).column("n").to_pylist()
        assert scalar == found


def test_times_that_python_does_not_have_are_looked_up() -> None:
    """By a scalar of the column; an int is no time, and a clear error."""
    times = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("s"))
    index = SignatureIndex.build(pa.table({"ts": times, "n": [0, 1]}))
    assert index.find({"ts": times[1]}, ["n"]).column("n").to_pylist() == [1]
    with pytest.raises(InvalidParameter, match="ts is 4611686018427387904"):
        index.find({"ts": 2**62})


def test_equal_floats_are_equal() -> None:
    """Both zeros are one value, and NaN is none, in rows as in questions."""
    index = SignatureIndex.build(pa.table({"v": [0.0, -0.0, float("nan")]}))
    assert index.find({"v": 0.0}).num_rows == index.find({"v": -0.0}).num_rows == 2
    with pytest.raises(InvalidParameter, match="v is nan"):
        index.find({"v": float("nan")})


def table(rows: int = 5000) -> Any:
    """Three columns, one of them with nulls."""
    rng = np.random.default_rng(rows)
    text = [None if v % 9 == 0 else f"x{v % 40}" for v in rng.integers(0, 1000, rows)]
    return pa.table(
        {"a": rng.integers(0, 50, rows), "b": text, "c": rng.integers(-5, 5, rows).astype("int8")}
    )


def test_null_equals_nothing() -> None:
    """A question for None has no rows, and a null row is no candidate for anything."""
    index = SignatureIndex.build(pa.table({"a": [None, 1], "b": [7, None]}))
    assert index.find({"a": None}).num_rows == len(index.candidates({"a": None, "b": 7})) == 0
    assert index.find({"a": 1, "b": None}).num_rows == 0
    assert index.candidates({"a": 1}).tolist() == [1]
    assert (
        SignatureIndex.build(pa.table({"a": pa.nulls(3, pa.int64())})).find({"a": 1}).num_rows == 0
    )


def test_combinations_give_equal_rows_alone() -> None:
    """Any columns can be asked for, in any order, and false candidates are never returned."""
    rows = table()
    index = SignatureIndex.build(rows, length=16, bits={"a": 1, "c": 3})
    assert index.bits == {"a": 1, "b": 2, "c": 3}
    listed = rows.to_pylist()
    extra = 0
    questions: list[dict[str, Any]] = [{"a": 3}, {"c": -5, "b": "x7"}, {"b": "x7", "a": 3, "c": 0}]
    for asked in questions:
        expected = [r for r in listed if all(r[k] == v for k, v in asked.items())]
        assert index.find(asked).to_pylist() == expected
        numbers = index.candidates(asked)
        assert numbers.dtype == np.int64
        assert {listed.index(one) for one in expected} <= set(numbers.tolist())
        extra += len(numbers) - len(expected)
    assert extra > 0  # 16 bits let some through


def test_tables_of_other_libraries() -> None:
    """Polars, pandas and DuckDB give the same rows as pyarrow; their text and categories too."""
    polars, pandas, duckdb = require("polars"), require("pandas"), require("duckdb")
    rows = table(500)
    frame = polars.from_arrow(rows).with_columns(polars.col("b").cast(polars.Categorical))
    tables = [rows, frame, polars.from_arrow(rows), rows.to_pandas(), rows.to_batches()[0]]
    tables.append(duckdb.from_arrow(rows))
    assert pandas is not None
    for one in tables:
        index = SignatureIndex.build(one, ["a", "b"])
        found = index.find({"a": 3, "b": "x7"}, ["a", "b"]).to_pylist()
        expected = [r for r in rows.select(["a", "b"]).to_pylist() if r == {"a": 3, "b": "x7"}]
        assert found == expected, type(one)


def test_appended_rows_are_found() -> None:
    """Rows come behind those there are, also many and few at a time, and types must fit."""
    rows = table(70_000)
    index = SignatureIndex.build(rows.slice(0, 0))
    for start, end in [(0, 1), (1, 600), (600, 66_000), (66_000, 70_000)]:
        assert index.append(rows.slice(start, end - start)) == end - start
    whole = SignatureIndex.build(rows)
    questions: list[dict[str, Any]] = [{"a": 3, "b": "x7"}, {"c": 4}]
    for asked in questions:
        assert np.array_equal(index.candidates(asked), whole.candidates(asked))
        assert index.find(asked) == whole.find(asked)
    assert index.num_rows == 70_000
    assert index.nbytes == whole.nbytes


def test_refused_rows_leave_nothing_behind() -> None:
    """After an error in the last of the rows no row of them is indexed, nor a bit of one."""
    rows = table(1000)
    index = SignatureIndex.build(rows)
    before = index.fill_ratio
    with pytest.raises(InvalidParameter, match="select and name them alike"):
        index.append(rows.drop(["a"]))
    with pytest.raises(InvalidParameter, match="cast them first"):
        index.append(rows.set_column(0, "a", pa.array(["no int"] * 1000)))

    def stop(_: int) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        index.append(rows, progress=stop)
    assert (index.num_rows, index.fill_ratio) == (1000, before)
    index.append(rows)
    assert index.find({"a": 3}).num_rows == 2 * SignatureIndex.build(rows).find({"a": 3}).num_rows


def test_one_writer_at_a_time() -> None:
    """Who appends while another does is told so, and readers go on with the rows before."""
    index = SignatureIndex.build(table(1000))
    seen: list[Any] = []

    def meanwhile(_: int) -> None:
        def other() -> None:
            seen.append(len(index.candidates({"c": 0})))
            with pytest.raises(InvalidParameter, match="one after another"):
                index.append(table(10))
            seen.append("refused")

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    expected = len(index.candidates({"c": 0}))
    index.append(table(1000), progress=meanwhile)
    assert seen == [expected, "refused"]
    assert len(index.candidates({"c": 0})) == 2 * expected


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "asked is empty"),
        ({"z": 1}, "'z' is not indexed; a, b, c are"),
        ({"a": "1"}, r"a is '1'.*int64"),
        ({"a": 1.5}, "a is 1.5"),
        ({"c": 300}, "c is 300.*int8"),
        ({"b": "\ud800"}, "b is "),
        ({"b": 7}, "b is 7"),
    ],
)
def test_wrong_questions_are_clear_errors(asked: dict[str, Any], message: str) -> None:
    """A value that no row could hold is an error that names the column and its type."""
    with pytest.raises(InvalidParameter, match=message):
        SignatureIndex.build(table(10)).find(asked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length is 0"),
        ({"length": 4097}, "length is 4097"),
        ({"length": 80.0}, "length is 80.0"),
        ({"length": 16, "bits": 17}, "17 bits"),
        ({"bits": {"a": 0}}, "bits is 0"),
        ({"bits": {"z": 2}}, "bits names 'z'"),
        ({"columns": []}, "at least one"),
        ({"columns": ["a", "a"]}, "twice"),
        ({"columns": ["z"]}, "no column 'z' among a, b, c"),
        ({"columns": "a"}, r"\['a'\]"),
    ],
)
def test_wrong_parameters_are_clear_errors(options: dict[str, Any], message: str) -> None:
    """What an index cannot be made with is named, with what would be right."""
    with pytest.raises(InvalidParameter, match=message):
        SignatureIndex.build(table(10), **options)


def test_what_is_no_table_is_refused() -> None:
    """Lists, lazy frames and columns without equality get an error that says what to pass."""
    polars = require("polars")
    with pytest.raises(UnsupportedBatch, match="a list is not a table"):
        SignatureIndex.build([1, 2])
    with pytest.raises(UnsupportedBatch, match="collected first"):
        SignatureIndex.build(polars.LazyFrame({"a": [1]}))
    with pytest.raises(InvalidParameter, match="'l' is of type list"):
        SignatureIndex.build(pa.table({"l": [[1]]}))
    with pytest.raises(InvalidParameter, match="more than one column 'a'"):
        SignatureIndex.build(pa.table([pa.array([1]), pa.array([1])], names=["a", "a"]))


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ([7], ["007"]),
        (["7"], [7]),
        ([1], [True]),
        ([b"a"], ["a"]),
        ([dt.date(2020, 1, 1)], [18262]),
    ],
)
def test_values_of_another_kind_are_not_appended(before: list[object], more: list[object]) -> None:
    """A cast would change what they are; one within a kind does not."""
    index = SignatureIndex.build(pa.table({"c": before}))
    with pytest.raises(InvalidParameter, match=r"'c' is of type .*cast them first"):
        index.append(pa.table({"c": more}))
    assert index.num_rows == 1
    assert index.append(pa.table({"c": pa.array(before).dictionary_encode()})) == 1
    assert index.append(pa.table({"c": pa.nulls(1)})) == 1
    assert index.find({"c": before[0]}).num_rows == 2


def test_numbers_and_text_of_other_widths_are_appended() -> None:
    """Their values are the same."""
    index = SignatureIndex.build(pa.table({"n": [5], "s": ["x"]}))
    narrow = {"n": pa.array([5], pa.int8()), "s": pa.array(["x"], pa.large_string())}
    assert index.append(pa.table(narrow)) == 1
    assert index.append(pa.table({"n": [5.0], "s": ["x"]})) == 1
    assert index.find({"n": 5, "s": "x"}).num_rows == 3
