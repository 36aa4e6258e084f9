"""Short keys are hashed on a way of their own: it gives what the long way gives."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import BloomFilter
from bloomery.errors import InvalidKey

HASHERS: list[Any] = ["xxh3", "murmur3", "fnv1a", "siphash"]
FILTERS = [BloomFilter(10, hasher=hasher) for hasher in HASHERS]
ROOM = 320
"""Bytes that a short key can have."""


class Text(str):
    """Takes the long way, as all subclasses do."""

    __slots__ = ()


class Pair(tuple[Any, ...]):
    __slots__ = ()


class Id(UUID):
    __slots__ = ()


def same(key: Any, *others: Any) -> None:
    """All of them are one key, for every hasher."""
    for filter in FILTERS:
        hashes = {filter.hash_of(form) for form in (key, *others)}
        hashes.update(filter.hash_of(key) for _ in range(2))
        assert len(hashes) == 1, ascii(key)


texts = st.one_of(
    *(
        st.text(st.characters(max_codepoint=most, exclude_categories=["Cs"]), max_size=ROOM)
        for most in (0x7F, 0xFF, 0x7FF, 0xFFFF, 0x10FFFF)
    )
)


@given(texts)
def test_text_is_its_utf8(text: str) -> None:
    """Whatever the characters and their number, a str is the bytes of its UTF-8."""
    same(text, text.encode(), Text(text))


@pytest.mark.parametrize(
    "character", ["a", "é", "߿", "用", "\uffff", "😀", "\U0010ffff"], ids=ascii
)
def test_text_of_any_length(character: str) -> None:
    """Where one character of many is another, and where the room ends, it is its UTF-8 too."""
    for length in (
        *range(40),
        *range(ROOM // 4 - 4, ROOM // 4 + 2),
        104,
        105,
        156,
        157,
        ROOM,
        5000,
    ):
        whole = character * length
        same(whole, whole.encode(), Text(whole))
    for length in (16, 20, 32):
        for place in range(length):
            text = f"{'x' * place}{character}{'y' * (length - 1 - place)}"
            same(text, text.encode(), Text(text))


@pytest.mark.parametrize("length", [1, 4, 9, 17, 100, 1000])
@pytest.mark.parametrize("other", ["", "用", "😀"], ids=ascii)
def test_lone_surrogates_wherever_they_are(length: int, other: str) -> None:
    """A str that UTF-8 cannot hold is refused with the index, alone and in a tuple."""
    for place in {0, length // 2, length - 1}:
        text = f"{other}{'x' * place}\ud83d{'y' * (length - place - 1)}"
        keys: list[Any] = [text, (text,), ("a", text), Text(text)]
        for key in keys:
            with pytest.raises(InvalidKey, match=f"index {len(other) + place},"):
                FILTERS[0].add(key)


ints = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**200), 2**200))
parts = st.one_of(
    texts, st.binary(max_size=40), ints, st.uuids(), st.booleans(), st.tuples(st.integers(), texts)
)


@given(st.lists(parts, max_size=6))
def test_a_tuple_is_its_parts(parts: list[Any]) -> None:
    """A tuple of anything is the one that a subclass of tuple holds, which takes the long way."""
    key = tuple(parts)
    same(key, Pair(key), tuple(Text(part) if type(part) is str else part for part in key))


def test_tuples_about_as_long_as_the_room() -> None:
    """At the end of the room a tuple goes the long way, with the same answer."""
    for length in range(ROOM - 40, ROOM + 10):
        for text in ("a" * length, "a" * (length // 2 - 20) + "é", "用" * (length // 3 - 10)):
            for key in (
                (text,),
                (text, 7),
                (7, text),
                (text[:-9], b"bytes"),
                (b"x", text, UUID(int=1)),
            ):
                same(key, Pair(key))
    same(tuple(range(20)), Pair(range(20)))
    same(tuple(range(30)), Pair(range(30)))
    same((), Pair())


@given(st.integers(0, 2**128 - 1))
def test_a_uuid_is_its_number(number: int) -> None:
    """However many digits the number has, it is the UUID whose bytes Python makes of it."""
    same(UUID(int=number), Id(int=number))
    same((UUID(int=number), "x"), (Id(int=number), "x"))


@pytest.mark.parametrize("bits", [0, 1, 30, 31, 60, 90, 119, 120, 121, 127, 128])
def test_uuids_at_the_ends_of_digits(bits: int) -> None:
    """The largest and smallest numbers of so many bits too."""
    for number in {2**bits - 1, 2**bits % 2**128}:
        same(UUID(int=number), Id(int=number))


@pytest.mark.parametrize("number", [-1, 2**128, 2**150, 2**200, "text", None, 1.5])
def test_a_uuid_whose_number_is_none(number: Any) -> None:
    """What was put into a UUID by force fails as its `bytes` do, and no memory is misread."""
    key = UUID(int=5)
    object.__setattr__(key, "int", number)
    with pytest.raises(Exception) as expected:
        bytes(key.bytes)
    with pytest.raises(expected.type):
        FILTERS[0].add(key)
    with pytest.raises(expected.type):
        FILTERS[0].add((key, 1))


def test_a_uuid_without_a_number() -> None:
    """One that was never filled, or holds a bool, is what its `bytes` say."""
    with pytest.raises(AttributeError):
        FILTERS[0].add(UUID.__new__(UUID))
    key = UUID(int=1)
    object.__setattr__(key, "int", True)
    same(key, UUID(int=1))


def test_the_first_uuid_of_a_process() -> None:
    """The first UUID shows where all keep their numbers, and is hashed as the later ones are."""
    code = (
        "from uuid import UUID; from bloomery import BloomFilter; f = BloomFilter(10);"
        "print(f.hash_of(UUID(int=7)), f.hash_of(UUID(int=7)), f.hash_of((UUID(int=7),)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    keys: list[Any] = [UUID(int=7), UUID(int=7), (UUID(int=7),)]
    hashes = list(map(FILTERS[0].hash_of, keys))
    assert list(map(int, done.stdout.split())) == hashes


def test_in_lists_as_alone() -> None:
    """Keys of all these kinds, mixed in one list, are those that were added one by one."""
    keys: list[Any] = [
        key for i in range(50) for key in (f"é{i}", f"用{i}", UUID(int=i), (f"ü{i}", i), f"a{i}")
    ]
    one_by_one, at_once = BloomFilter(1000, 1e-9), BloomFilter(1000, 1e-9)
    assert all(map(one_by_one.add, keys))
    assert at_once.add_many(keys) == [True] * len(keys)
    assert one_by_one.to_bytes() == at_once.to_bytes()
    assert all(key in at_once for key in keys)
