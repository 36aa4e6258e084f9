"""Spark's own filter, without Spark: keys, columns, unions, and bytes that nobody wrote so."""

import pickle
import struct
import uuid
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import errors
from bloomery.integrations.spark import SparkBloomFilter

KEYS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(), st.binary())
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@VERSIONS
@given(keys=st.lists(KEYS, max_size=50))
def test_no_key_is_lost(version: int, keys: list[Any]) -> None:
    """Every key that was added is a maybe, also after a way through bytes and through pickle."""
    filter = SparkBloomFilter(50, 0.01, version=version)
    filter.update(keys)
    for copy in (filter, SparkBloomFilter.from_bytes(filter.to_bytes())):
        assert all(key in copy for key in keys)
        assert list(copy.contains_many(keys)) == [True] * len(keys)
    assert pickle.loads(pickle.dumps(filter)) == filter


@VERSIONS
def test_the_rate_is_as_asked_for(version: int) -> None:
    """Of absent keys, as many are maybes as were allowed, and its estimate says so."""
    filter = SparkBloomFilter(20_000, 0.01, version=version)
    filter.update(np.arange(20_000))
    wrong = int(np.sum(filter.contains_many(np.arange(20_000, 120_000))))
    assert 0.006 < wrong / 100_000 < 0.014
    assert filter.estimated_error_rate == pytest.approx(0.01, rel=0.2)
    assert 0.4 < filter.fill_ratio < 0.6


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, -2, None, 2**40], pa.int64()),
        pa.array([1, -2, None, 7], pa.int16()),
        pa.array(["a", None, "d\u00e9", "x" * 40]),
        pa.array(["a", None, "d\u00e9", "x" * 40], pa.large_string()),
        pa.array(["a", None, "d\u00e9", "x" * 40], pa.string_view()),
        pa.array([b"a", None, b"\xff" * 7], pa.binary()),
        pa.array(["a", None, "b", "a"]).dictionary_encode(),
        pa.chunked_array([[1, None], [3]]),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_have_the_keys_of_their_rows(column: Any) -> None:
    """A column's rows are the keys that it shows, one by one; nulls are refused or skipped."""
    filter, other = SparkBloomFilter(100), SparkBloomFilter(100)
    rows = column.to_pylist()
    new = filter.add_many(column, nulls="skip")
    assert list(new) == [False if row is None else other.add(row) for row in rows]
    assert filter == other
    assert list(filter.contains_many(column, nulls="skip")) == [row is not None for row in rows]
    with pytest.raises(errors.NullKey):
        filter.contains_many(column)
    assert list(filter.contains_many(rows, nulls="skip")) == [row is not None for row in rows]


@pytest.mark.parametrize("key", [(1, 2), uuid.UUID(int=1), datetime(2026, 1, 1), 1.5, None])
def test_what_spark_does_not_put_in_is_refused(key: Any) -> None:
    """Keys of ours that Spark has not are an error, alone and in a list, and change nothing."""
    filter = SparkBloomFilter(10)
    with pytest.raises(errors.UnsupportedKey, match="is no key of Spark's filters"):
        filter.add(key)
    with pytest.raises((errors.UnsupportedKey, errors.NullKey), match="row 0"):
        filter.add_many([key])
    assert filter.fill_ratio == 0


def test_ints_beyond_64_bits_are_refused() -> None:
    """Spark's integers have 64 signed bits; a larger one, or an unsigned column, is an error."""
    filter = SparkBloomFilter(10)
    for key in (2**63, -(2**63) - 1):
        with pytest.raises(errors.InvalidKey, match="64 bits"):
            filter.contains(key)
    for batch in (np.array([1], np.uint64), pa.array([1], pa.uint64())):
        with pytest.raises(errors.UnsupportedBatch, match="64 signed bits"):
            filter.contains_many(batch)
    assert not any(filter.contains_many(np.array([1, 2], np.uint32)))


def test_large_batches_are_whole() -> None:
    """A column longer than one turn has the answers of its keys, in order, nulls among them."""
    filter = SparkBloomFilter(1000, 1e-6)
    filter.update(np.arange(0, 300_000, 300))
    rows = np.arange(300_000)
    asked = np.asarray(filter.contains_many(pa.array(rows, mask=rows % 7 == 0), nulls="skip"))
    expected = (rows % 300 == 0) & (rows % 7 != 0)
    assert asked[expected].all()
    assert not asked[rows % 7 == 0].any()
    assert asked[~expected].sum() < 100  # wrong maybes


def test_union() -> None:
    """A union holds the keys of both; filters of other shapes are refused."""
    one, other = SparkBloomFilter(100, seed=3), SparkBloomFilter(100, seed=3)
    one.add("a")
    other.add(2)
    one |= other
    assert "a" in one
    assert 2 in one
    one |= one
    for wrong in (SparkBloomFilter(100), SparkBloomFilter(200, seed=3), SparkBloomFilter(100, 0.1)):
        with pytest.raises(errors.IncompatibleFilters, match="same version, seed"):
            one |= wrong
    assert one != other


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"", errors.CorruptData, "0 bytes are too few"),
        (b"\0\0\0\2" + bytes(8), errors.CorruptData, "12 bytes are too few"),
        (struct.pack(">ii", 3, 1), errors.UnsupportedVersion, "version 3"),
        (b"BLOOMERY", errors.UnsupportedVersion, "bloomery.open"),
        (struct.pack(">iiiq", 1, 0, 1, 0), errors.CorruptData, "number of hashes is 0"),
        (struct.pack(">iiiq", 1, -5, 1, 0), errors.CorruptData, "number of hashes is -5"),
        (struct.pack(">iiiq", 1, 2**31 - 1, 1, 0), errors.CorruptData, "number of hashes"),
        (struct.pack(">iii", 1, 3, 0), errors.CorruptData, "0 words"),
        (struct.pack(">iii", 1, 3, -1), errors.CorruptData, "-1 words"),
        (struct.pack(">iiii", 2, 3, 0, 2**31 - 1), errors.CorruptData, "2147483647 words"),
        (struct.pack(">iiiq", 1, 3, 1, 0) + b"x", errors.CorruptData, "9 bytes follow"),
        (struct.pack(">iiiq", 1, 3, 1, 0)[:-1], errors.CorruptData, "7 bytes follow"),
    ],
)
def test_hostile_bytes_are_one_error(data: bytes, error: type[Exception], says: str) -> None:
    """Bytes that Spark did not write so are refused, and nothing is allocated for what they say."""
    with pytest.raises(error, match=says):
        SparkBloomFilter.from_bytes(data)


@given(data=st.binary(max_size=80), version=st.sampled_from([1, 2]))
def test_any_bytes_are_a_filter_or_an_error(data: bytes, version: int) -> None:
    """Whatever follows a version, it is read to the byte, or it is CorruptData."""
    raw = struct.pack(">i", version) + data
    try:
        filter = SparkBloomFilter.from_bytes(raw)
    except errors.CorruptData:
        return
    assert filter.to_bytes() == raw
    assert isinstance(filter.contains("x"), bool)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"capacity": 0}, "capacity"),
        ({"capacity": 10, "error_rate": 2}, "error_rate"),
        ({"capacity": 10, "version": 3}, "version must be 1 or 2"),
        ({"capacity": 10, "seed": 2**31}, "32-bit"),
        ({"capacity": 10, "seed": 1, "version": 1}, "0 in version 1"),
        ({"capacity": 2**40}, "at most 2,147,483,647"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], says: str) -> None:
    """What Spark could not have made is an error that says what would be right."""
    with pytest.raises(errors.InvalidParameter, match=says):
        SparkBloomFilter(**options)
