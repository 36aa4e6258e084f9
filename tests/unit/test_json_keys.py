"""Keys on the way to a server: as JSON and back they are the same keys."""

from __future__ import annotations

import enum
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from bloomery import BloomFilter, errors
from bloomery.client.keys import dumped, form, forms, lines
from bloomery.service.http.body.keyforms import key_of
from properties import strategies

FILTER = BloomFilter(10)


class Number(enum.IntEnum):
    """An int that says otherwise."""

    ONE = 1


@given(strategies.keys)
def test_a_key_is_the_same_on_the_other_side(key: Any) -> None:
    """Whatever can be a key is, as JSON and read again, a key of the same hash."""
    assert FILTER.hash_of(key_of(json.loads(dumped(form(key))))) == FILTER.hash_of(key)


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
    assert FILTER.hash_of(key_of(json.loads(dumped(form(key))))) == FILTER.hash_of(key)


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
        form(key)


def test_a_lone_surrogate() -> None:
    """A str that has no UTF-8 is an InvalidKey, alone and in a batch."""
    with pytest.raises(errors.InvalidKey, match="surrogate"):
        dumped(form("\ud800"))
    with pytest.raises(errors.InvalidKey, match="surrogate"):
        lines(["a", "\ud800"])


def test_tuples_without_end() -> None:
    """Tuples that a local filter takes to be nested too deeply are refused here too."""
    key: Any = ()
    for _ in range(70):
        key = (key,)
    with pytest.raises(errors.InvalidKey, match="64"):
        form(key)


def test_a_null_in_a_batch() -> None:
    """A None among keys is a NullKey that says in which row, whatever the others are."""
    for batch in (["a", None], [b"a", None]):
        with pytest.raises(errors.NullKey, match="row 1"):
            forms(batch)


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
        key_of(value)
