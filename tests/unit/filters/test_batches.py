"""Batches: what is taken as one, what its mask is, nulls, threads, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from bloomery import BloomFilter
from bloomery.errors import InvalidParameter, NullKey, UnsupportedBatch, UnsupportedKey
from conftest import first_fast, require

SHAPES = [("blocked", 0.01), ("blocked", 1e-6), ("classic", 1e-6)]


def test_a_duplicate_is_new_once() -> None:
    """A key that stands twice in a batch is new the first time only, far apart or side by side."""
    keys = [1, 1, 2, 1, *range(10, 2000), 2, 1, 10, 1999]
    expected = [k not in keys[:i] for i, k in enumerate(keys)]
    for batch in (keys, tuple(keys), iter(keys), np.array(keys), require("pyarrow").array(keys)):
        assert list(BloomFilter(5000, 1e-9).add_many(batch)) == expected


@pytest.mark.parametrize("hasher", ["xxh3", "murmur3"])
@pytest.mark.parametrize("first", ["int", "str", "none"])
def test_ints_of_every_length_in_a_list(first: str, hasher: Any) -> None:
    """Ints of any number of digits, among other keys and nulls, are what they are one by one."""
    edges = [2**at + by for at in (0, 29, 30, 31, 59, 60, 61, 62, 63, 64, 90) for by in (-1, 0, 1)]
    ints = [sign * edge for edge in (*range(4000), *edges) for sign in (1, -1)]
    others = ["text", b"bytes", (1, "tuple"), True, np.int64(7), "é"]
    beginnings: dict[str, list[Any]] = {"int": [], "str": ["first"], "none": [None]}
    keys = beginnings[first]
    for at, key in enumerate(ints):
        keys.append(key)
        if at % 501 == 500:
            keys += [others[at % len(others)], None]
    filled = BloomFilter(20_000, 1e-9, hasher=hasher)
    filled.update(keys[: len(keys) // 2], nulls="skip")
    filled.update(keys[len(keys) // 2 :], nulls="skip")
    one_by_one = BloomFilter(20_000, 1e-9, hasher=hasher)
    for key in keys:
        if key is not None:
            one_by_one.add(key)
    assert filled == one_by_one
    absent = [key + 5_000_000 if isinstance(key, int) else key for key in keys]
    expected = [key is not None and key in filled for key in absent]
    assert list(filled.contains_many(absent, nulls="skip")) == expected
    with pytest.raises(NullKey, match=f"row {keys.index(None)}"):
        filled.contains_many(keys)


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize(("layout", "error_rate"), SHAPES)
def test_threads_give_the_same_answers(layout: Any, error_rate: float, threads: int) -> None:
    """However many threads share a batch: the bits are the same, and a duplicate is new once."""
    rng = np.random.default_rng(threads)
    keys = rng.integers(0, 60_000, threads * 16_384 + 40_000)
    one, many = (BloomFilter(60_000, error_rate, layout=layout) for _ in range(2))
    first = np.asarray(one.add_many(keys))
    new = np.asarray(many.add_many(keys, threads=threads))
    assert many == one
    if layout == "blocked" and error_rate == 0.01:
        assert (new == first).all(), "one line a key: keys of a line stay in order"
    else:  # which of two keys is the wrong maybe depends on their order; here hardly any are
        assert np.count_nonzero(new != first) <= 2
    assert np.unique(keys[new]).size == np.count_nonzero(new), "a duplicate was new twice"
    probes = rng.integers(0, 10**6, threads * 16_384 + 12_345)
    alone = np.asarray(one.contains_many(probes))
    assert (np.asarray(many.contains_many(probes, threads=threads)) == alone).all()
    assert 0 < np.count_nonzero(alone) < probes.size


def test_threads_on_strings_and_nulls() -> None:
    """Threads share string columns and columns with nulls as well."""
    pa = require("pyarrow")
    names = [None if i % 7 == 0 else f"key {i % 50_000}" for i in range(120_000)]
    column = pa.array(names)
    one, many = (BloomFilter(60_000, 1e-6) for _ in range(2))
    first = one.add_many(column, nulls="skip")
    assert list(many.add_many(column, nulls="skip", threads=3)) == list(first)
    assert many == one
    asked = np.asarray(many.contains_many(column, nulls="skip", threads=3))
    assert asked.tolist() == [name is not None for name in names]


@pytest.mark.parametrize("threads", [2, 64])
def test_threads_for_few_keys(threads: int) -> None:
    """A batch too small to share is answered all the same."""
    filter = BloomFilter(100)
    assert list(filter.add_many(np.arange(3), threads=threads)) == [True] * 3
    assert filter.contains_many([0, 1, 2], threads=threads) == [True] * 3
    assert list(filter.add_many(np.arange(0), threads=threads)) == []


@pytest.mark.parametrize(
    "option",
    [{"threads": t} for t in (0, 65, -1, 2**70)] + [{"nulls": n} for n in ("x", "", "SKIP")],
    ids=str,
)
def test_absurd_options(option: dict[str, Any]) -> None:
    """Threads and nulls outside of their range are an InvalidParameter that names them."""
    filter = BloomFilter(10)
    for way in (filter.add_many, filter.contains_many, filter.update):
        with pytest.raises(InvalidParameter, match=next(iter(option))):
            way([1], **option)
    assert filter.fill_ratio == 0


@pytest.mark.parametrize("option", [{"threads": "x"}, {"threads": 1.5}, {"nulls": 5}], ids=str)
def test_options_of_the_wrong_type(option: dict[str, Any]) -> None:
    """An option of the wrong type is a TypeError, or an InvalidParameter, that names it."""
    with pytest.raises((TypeError, InvalidParameter), match=next(iter(option))):
        BloomFilter(10).add_many([1], **option)


def null_columns() -> Iterator[tuple[str, Any]]:
    """Columns of seven rows of which row 4 is the first null."""
    pa, pl, pd = require("pyarrow"), require("polars"), require("pandas")
    keys = [1, 2, 3, 1, None, 6, None]
    names = [None if k is None else str(k) for k in keys]
    yield "list", keys
    yield "tuple", tuple(names)
    yield "numpy object", np.array(keys, object)
    yield "int64", pa.array(keys)
    yield "sliced", pa.array([None, *keys, None]).slice(1, 7)
    yield "string", pa.array(names)
    yield "view", pa.array(names, pa.string_view())
    yield "dictionary", pa.array(names).dictionary_encode()
    yield "chunked", pa.chunked_array([keys[:3], keys[3:4], [], keys[4:]], pa.int64())
    yield "table", pa.table({"key": keys})
    yield "polars", pl.Series(names)
    yield "pandas", pd.Series(keys, dtype="Int64")
    yield "pandas str", pd.Series(names, dtype="str")


NULLS = [
    "list",
    "tuple",
    "numpy object",
    "int64",
    "sliced",
    "string",
    "view",
    "dictionary",
    "chunked",
    "table",
]


@pytest.mark.parametrize("name", [*NULLS, "polars", "pandas", "pandas str"])
def test_nulls(name: str) -> None:
    """A null is an error that says at which row, counted over all chunks, or it is left out."""
    column, filter = dict(null_columns())[name], BloomFilter(10, 1e-9)
    for way in (filter.contains_many, filter.update, filter.add_many):
        with pytest.raises(NullKey, match=r'row 4 .*nulls="skip"'):
            way(column)
    filter = BloomFilter(10, 1e-9)
    new = filter.add_many(column, nulls="skip")
    assert list(new) == [True, True, True, False, False, True, False]
    asked = filter.contains_many(column, nulls="skip")
    assert list(asked) == [True, True, True, True, False, True, False]
    assert filter.estimated_count == 4
    assert 0 not in filter
    assert "" not in filter


def test_many_nulls_take_no_longer() -> None:
    """A list of a million nulls is answered in a moment, like any other list."""
    start = time.process_time()  # not others' time: the machine may be busy
    keys: list[Any] = [None, 1]
    mask = BloomFilter(10).add_many(keys * 1_000_000, nulls="skip")
    assert time.process_time() - start < 3
    assert sum(mask) == 1
    assert len(mask) == 2_000_000


def test_columns_of_nothing() -> None:
    """A column without rows, of whatever type, is an empty batch; one of nulls alone is skipped."""
    pa, pd = require("pyarrow"), require("pandas")
    filter = BloomFilter(10)
    for empty in (pa.array([], pa.int64()), pa.array([]), pd.Series([], dtype=object)):
        assert list(filter.add_many(empty)) == []
    assert list(filter.add_many(pa.array([None, None]), nulls="skip")) == [False, False]
    with pytest.raises(NullKey, match="row 0"):
        filter.add_many(pa.nulls(3))


def test_a_sliced_struct_is_its_rows() -> None:
    """A struct array of one field counts its own rows, not those of the memory behind it."""
    pa = require("pyarrow")
    whole = pa.StructArray.from_arrays([pa.array([1, 2, 3, 4, 5])], ["key"])
    for batch, keys in ((whole, {1, 2, 3, 4, 5}), (whole[:3], {1, 2, 3}), (whole[2:], {3, 4, 5})):
        filter = BloomFilter(10, 1e-9)
        assert list(filter.add_many(batch)) == [True] * len(keys)
        assert {k for k in range(10) if k in filter} == keys


REFUSED: list[tuple[str, Any, str]] = [
    ("str", "abc", "one str"),
    ("bytes", b"abc", "one bytes"),
    ("bytearray", bytearray(b"abc"), "one bytearray"),
    ("memoryview", memoryview(b"abc"), "one memoryview"),
    ("int", 5, "int is not a batch"),
    ("None", None, "NoneType"),
    ("floats", np.arange(3.0), "astype"),
    ("complex", np.zeros(2, complex), "array of complex128"),
    ("dates", np.zeros(2, "datetime64[s]"), "datetime64"),
    ("two dimensions", np.zeros((2, 2), int), "2 dimensions"),
    ("no dimension", np.array(5), "0 dimensions"),
    ("records", np.zeros(2, [("a", "i4")]), "array of "),
]


@pytest.mark.parametrize(("name", "batch", "says"), REFUSED)
def test_what_is_no_batch(name: str, batch: Any, says: str) -> None:
    """What cannot be taken as keys is an UnsupportedBatch that names it."""
    for way in (BloomFilter(10).add_many, BloomFilter(10).contains_many, BloomFilter(10).update):
        with pytest.raises(UnsupportedBatch, match=says) as caught:
            way(batch)
        assert isinstance(caught.value, TypeError)


def test_arrow_columns_that_are_no_keys() -> None:
    """Floats, dates, lists and tables of several columns are refused, with the way out."""
    pa = require("pyarrow")
    for batch in (
        pa.array([1.5]),
        pa.array([0], pa.timestamp("s")),
        pa.array([0], pa.date32()),
        pa.array([[1]]),
        pa.table({"a": [1], "b": [2]}),
    ):
        with pytest.raises(UnsupportedBatch, match=r"cast|pick one column"):
            BloomFilter(10).add_many(batch)


@pytest.mark.parametrize(
    "keys",
    first_fast(["Liar(2**62)", "Liar(2**63 - 1)", "Liar(2**40)", "Liar(-1)", "Liar(None)"]),
)
def test_a_length_is_only_a_hint(keys: str) -> None:
    """A batch that lies about its length is taken as far as it goes: nothing is allocated by it."""
    script = f"""
