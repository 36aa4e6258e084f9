"""What can be a key, which keys are the same, and what is said about the rest."""

from __future__ import annotations

import enum
from array import array
from collections import namedtuple
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from datetime import time as clock
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import numpy as np
import pytest

from bloomery import BloomFilter
from bloomery.errors import InvalidKey, NullKey, UnsupportedBatch, UnsupportedKey
from conftest import require

HASHERS = ("xxh3", "murmur3", "fnv1a", "siphash")


class Colour(enum.IntEnum):
    RED = 5


class Text(str):
    """A str of another class, with a mind of its own about what it shows."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Index:
    def __index__(self) -> int:
        return 5


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize("hasher", HASHERS)
@pytest.mark.parametrize(
    "same",
    [
        [5, np.int8(5), np.uint8(5), np.int32(5), np.uint64(5), np.int64(5), Colour.RED, Index()],
        [1, True, np.int16(1)],
        [0, False],
        [2**64 - 1, np.uint64(2**64 - 1)],
        [-(2**63), np.int64(-(2**63))],
        ["a", b"a", bytearray(b"a"), memoryview(b"a"), Text("a"), np.str_("a"), np.bytes_(b"a")],
        ["", b"", bytearray(), memoryview(b"")],
        ["é€😀", "é€😀".encode(), np.str_("é€😀"), Text("é€😀")],
        [array("i", [1, 2]).tobytes(), memoryview(array("i", [1, 2]))],
        [(1, "a"), (True, b"a"), Point(1, "a"), (np.int8(1), bytearray(b"a"))],
        [UUID(int=7), UUID("00000000-0000-0000-0000-000000000007")],
        [
            datetime(2024, 3, 1, 12, tzinfo=timezone.utc),
            datetime(2024, 3, 1, 14, tzinfo=timezone(timedelta(hours=2))),
            datetime(2024, 3, 1, 6, 30, tzinfo=timezone(-timedelta(hours=5, minutes=30))),
        ],
    ],
    ids=lambda same: repr(same[0]),
)
def test_one_key_in_many_forms(hasher: Any, same: list[Any]) -> None:
    """All forms of one key have one hash: what one adds another finds."""
    filter = BloomFilter(10, 1e-9, hasher=hasher)
    assert len({filter.hash_of(key) for key in same}) == 1
    assert filter.add(same[0])
    assert filter.contains_many(same) == [True] * len(same)
    assert filter.add_many(same) == [False] * len(same)


def doors() -> tuple[dict[str, Any], dict[str, Any]]:
    """The int 5 and the str "a", each alone in every kind of batch."""
    pa, pl, pd = require("pyarrow"), require("polars"), require("pandas")
    widths = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    fives: dict[str, Any] = {f"numpy {w}": np.array([5], w) for w in widths}
    fives |= {f"numpy >{w}": np.array([5], np.dtype(w).newbyteorder(">")) for w in widths}
    fives |= {f"arrow {w}": pa.array([5], w) for w in widths}
    fives |= {"array": array("h", [5]), "polars": pl.Series([5]), "pandas": pd.Series([5])}
    fives |= {"memoryview": memoryview(array("h", [5])), "range": range(5, 6), "set": {5}}
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]
    kinds += [pa.binary_view(), pa.binary(1), pa.dictionary(pa.int8(), pa.string())]
    texts: dict[str, Any] = {f"arrow {kind}": pa.array(["a"], kind) for kind in kinds}
    texts |= {"numpy U": np.array(["a"], "U9"), "numpy S": np.array([b"a"], "S9")}
    texts |= {"numpy object": np.array(["a"], object), "polars": pl.Series(["a"])}
    texts |= {"pandas": pd.Series(["a"]), "tuple": ("a",), "dict": {"a": 1}}
    return fives, texts


@pytest.mark.parametrize("hasher", HASHERS)
def test_one_key_through_every_door(hasher: Any) -> None:
    """add(5) is found by an int64 array, an int32 column and the rest, and the other way round."""
    keys: list[Any] = [5, "a"]
    for key, other, batches in zip(keys, reversed(keys), doors(), strict=True):
        held, crossed = (BloomFilter(10, 1e-9, hasher=hasher) for _ in range(2))
        held.add(key)
        crossed.add(other)
        for name, batch in batches.items():
            assert list(held.contains_many(batch)) == [True], name
            assert list(crossed.contains_many(batch)) == [False], name
            fresh = BloomFilter(10, 1e-9, hasher=hasher)
            assert list(fresh.add_many(batch)) == [True], name
            assert fresh == held, name


ADVICE: list[tuple[Any, str, str]] = [
    (1.5, "float", "repr(key)"),
    (np.float64(1.5), "numpy.float64", "repr(key)"),
    ([1], "list", "tuple(key)"),
    ({}, "dict", "json.dumps"),
    ({1}, "set", "sorted"),
    (frozenset(), "frozenset", "sorted"),
    (date(2024, 1, 1), "datetime.date", "isoformat"),
    (clock(1), "datetime.time", "isoformat"),
    (np.arange(3), "numpy.ndarray", "add_many"),
    (np.arange(1), "numpy.ndarray", "add_many"),
    (1j, "complex", "str, bytes or tuple"),
    (Decimal(1), "decimal.Decimal", "str, bytes or tuple"),
    (Fraction(1, 2), "fractions.Fraction", "str, bytes or tuple"),
    (object(), "object", "str, bytes or tuple"),
    (int, "type", "str, bytes or tuple"),
    (timedelta(1), "datetime.timedelta", "str, bytes or tuple"),
    (Path(), "Path", "str, bytes or tuple"),
    (array("i", [1]), "array.array", "str, bytes or tuple"),
]


@pytest.mark.parametrize(("key", "name", "advice"), ADVICE, ids=[name for _, name, _ in ADVICE])
def test_what_cannot_be_a_key(key: Any, name: str, advice: str) -> None:
    """An object of another type is a TypeError that names the type and what to do, everywhere."""
    filter = BloomFilter(10)
    ways: list[Any] = [
        filter.add,
        filter.__contains__,
        filter.hash_of,
        lambda key: filter.add_many([key]),
        lambda key: filter.contains_many((key,)),
        lambda key: filter.update(iter([key])),
        lambda key: filter.add((1, (key,))),
    ]
    for way in ways:
        with pytest.raises(UnsupportedKey) as caught:
            way(key)
        assert isinstance(caught.value, TypeError)
        assert name in str(caught.value)
        assert advice in str(caught.value)
        assert "str, bytes, int, UUID, datetime" in str(caught.value)
    assert filter.fill_ratio == 0


def test_none_is_no_key() -> None:
    """None is refused alone and in a tuple; in a batch it is the null of its row."""
    filter = BloomFilter(10)
    ways: list[Any] = [filter.add, filter.__contains__, filter.hash_of]
    for way in [*ways, lambda k: filter.add((k,))]:
        with pytest.raises(UnsupportedKey, match=r"NoneType.*leave None out"):
            way(None)
    batches: list[Any] = [[1, 2, None], (1, 2, None), iter([1, 2, None])]
    for batch in batches:
        with pytest.raises(NullKey, match="row 2"):
            filter.contains_many(batch)


class Columnlike:
    """Has a dtype, as NumPy's scalars have, and nothing else."""

    dtype = "int64"


