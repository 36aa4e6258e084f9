"""Batches on the way to a server, from every source; and the answers as a local filter's mask."""

from __future__ import annotations

import array
import ctypes
import json
import mmap
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pytest

from bloomery import BloomFilter, errors
from bloomery.client import batches, columns
from bloomery.client.batches import SentRows, request_bodies
from bloomery.json_keys import decode_key
from bloomery.service.http.body.arrow import Column, Messages, answers
from bloomery.service.http.body.ndjson import NdjsonReader
from bloomery.service.http.body.ndjson import answers as lines_of
from conftest import require

UUIDS = [uuid4(), uuid4()]
TEXTS = ["a", "é", "", "a\nb", "x" * 300]
WORDS = {"application/vnd.apache.arrow.stream": answers, "application/x-ndjson": lines_of}


def received(part: Any) -> Iterator[Any]:
    """The batches of keys that a server reads from a request."""
    assert part.content_type != "application/json"
    if part.content_type == "application/x-ndjson":
        reader = NdjsonReader(1 << 20)
        for data in part.body:
            yield from reader.feed(data)
        yield from reader.end()
    else:
        messages, column = Messages(1 << 30), Column(None, 1 << 30)
        for data in part.body:
            for message in messages.feed(data):
                yield from column.take(*message)
        messages.end()


def asked(batch: Any, filter: BloomFilter, nulls: Any = "error") -> Any:
    """What a client says about a batch, whose server holds this filter."""
    rows, bodies = request_bodies(batch, nulls, answers=True)
    told = []
    for part in bodies:
        if part.read is None:
            keys = [decode_key(key) for key in json.loads(cast("bytes", part.body))["keys"]]
            told.append(filter.contains_many(keys))
        else:
            found = [np.asarray(filter.contains_many(keys), bool) for keys in received(part)]
            flat = np.concatenate(found) if found else np.zeros(0, bool)
            told.append(part.read(b"".join(WORDS[part.accept](flat.astype("u1").tobytes()))))
    return rows.mask(told)


def sources() -> dict[str, Any]:
    """A batch of every kind that a local filter takes, some of it null where it can be."""
    pa, pl, pd = require("pyarrow"), require("polars"), require("pandas")
    duckdb = require("duckdb")
    numbers = list(range(-5, 12_000, 3))
    return {
        "list": TEXTS,
        "tuple": tuple(TEXTS),
        "iterator": lambda: iter(TEXTS),
        "set": set(TEXTS),
        "empty": [],
        "mixed": ["a", 1, b"\xff", ("a", (2,)), 2**80, uuid4(), True],
        "long list of str": [f"k{i}" for i in range(10_050)],
        "long list of int": list(range(10_050)),
        "long list of bytes": [b"k%d" % i for i in range(10_050)],
        "long list of large ints": [2**64 + i for i in range(10_050)],
        "long mixed list": ["a", 1, b"\xff", ("a", 2)] * 2_600,
        "long iterator": lambda: (f"k{i}" for i in range(10_050)),
        "long keys": ["x" * 300 + str(i) for i in range(9_000)],
        "int64": np.array(numbers),
        "int64, a step": np.arange(20_000)[::7],
        "uint8": np.arange(200, dtype="uint8"),
        "big-endian": np.arange(300, dtype=">i4"),
        "bool": np.array([True, False]),
        "bytes array": np.array([b"a", b"ab\0", b""]),
        "str array": np.array(TEXTS),
        "objects": np.array(["a", 1, b"b"], dtype=object),
        "array.array": array.array("q", numbers),
        "no rows": np.zeros(0, dtype="int64"),
        "arrow": pa.array(TEXTS),
        "arrow, chunks": pa.chunked_array([["a"], [], ["é", "b"]]),
        "arrow, a slice": pa.array(TEXTS * 3).slice(2, 7),
        "arrow, large": pa.array(TEXTS, pa.large_string()),
        "arrow, views": pa.array(TEXTS).cast(pa.string_view()),
        "arrow, fixed": pa.array([b"abcd", b"efgh"], pa.binary(4)),
        "arrow, dictionary": pa.array(TEXTS * 4).dictionary_encode(),
        "arrow, uint64": pa.array([2**64 - 1, 0], pa.uint64()),
        "arrow, nothing": pa.array([], pa.null()),
        "a table": pa.table({"a": TEXTS}),
        "polars": pl.Series(TEXTS),
        "polars, a frame": pl.DataFrame({"a": numbers}),
        "polars, categories": pl.Series(TEXTS).cast(pl.Categorical),
        "pandas": pd.Series(TEXTS),
        "pandas, ints": pd.Series(numbers),
        "pandas, objects": pd.Series(["a", "b"], dtype=object),
        "pandas, categories": pd.Series(TEXTS).astype("category"),
        "pandas, an index": pd.Index(numbers),
        "duckdb": lambda: duckdb.sql("SELECT range AS key FROM range(3000)"),
        "duckdb, UUIDs": lambda: duckdb.sql("SELECT uuid() AS key"),
        "arrow, UUIDs": pa.array(UUIDS, pa.uuid()),
        "arrow, UUIDs in a table": pa.table({"key": pa.array(UUIDS, pa.uuid())}),
        "arrow, JSON": pa.array(['{"a": 1}'], pa.json_()),
        "arrow, another type": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
        "arrow, a struct with nulls": pa.StructArray.from_arrays(
            [pa.array([1, 2])], ["key"], mask=pa.array([False, True])
        ),
        "polars, objects": pl.Series(UUIDS),
        "polars, a frame of objects": pl.DataFrame({"key": UUIDS}),
        "pandas, UUIDs": pd.Series(UUIDS),
        "pandas, UUIDs in categories": pd.Series(UUIDS).astype("category"),
        "pandas, mixed": pd.Series(["a", 1, 2**80, UUIDS[0]], dtype=object),
        "pandas, mixed categories": pd.Series(["a", 1], dtype=object).astype("category"),
        "pandas, bools": pd.Series([True, False]),
        "pandas, periods": pd.Series(pd.period_range("2026", periods=2)),
        "pandas, dates": pd.Series(pd.date_range("2026", periods=2)),
        "a map of memory": mmap.mmap(-1, 10),
        "ctypes": (ctypes.c_int64 * 3)(1, 2, 3),
    }


