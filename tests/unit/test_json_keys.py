"""Keys as JSON and back: they are the same keys, and the same text as ever."""

from __future__ import annotations

import enum
import json
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given

from bloomery import BloomFilter, errors
from bloomery.client.request import dumped, lines
from bloomery.json_keys import decode_key, encode_key, encode_keys
from properties import strategies

FILTER = BloomFilter(10)


GOLDEN = [
    ("ä\n", '"ä\\n"'),
    (-(2**70), "-1180591620717411303424"),
    (b"\0\xff", '{"base64":"AP8="}'),
    (bytearray(b"a"), '{"base64":"YQ=="}'),
    (UUID(int=7), '{"uuid":"00000000-0000-0000-0000-000000000007"}'),
    (datetime(2026, 1, 31, 12, 0, 0, 5), '{"datetime":"2026-01-31T12:00:00.000005"}'),
    (datetime(2026, 1, 31, tzinfo=timezone.utc), '{"datetime":"2026-01-31T00:00:00+00:00"}'),
    (("a", (1, b"")), '["a",[1,{"base64":""}]]'),
]


@pytest.mark.parametrize(("key", "text"), GOLDEN, ids=[text for _, text in GOLDEN])
def test_the_text_of_a_key_stays(key: Any, text: str) -> None:
    """What goes over the wire is the same to the byte: clients and servers of other versions."""
    assert dumped(encode_key(key)) == text.encode()
    assert FILTER.hash_of(decode_key(json.loads(text))) == FILTER.hash_of(key)


class Number(enum.IntEnum):
    """An int that says otherwise."""

    ONE = 1


@given(strategies.keys)
def test_a_key_is_the_same_on_the_other_side(key: Any) -> None:
    """Whatever can be a key is, as JSON and read again, a key of the same hash."""
    assert FILTER.hash_of(decode_key(json.loads(dumped(encode_key(key))))) == FILTER.hash_of(key)


@pytest.mark.parametrize(
    "key",
    [
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.True_,
        Number.ONE,
        type("Text", (str,), {})("a"),
        (np.int64(1), "a"),
        np.str_("a"),
    ],
    ids=lambda key: type(key).__name__,
)
def test_what_is_almost_a_plain_key(key: Any) -> None:
    """Kinds of ints and strs that others made go as what they stand for."""
    assert FILTER.hash_of(decode_key(json.loads(dumped(encode_key(key))))) == FILTER.hash_of(key)


@pytest.mark.parametrize(
    "key",
    [1.5, None, ["a"], {"a": 1}, np.array([1]), np.float64(1), object()],
    ids=lambda key: type(key).__name__,
)
def test_what_is_no_key(key: Any) -> None:
    """What a local filter refuses as a key is refused before it is sent, by the same class."""
    with pytest.raises(errors.UnsupportedKey) as local:
        FILTER.add(key)
    with pytest.raises(type(local.value), match=type(key).__name__):
        encode_key(key)


def test_a_lone_surrogate() -> None:
    """A str that has no UTF-8 is an InvalidKey, alone and in a batch."""
    with pytest.raises(errors.InvalidKey, match="surrogate"):
        dumped(encode_key("\ud800"))
    with pytest.raises(errors.InvalidKey, match="surrogate"):
        lines(["a", "\ud800"])


def test_tuples_without_end() -> None:
    """Tuples that a local filter takes to be nested too deeply are refused here too."""
    key: Any = ()
    for _ in range(70):
        key = (key,)
    with pytest.raises(errors.InvalidKey, match="64"):
        encode_key(key)


def test_a_null_in_a_batch() -> None:
    """A None among keys is a NullKey that says in which row, whatever the others are."""
    for batch in (["a", None], [b"a", None]):
        with pytest.raises(errors.NullKey, match="row 1"):
            encode_keys(batch)


def test_lines_are_one_a_key() -> None:
    """A key with a newline is still one line."""
    keys = ["a\nb", 'a"b', 1, -(2**70)]
    assert [json.loads(line) for line in lines(keys).splitlines()] == keys


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, errors.NullKey),
        (1.5, errors.UnsupportedKey),
        (True, errors.UnsupportedKey),
        ({}, errors.UnsupportedKey),
        ({"uuid": "a", "base64": "b"}, errors.UnsupportedKey),
        ({"uuid": 1}, errors.UnsupportedKey),
        ({"uuid": "no"}, errors.InvalidKey),
        ({"datetime": "yesterday"}, errors.InvalidKey),
        ({"base64": "a"}, errors.InvalidKey),
        ([["a", None]], errors.NullKey),
    ],
    ids=repr,
)
def test_json_that_is_no_key(value: Any, error: type[Exception]) -> None:
    """What JSON holds and is no key is refused by the class that says why, not by another."""
    with pytest.raises(error):
        decode_key(value)