def test_columns_are_no_keys() -> None:
    """A whole column, or what has only part of its manners, is an UnsupportedKey as well."""
    columns: tuple[Any, ...] = (
        require("polars").Series([1]),
        require("pandas").Series([1]),
        Columnlike(),
    )
    for key in (*columns, require("pyarrow").array([1])):
        with pytest.raises(UnsupportedKey):
            BloomFilter(10).add(key)


@pytest.mark.parametrize("key", ["\ud800", "a\udfff", "😀\udc00x"], ids=ascii)
def test_lone_surrogates(key: str) -> None:
    """A str that UTF-8 cannot hold is an InvalidKey that says at which index, and what to do."""
    filter = BloomFilter(10)
    for way in (filter.add, filter.hash_of, filter.__contains__, lambda k: filter.update([k])):
        with pytest.raises(InvalidKey, match=r"index \d.*surrogatepass"):
            way(key)
    with pytest.raises(InvalidKey, match="row 1"):
        filter.update(np.array(["fine", key]))
    assert filter.add(key.encode("utf-8", "surrogatepass"))


def nested(depth: int) -> Any:
    """A tuple within a tuple within …"""
    key: Any = ()
    for _ in range(depth - 1):
        key = (key,)
    return key


def test_deep_tuples() -> None:
    """Tuples nest to a documented depth; deeper is an InvalidKey, not a crash."""
    filter = BloomFilter(100, 1e-9)
    assert all(filter.add(nested(depth)) for depth in range(1, 65))
    for depth in (65, 100, 5000):
        with pytest.raises(InvalidKey, match="64 deep"):
            filter.add(nested(depth))