def given(batch: Any) -> Any:
    """The batch; one that can be gone through only once, made anew."""
    return batch() if callable(batch) else batch


@pytest.mark.parametrize("name", sources())
def test_every_source(name: str) -> None:
    """Every source that a local filter takes gives the same mask by way of a server: the same
    answers in the same kind of container."""
    batch = sources()[name]
    filter = BloomFilter(100_000, 1e-6)
    half = (
        [key for i, key in enumerate(given(batch)) if i % 2]
        if isinstance(batch, list | tuple)
        else None
    )
    try:
        filter.update(given(batch) if half is None else half)
        local = filter.contains_many(given(batch))
    except errors.BloomeryError as problem:
        with pytest.raises(type(problem)):
            asked(given(batch), filter)
        return
    remote = asked(given(batch), filter)
    assert type(remote) is type(local)
    assert list(remote) == list(local)


@pytest.mark.parametrize("name", ["list", "int64", "str array", "objects", "long iterator"])
def test_without_arrow_and_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow, batches of keys that Python can go through give the same answers."""
    batch = sources()[name]
    filter = BloomFilter(100_000, 1e-6)
    filter.update(list(given(batch))[:-1])
    local = filter.contains_many(given(batch))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert list(asked(given(batch), filter)) == list(local)


NULLS: dict[str, list[Any]] = {
    "list": ["a", None, "b"],
    "first": [None, "a"],
    "all": [None, None],
    "long": ["a", None] * 6_000,
}


@pytest.mark.parametrize("form", ["list", "arrow", "polars", "iterator"])
@pytest.mark.parametrize("name", NULLS)
def test_nulls(name: str, form: str) -> None:
    """Nulls are left out and False in the mask, or an error that says in which row; as locally."""
    keys = NULLS[name]
    pa, pl = require("pyarrow"), require("polars")
    made: dict[str, Callable[[], Any]] = {
        "list": lambda: keys,
        "iterator": lambda: iter(keys),
        "arrow": lambda: pa.array(keys, pa.string()),
        "polars": lambda: pl.Series(keys, dtype=pl.String),
    }
    make = made[form]
    filter = BloomFilter(100)
    filter.add("a")
    assert list(asked(make(), filter, "skip")) == list(filter.contains_many(make(), nulls="skip"))
    with pytest.raises(errors.NullKey) as local:
        filter.contains_many(make())
    row = str(local.value).split(" is ")[0]
    with pytest.raises(errors.NullKey, match=row):
        asked(make(), filter)


@pytest.mark.parametrize(
    "batch",
    [
        "abc",
        b"abc",
        bytearray(b"abc"),
        memoryview(b"abc"),
        7,
        np.zeros((2, 2), dtype="int64"),
        np.zeros(3),
        np.zeros(3, dtype="M8[s]"),
        np.ma.array([1, 2], mask=[False, True]),
    ],
    ids=lambda batch: f"{type(batch).__name__} {getattr(batch, 'dtype', '')}",
)
def test_what_is_no_batch(batch: Any) -> None:
    """What a local filter refuses as a batch is refused before it is sent, by the same class."""
    with pytest.raises(errors.UnsupportedBatch):
        BloomFilter(10).add_many(batch)
    with pytest.raises(errors.UnsupportedBatch):
        asked(batch, BloomFilter(10))


def test_arrow_columns_that_are_no_keys() -> None:
    """Columns of floats, lists and times, and tables of two columns, are refused as locally."""
    pa = require("pyarrow")
    for batch in (
        pa.array([1.5]),
        pa.array([[1]]),
        pa.array([0], pa.timestamp("s")),
        pa.table({"a": [1], "b": [2]}),
    ):
        with pytest.raises(errors.UnsupportedBatch):
            BloomFilter(10).add_many(batch)
        with pytest.raises(errors.UnsupportedBatch):
            asked(batch, BloomFilter(10))


def test_a_long_batch_is_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where answers are wanted no request has more keys than a server will answer for."""
    monkeypatch.setattr(batches, "_MOST", 3_000)
    filter = BloomFilter(100_000, 1e-6)
    filter.update(np.arange(0, 20_000, 2))
    keys = np.arange(20_000)
    expected = (keys % 2 == 0).tolist()
    for batch in (keys, iter(keys.tolist()), keys.tolist()):
        assert list(asked(batch, filter)) == expected
    assert len(list(request_bodies(keys, "error", answers=True)[1])) == 7
    assert len(list(request_bodies(keys, "error", answers=False)[1])) == 1