import resource
from bloomery import BloomFilter
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
class Liar:
    def __init__(self, length): self.length = length
    def __len__(self): return self.length
    def __iter__(self): return iter([1, 2])
keys = {keys}
print(BloomFilter(2000).add_many(keys))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "[True, True]\n"), run.stderr[-500:]


def test_a_list_that_changes_under_way() -> None:
    """A list emptied by one of its own keys while it is read is taken as far as it goes."""

    class Emptying:
        def __index__(self) -> int:
            keys.clear()
            return 7

    keys: list[Any] = [1, 2, Emptying(), 4, 5]
    filter = BloomFilter(10, 1e-9)
    assert len(filter.add_many(keys)) == 3
    assert filter.contains_many([1, 2, 7, 4]) == [True, True, True, False]


def test_an_iterator_that_fails() -> None:
    """What an iterator raises comes through, and the filter goes on working."""

    def keys() -> Iterator[int]:
        yield from range(1000)
        raise KeyError("no more")

    filter = BloomFilter(2000)
    with pytest.raises(KeyError, match="no more"):
        filter.update(keys())
    with pytest.raises(UnsupportedKey):
        filter.update(cast(Any, iter([1, 1.5])))
    assert filter.add("more")
    assert "more" in filter


def test_masks_can_be_written_to() -> None:
    """A NumPy mask is the caller's own: it can be changed and used as an index."""
    filter, keys = BloomFilter(100, 1e-9), np.array([5, 5, 6])
    mask = np.asarray(filter.add_many(keys))
    assert mask.dtype == np.bool_
    assert mask.flags.writeable
    assert keys[mask].tolist() == [5, 6]
    assert np.asarray(filter.add_many(np.array([], "int8"))).dtype == np.bool_


def test_numpy_variable_width_strings() -> None:
    """NumPy's StringDType is the strings it shows."""
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("NumPy before 2.0 has none")
    filter = BloomFilter(10, 1e-9)
    batch = np.array(["a", "long " * 20, "a"], np.dtypes.StringDType())
    assert list(filter.add_many(batch)) == [True, True, False]
    assert "long " * 20 in filter
