"""Every kind takes the same keys through the same doors; a batch does what its keys do alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomery import BloomFilter
from bloomery.errors import FilterFull, InvalidKey, NullKey, UnsupportedBatch, UnsupportedKey
from bloomery.filters import COMMON_KINDS
from conftest import require
from properties.family import empty, holding
from properties.strategies import HASHERS, members

OPEN = [kind for kind in COMMON_KINDS if not hasattr(COMMON_KINDS[kind], "build")]
BUILT = [kind for kind in COMMON_KINDS if kind not in OPEN]
some_keys = st.lists(members | st.tuples(members, members), max_size=25)
ints = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=40)
texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=12), unique=True, max_size=40)
few = settings(max_examples=max(5, settings().max_examples // 10))


def check(kind: str, batch: Any, keys: list[Any], hasher: Any = "xxh3") -> None:
    """The batch does to a filter of this kind what its keys do one by one, to the last bit."""
    if kind in BUILT:
        built = holding(kind, batch, 0.01, hasher=hasher)
        assert built == holding(kind, keys, 0.01, hasher=hasher)
        assert list(built.contains_many(batch)) == [True] * len(keys)
        return
    batched, alone = (empty(kind, 100, 0.01, hasher=hasher) for _ in range(2))
    for filter in (batched, alone):
        filter.update(keys[::2])
    assert list(batched.contains_many(batch)) == [key in alone for key in keys]
    # Three keys, each of them three times, may have the same two buckets of a cuckoo filter, with
    # room for eight: then both are full at the same key.
    added = _unless_full(lambda: list(batched.add_many(batch)))
    assert added == _unless_full(lambda: [alone.add(key) for key in keys])
    assert batched == alone
    again = _unless_full(lambda: batched.update(batch))
    assert again == _unless_full(lambda: alone.update(keys))
    assert batched == alone
    if "full" in (added, again):
        assert kind == "cuckoo"
        return
    assert all(batched.contains_many(batch))
    if hasattr(batched, "remove_many"):
        assert list(batched.remove_many(batch)) == [alone.discard(key) for key in keys]
        assert batched == alone


def _unless_full(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except FilterFull:
        return "full"


@pytest.mark.parametrize("kind", COMMON_KINDS)
@few
@given(keys=some_keys, hasher=st.sampled_from(HASHERS))
def test_python_batches(kind: str, keys: list[Any], hasher: Any) -> None:
    """Lists, tuples, dicts and iterators of keys of every type, by every hash."""
    # "a" and b"a" are one key; a cuckoo filter takes one no more than seven times.
    plain = BloomFilter(1, hasher=hasher)
    keys = list({plain.hash_of(key): key for key in keys}.values())
    check(kind, keys, keys, hasher)
    check(kind, tuple(keys), keys, hasher)
    if kind in OPEN:
        one, other = (empty(kind, 100, 0.01, hasher=hasher) for _ in range(2))
        assert one.add_many(iter(keys)) == [other.add(key) for key in keys]
        assert one == other
        assert one.contains_many(key for key in keys) == [True] * len(keys)


def test_a_crowd_in_two_buckets() -> None:
    """Found by the test below: these keys fill a cuckoo filter, in a batch as one by one."""
    keys = [0, 1, 62, 249, 250]
    check("cuckoo", np.array(keys, "uint8"), keys)


@pytest.mark.parametrize("kind", COMMON_KINDS)
@few
@given(drawn=ints)
def test_arrays_of_ints(kind: str, drawn: list[int]) -> None:
    """NumPy ints of any width and stride, and Arrow and Polars columns, are the ints they show."""
    pa, pl = require("pyarrow"), require("polars")
    array = np.array(drawn, "int64")
    check(kind, array, drawn)
    check(kind, array[::-2], drawn[::-2])
    check(kind, array.astype(object), drawn)
    small = sorted({number % 256 for number in drawn})
    check(kind, np.array(small, "uint8"), small)
    column = pa.array(drawn, pa.int64())
    check(kind, column, drawn)
    check(kind, pa.chunked_array([column[:3], column[3:]]), drawn)
    check(kind, pl.Series(drawn, dtype=pl.Int64), drawn)


@pytest.mark.parametrize("kind", COMMON_KINDS)
@few
@given(drawn=texts)
def test_columns_of_text(kind: str, drawn: list[str]) -> None:
    """Text and bytes, as NumPy, Arrow, Polars and pandas hold them, are the keys they show."""
    pa, pl, pd = require("pyarrow"), require("polars"), require("pandas")
    array = np.unique(np.array(drawn, "U12"))  # NumPy drops NULs at the end
    check(kind, array, array.tolist())
    blobs = [text.encode() for text in drawn]
    column = pa.array(drawn, pa.string())
    check(kind, column, drawn)
    check(kind, pa.array(blobs, pa.binary()), drawn)
    check(kind, column.dictionary_encode(), drawn)
    check(kind, pl.Series(drawn, dtype=pl.String), drawn)
    check(kind, pd.Series(drawn, dtype="str"), drawn)


@pytest.mark.parametrize("kind", OPEN)
def test_large_batches(kind: str) -> None:
    """Batches past the sizes at which blocks, threads and the interpreter lock change hands."""
    for count in (2047, 2048, 2049, 4097, 40_000):
        array = np.arange(count) * 7
        one, other = (empty(kind, count, 1e-3) for _ in range(2))
        assert np.array_equal(one.add_many(array, threads=2), other.add_many(array.tolist()))
        assert one == other
        asked = np.arange(2 * count)
        answers = one.contains_many(asked)
        assert np.array_equal(answers, one.contains_many(asked, threads=2))
        assert np.array_equal(answers, other.contains_many(asked.tolist()))
        assert np.array_equal(answers, other.contains_many(asked[::-1])[::-1])


@pytest.mark.parametrize("kind", OPEN)
def test_what_is_no_key(kind: str) -> None:
    """What cannot be a key, or a batch, is the same error in every kind, and changes nothing."""
    pa = require("pyarrow")
    filter = empty(kind, 100, 0.01)
    before = filter.copy()
    for wrong in (1.5, None, [], {}, object()):
        for act in (filter.add, filter.__contains__, filter.hash_of):
            with pytest.raises(UnsupportedKey):
                act(wrong)
    with pytest.raises(InvalidKey):
        filter.add("\ud800")
    for wrong in ("text", b"bytes", 5, None):
        for act in (filter.update, filter.add_many, filter.contains_many):
            with pytest.raises(UnsupportedBatch):
                act(wrong)
    nulls = pa.array([None, 1, 2])
    with pytest.raises(NullKey, match="row 0"):
        filter.update(nulls)
    assert filter == before
    assert list(filter.add_many(nulls, nulls="skip")) == [False, True, True]
    assert list(filter.contains_many(nulls, nulls="skip")) == [False, True, True]
