"""The same key through every door: a batch does what its keys do one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import BloomFilter
from conftest import require
from properties.strategies import make, shapes

# Most of these start processes, or read and write many files.
pytestmark = pytest.mark.slow

INTS = {f"{sign}int{bits}": (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=50)
blobs = st.lists(st.binary(max_size=30), max_size=50)
slices = st.tuples(st.integers(0, 60), st.integers(0, 60), st.sampled_from([1, 2, 3, -1, -2]))


def ints_of(sign: str, bits: int) -> st.SearchStrategy[list[int]]:
    """Lists of ints that fit the type, its ends among them."""
    low, high = (0, 2**bits - 1) if sign else (-(2**bits) // 2, 2**bits // 2 - 1)
    return st.lists(st.integers(low, high) | st.sampled_from([low, high]), max_size=600)


def check(shape: dict[str, Any], batch: Any, keys: Sequence[Any], array: bool = True) -> None:
    """The batch does to a filter what its keys do one by one, bit for bit and answer for answer."""
    batched, alone = make(shape), make(shape)
    half = keys[: len(keys) // 2]
    batched.update(list(half))
    alone.update(list(half))
    asked = batched.contains_many(batch)
    assert list(asked) == [key in alone for key in keys]
    new = batched.add_many(batch)
    assert list(new) == [alone.add(key) for key in keys]
    assert bytes(memoryview(batched)) == bytes(memoryview(alone))
    assert all(batched.contains_many(batch))
    updated = make(shape)
    assert updated.update(batch) is None  # type: ignore[func-returns-value]
    assert list(updated.contains_many(list(keys))) == [True] * len(keys)
    for mask in (asked, new):
        assert isinstance(mask, np.ndarray if array else list)
        assert not array or getattr(mask, "dtype", None) == np.bool_
        assert array or all(type(answer) is bool for answer in mask)


@given(shapes, st.lists(st.integers() | st.text(st.characters(codec="utf-8"))))
def test_python_batches(shape: dict[str, Any], keys: list[Any]) -> None:
    """Lists, tuples, generators, sets and dicts of objects are answered by a list."""
    check(shape, keys, keys, array=False)
    check(shape, tuple(keys), keys, array=False)
    distinct = dict.fromkeys(keys)
    check(shape, distinct, list(distinct), array=False)
    check(shape, frozenset(keys), list(frozenset(keys)), array=False)
    generated, alone = make(shape), make(shape)
    assert generated.add_many(key for key in keys) == [alone.add(key) for key in keys]
    assert generated.contains_many(iter(keys)) == [True] * len(keys)
    assert generated == alone


@pytest.mark.parametrize("kind", INTS)
@given(data=st.data(), shape=shapes, cut=slices)
def test_numpy_ints(kind: str, data: st.DataObject, shape: dict[str, Any], cut: Any) -> None:
    """NumPy ints of any width, sign, byte order and stride are the ints they stand for."""
    keys = data.draw(ints_of(*INTS[kind]))
    array = np.array(keys, kind)
    check(shape, array, keys)
    check(shape, array[slice(*cut)], keys[slice(*cut)])
    swapped = array.astype(array.dtype.newbyteorder(">"))
    check(shape, swapped, keys)
    check(shape, swapped[::-1], keys[::-1])
    check(shape, array.astype(object), keys)


@given(shapes, texts, slices)
def test_numpy_str(shape: dict[str, Any], drawn: list[str], cut: Any) -> None:
    """A NumPy str array holds its strings as NumPy gives them, in either byte order."""
    for order in "<>":
        array = np.array(drawn, f"{order}U30")
        keys = array.tolist()  # NumPy drops NULs at the end
        check(shape, array, keys)
        check(shape, array[slice(*cut)], keys[slice(*cut)])


@given(shapes, blobs, slices)
def test_numpy_bytes(shape: dict[str, Any], drawn: list[bytes], cut: Any) -> None:
    """A NumPy bytes array holds its bytes as NumPy gives them."""
    array = np.array(drawn, "S30")
    keys = array.tolist()
    check(shape, array, keys)
    check(shape, array[slice(*cut)], keys[slice(*cut)])


@pytest.mark.parametrize("kind", INTS)
@given(data=st.data(), shape=shapes, cut=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_arrow_ints(kind: str, data: st.DataObject, shape: dict[str, Any], cut: Any) -> None:
    """Arrow ints of any type are the ints they stand for: sliced, chunked, as dictionary."""
    pa = require("pyarrow")
    keys = data.draw(ints_of(*INTS[kind]))
    check_arrow(shape, pa.array(keys, getattr(pa, kind)()), keys, cut)


ARROW_BYTES: dict[str, Callable[[Any], Any]] = {
    "string": lambda pa: pa.string(),
    "large_string": lambda pa: pa.large_string(),
    "string_view": lambda pa: pa.string_view(),
    "binary": lambda pa: pa.binary(),
    "large_binary": lambda pa: pa.large_binary(),
    "binary_view": lambda pa: pa.binary_view(),
}


@pytest.mark.parametrize("kind", ARROW_BYTES)
@given(data=st.data(), shape=shapes, cut=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_arrow_strings(kind: str, data: st.DataObject, shape: dict[str, Any], cut: Any) -> None:
    """Arrow strings and binary, plain, large and views, are the str and bytes they stand for."""
    pa = require("pyarrow")
    drawn: st.SearchStrategy[Any] = texts if "string" in kind else blobs
    keys = data.draw(drawn)
    check_arrow(shape, pa.array(keys, ARROW_BYTES[kind](pa)), keys, cut)


@given(shapes, st.integers(1, 20).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n))))
def test_arrow_fixed_size_binary(shape: dict[str, Any], keys: list[bytes]) -> None:
    """Fixed-size binary keeps NULs at its end, unlike NumPy's."""
    pa = require("pyarrow")
    array = pa.array(keys, pa.binary(len(keys[0]) if keys else 4))
    check_arrow(shape, array, keys, (1, 7))