def test_instants() -> None:
    """Instants differ to the microsecond, count the fold, and reach both ends of the calendar."""
    filter = BloomFilter(100, 1e-9)
    noon = datetime(2024, 1, 1, 12)
    zones = [None, timezone.utc, timezone(timedelta(hours=1)), timezone(timedelta(seconds=1))]
    instants = [noon.replace(tzinfo=zone) for zone in zones]
    instants += [i + timedelta(microseconds=1) for i in instants]
    instants += [datetime.min, datetime.max, datetime.min.replace(tzinfo=zones[2])]
    assert filter.add_many(instants) == [True] * len(instants)
    zone = require("zoneinfo").ZoneInfo("Europe/Berlin")
    early, late = (datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=fold) for fold in (0, 1))
    assert filter.hash_of(early) != filter.hash_of(late)
    assert filter.hash_of(late) == filter.hash_of(late.astimezone(timezone.utc))


def test_pandas_instants() -> None:
    """A pandas Timestamp is the datetime it equals; what no datetime can hold is refused."""
    pd, filter = require("pandas"), BloomFilter(10)
    moment = datetime(2024, 1, 1, 12, 0, 0, 7)
    assert filter.hash_of(pd.Timestamp(moment)) == filter.hash_of(moment)
    zoned = moment.replace(tzinfo=timezone.utc)
    assert filter.hash_of(pd.Timestamp(zoned)) == filter.hash_of(zoned)
    for key in (pd.NaT, pd.Timestamp(1, unit="ns")):
        with pytest.raises((InvalidKey, UnsupportedKey)):
            filter.add(key)


def test_numpy_bool_is_a_bool() -> None:
    """NumPy's True is the key 1, alone, in a list and in an array of bools."""
    filter = BloomFilter(10, 1e-9)
    assert filter.add_many(np.array([True, False])).tolist() == [True, True]  # type: ignore[union-attr]
    assert filter.contains_many([1, 0, True, False]) == [True] * 4
    assert filter.__contains__(cast(int, np.bool_(True)))
    assert filter.contains_many(list(np.array([True, False]))) == [True, True]


def test_a_bad_key_leaves_the_filter_working() -> None:
    """After an error in the middle of a batch, every key it had taken in is a maybe."""
    filter = BloomFilter(10_000, 1e-6)
    bad: Any = 1.5
    with pytest.raises(UnsupportedKey):
        filter.update([*range(5000), bad, *range(5000, 6000)])
    assert filter.add("after")
    assert filter.contains_many(["after", "never"]) == [True, False]
    present = filter.contains_many(list(range(6000)))
    assert present == sorted(present, reverse=True), "keys were skipped before the bad one"
    assert not any(present[5000:])


def test_random_uuids_and_their_forms() -> None:
    """A UUID is found as a UUID only: its str, bytes and int are other keys."""
    filter = BloomFilter(100, 1e-9)
    for _ in range(20):
        key = uuid4()
        filter.add(key)
        assert key in filter
        assert filter.contains_many([str(key), key.bytes, key.int, key.hex]) == [False] * 4


class Raising:
    """An int by its own account, until it is asked."""

    def __init__(self, problem: BaseException) -> None:
        self.problem = problem

    def __index__(self) -> int:
        raise self.problem


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), SystemExit(3), MemoryError(), OSError(5)])
def test_what_a_key_raises_is_raised(problem: BaseException) -> None:
    """A key's own code may be stopped by Ctrl-C, or fail: that is no word about its type."""
    filter, key = BloomFilter(1000), cast(Any, Raising(problem))
    uses: list[Callable[[], object]] = [
        lambda: filter.add(key),
        lambda: key in filter,
        lambda: filter.add((1, key)),
        lambda: filter.add_many([1, key]),
        lambda: filter.update(key for key in [1, key]),
    ]
    for use in uses:
        with pytest.raises(type(problem)) as caught:
            use()
        assert caught.value is problem
    with pytest.raises(UnsupportedKey, match="Raising"):
        filter.add(cast(Any, Raising(TypeError("no int after all"))))


def test_what_an_attribute_raises_is_raised() -> None:
    """So may the code behind an attribute that tells what a key is, or a batch."""

    class Odd:
        dtype = "odd"

        @property
        def ndim(self) -> int:
            raise KeyboardInterrupt

    class Endless:
        def __init__(self, problem: BaseException) -> None:
            self.problem = problem

        def __iter__(self) -> Any:
            raise self.problem

    class Unmeasured:
        def __iter__(self) -> Any:
            return iter([1, 2])

        def __len__(self) -> int:
            raise KeyboardInterrupt

    filter = BloomFilter(1000)
    with pytest.raises(KeyboardInterrupt):
        filter.add(cast(Any, Odd()))
    for problem in (KeyboardInterrupt(), ZeroDivisionError()):
        with pytest.raises(type(problem)):
            filter.update(cast(Any, Endless(problem)))
    with pytest.raises(UnsupportedBatch):
        filter.update(cast(Any, Endless(TypeError())))
    with pytest.raises(KeyboardInterrupt):
        filter.update(cast(Any, Unmeasured()))
