"""Values as bytes, and back; and bytes that nobody wrote."""

import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import _native
from bloomery.errors import InvalidParameter
from bloomery.guard.codec import decode, encode

OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
KEYS = st.recursive(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.integers(-(2**63), 2**64 - 1)
    | st.uuids()
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())  # lone surrogates too
    | st.binary()
    | st.datetimes(timezones=st.none() | OFFSETS)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.just("$bytes") | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """A value with the type of each part."""
    if isinstance(value, dict):
        return dict, [(shape(key), shape(one)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [shape(one) for one in value]
    return type(value), value


@pytest.mark.slow
@given(VALUES)
def test_what_was_written_comes_back(value: Any) -> None:
    """Every value comes back equal, each part of its own type."""
    assert shape(decode(encode(value))) == shape(value)


@pytest.mark.slow
@given(KEYS)
def test_a_key_stays_the_same_key(key: Any) -> None:
    """A key that went through a queue has the canonical bytes that it had."""
    assert _native.canonical(decode(encode(key))) == _native.canonical(key)


def test_numbers_that_json_has_not() -> None:
    """NaN, infinities and integers of ten thousand digits survive."""
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode([-math.inf, 16**10_000])) == [-math.inf, 16**10_000]
    assert str(decode(encode(Decimal("sNaN")))) == "sNaN"


def test_the_bytes_are_the_same_in_every_version() -> None:
    """What is written is frozen: caches and queues outlive the process."""
    value = {
        "a": [1, 2.5, None, True, "ü"],
        "b": (b"\0\xff", 2**70),
        "c": {1: date(2026, 1, 2)},
        "d": [datetime(2026, 1, 2, 3, 4, 5, 6), time(1, 2), timedelta(1, 2, 3)],
        "e": [Decimal("1.50"), UUID(int=7), math.inf],
    }
    golden = (
        '{"a":[1,2.5,null,true,"ü"],'
        '"b":{"$tuple":[{"$bytes":"AP8="},{"$int":"400000000000000000"}]},'
        '"c":{"$dict":[[1,{"$date":"2026-01-02"}]]},'
        '"d":[{"$datetime":"2026-01-02T03:04:05.000006"},{"$time":"01:02:00"},'
        '{"$timedelta":[1,2,3]}],'
        '"e":[{"$decimal":"1.50"},{"$uuid":"00000000000000000000000000000007"},{"$float":"inf"}]}'
    )
    assert encode(value) == golden.encode()
    assert decode(golden.encode()) == value


def test_what_cannot_be_written_is_named() -> None:
    """A set, an object and a list within itself are refused, with their type."""
    with pytest.raises(InvalidParameter, match="a set cannot be written"):
        encode({"a": {1}})
    with pytest.raises(InvalidParameter, match="a object cannot"):
        encode(object())
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidParameter, match="nested more than 64 deep"):
        encode(endless)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1", "no JSON"),
        (b"NaN", "JSON has not"),
        (b"[" * 100_000, "64 deep"),
        (b"[" * 66 + b"]" * 66, "64 deep"),
        (b'{"$pickle":"gASVAAAA"}', "unknown tag"),
        (b'{"$bytes":"AA==","a":1}', "beside"),
        (b'{"a":1,"$bytes":"AA=="}', "beside"),
        (b'{"a":1,"a":2}', "twice"),
        (b'{"$dict":[[1,2],[1,3]]}', "twice"),
        (b'{"$dict":[[[],2]]}', "key that cannot be one"),
        (b'{"$dict":[1]}', "no dict"),
        (b'{"$bytes":"A"}', "no bytes"),
        (b'{"$bytes":7}', "no bytes"),
        (b'{"$datetime":"yesterday"}', "no datetime"),
        (b'{"$timedelta":[1e308,0,0]}', "no timedelta"),
        (b'{"$timedelta":[]}', "no timedelta"),
        (b'{"$decimal":"one"}', "no decimal"),
        (b'{"$decimal":[0,[1],0]}', "no decimal"),
        (b'{"$uuid":null}', "no uuid"),
        (b'{"$int":"zz"}', "no int"),
        (b'{"$float":"1"}', "no float"),
        (b"1" * 5000, "digits"),
    ],
)
def test_hostile_bytes_give_one_clear_error(data: bytes, why: str) -> None:
    """Bytes that nobody wrote are a ValueError that says what is wrong with them."""
    with pytest.raises(ValueError, match=why):
        decode(data)


@pytest.mark.slow
@given(st.binary() | st.text().map(str.encode) | VALUES.map(encode), st.data())
def test_damaged_bytes_give_a_value_or_a_value_error(data: bytes, draw: st.DataObject) -> None:
    """Whatever is read, nothing but a value or a ValueError comes of it."""
    if data:
        at = draw.draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw.draw(st.binary(max_size=2)) + data[at + 1 :]
    try:
        decode(data)
    except json.JSONDecodeError:  # which is a ValueError, but not ours
        raise AssertionError from None
    except ValueError:
        pass


def test_a_text_that_is_shown_otherwise_is_written_as_what_it_is() -> None:
    """Of an enum of texts, str() gives its name: as a key that would be another one."""

    class Colour(str, Enum):
        RED = "r"

    assert decode(encode(Colour.RED)) == "r"
    assert decode(encode({Colour.RED: (Colour.RED,)})) == {"r": ("r",)}
    assert type(decode(encode(Colour.RED))) is str
    assert _native.canonical(decode(encode(Colour.RED))) == _native.canonical(Colour.RED)


def test_an_array_that_could_be_an_index_is_refused() -> None:
    """It has __index__, as an int has, and cannot be one: that is no TypeError of ours."""

    class Vector:
        def __index__(self) -> int:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")

    with pytest.raises(InvalidParameter, match="a Vector cannot be written"):
        encode([Vector()])