def check_arrow(shape: dict[str, Any], array: Any, keys: list[Any], cut: tuple[int, int]) -> None:
    """Check an array, a slice of it, the two in chunks, as a table, and as a dictionary."""
    pa = require("pyarrow")
    part, some = array.slice(*cut), keys[cut[0] : sum(cut)]
    check(shape, array, keys)
    check(shape, part, some)
    check(shape, pa.chunked_array([part, array, part[:0]]), some + keys)
    check(shape, pa.chunked_array([], array.type), [])
    check(shape, pa.table({"key": array}), keys)
    check(shape, pa.record_batch({"key": array}).slice(*cut), some)
    if not pa.types.is_binary_view(array.type) and not pa.types.is_string_view(array.type):
        coded = array.dictionary_encode()
        check(shape, coded, keys)
        check(shape, coded.slice(*cut), some)


@given(shapes, st.lists(st.integers(-(2**63), 2**63 - 1)), texts)
def test_polars(shape: dict[str, Any], ints: list[int], strings: list[str]) -> None:
    """Polars series of ints, strings and categories are the keys they show."""
    pl = require("polars")
    check(shape, pl.Series(ints, dtype=pl.Int64), ints)
    check(shape, pl.Series(ints, dtype=pl.Int64)[2:9], ints[2:9])
    series = pl.Series(strings, dtype=pl.String)
    check(shape, series, strings)
    check(shape, series.append(pl.Series(strings[:3], dtype=pl.String)), strings + strings[:3])
    check(shape, pl.Series(strings, dtype=pl.Categorical), strings)
    check(shape, pl.Series([s.encode() for s in strings], dtype=pl.Binary), strings)
    check(shape, pl.DataFrame({"key": strings}, schema={"key": pl.String}), strings)


@given(shapes, st.lists(st.integers(-(2**63), 2**63 - 1)), texts)
def test_pandas(shape: dict[str, Any], ints: list[int], strings: list[str]) -> None:
    """pandas series, categories and indexes are the keys they show."""
    pd = require("pandas")
    check(shape, pd.Series(ints, dtype="int64"), ints)
    check(shape, pd.Series(ints, dtype="int64")[::2], ints[::2])
    check(shape, pd.Series(ints, dtype="Int64"), ints)
    check(shape, pd.Index(ints, dtype="int64"), ints)
    check(shape, pd.Series(strings, dtype="str"), strings)
    check(shape, pd.Series(strings, dtype=object), strings)
    check(shape, pd.Series(strings, dtype="str").astype("category"), strings)
    check(shape, pd.Index(strings, dtype="str"), strings)


def test_duckdb() -> None:
    """A DuckDB relation of one column is the column, over as many chunks as it takes."""
    duckdb = require("duckdb")
    filter: Any = BloomFilter(20_000, 1e-9)
    with duckdb.connect() as database:
        assert filter.add_many(database.sql("select range from range(10000)")).sum() == 10_000
        names = "select 'name ' || range as name from range(5000)"
        assert filter.add_many(database.sql(names)).sum() == 5000
        assert not filter.add_many(database.sql(names)).any()
    assert all(filter.contains_many(list(range(10_000))))
    assert all(filter.contains_many([f"name {i}" for i in range(5000)]))
    assert not filter.contains_many(np.arange(10_000, 20_000)).any()