def test_wrong_nulls() -> None:
    """`nulls` is one of two words."""
    nulls: Any = "ignore"
    with pytest.raises(errors.InvalidParameter, match="'error' or 'skip'"):
        request_bodies([], nulls, answers=True)


def test_masks_of_rows_that_were_left_out() -> None:
    """A mask has a row for each of the batch, however many were left out."""
    rows = SentRows(array=False, count=5, nulls=[0, 2, 4])
    assert rows.mask([[True], [True]]) == [False, True, False, True, False]
    rows = SentRows(array=True, count=5, nulls=[0, 2, 4])
    assert rows.mask([np.array([True, True])]).tolist() == [False, True, False, True, False]  # type: ignore[union-attr]


def test_a_subclass_is_the_key_that_a_local_filter_takes_it_for() -> None:
    """What an Enum, a Timestamp or an int of one's own shows as text is another thing."""

    class Colour(str, Enum):
        RED = "red"

    class Odd(int):
        def __int__(self) -> int:
            return 7

    pd = require("pandas")
    keys = [Colour.RED, Odd(5), True, pd.Timestamp("2026-01-31T12:00:00.000001Z"), bytearray(b"a")]
    filter = BloomFilter(100, 1e-9)
    filter.update(keys)
    assert list(asked(keys, filter)) == [True] * len(keys)
    assert list(asked(["red", 5], filter)) == [True, True]
    for wrong in (pd.Timestamp("2026-01-31T12:00:00.000000001"), memoryview(b"abcd")[::2], pd.NaT):
        for taken in (filter.contains_many, lambda batch: asked(batch, filter)):
            with pytest.raises(errors.InvalidKey):
                taken([wrong])


def test_messages_are_small_whatever_the_keys() -> None:
    """Long keys make messages of fewer rows: none is larger than a server takes, and all keys are
    sent in order."""
    pyarrow = require("pyarrow")
    require("pyarrow.ipc")
    long = [f"{number:07}" * 2000 for number in range(3000)]
    column = pyarrow.chunked_array([pyarrow.array([*map(str, range(1000)), *long])])
    sent = list(columns.messages(column, pyarrow))
    assert max(map(len, sent)) <= 16 << 20
    found = pyarrow.ipc.open_stream(b"".join(sent)).read_all().column(0)
    assert found.to_pylist() == column.to_pylist()
