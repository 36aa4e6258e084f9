"""Lines of JSON as keys: each line one, wherever the bytes are cut; what is none says where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import errors
from bloomery.service.http.body.ndjson import NdjsonReader, answers

MOST = 10_000


def read(data: bytes, step: int = 1 << 16) -> Iterator[Any]:
    """The keys of a stream, whose bytes come so many at a time."""
    lines = NdjsonReader(MOST)
    for start in range(0, len(data), step):
        for keys in lines.feed(data[start : start + step]):
            yield from keys
    for keys in lines.end():
        yield from keys


def until_refused(data: bytes) -> tuple[list[Any], Exception | None]:
    """The keys that come before what is wrong, and what that is."""
    taken: list[Any] = []
    try:
        taken.extend(read(data))
    except errors.BloomeryError as problem:
        return taken, problem
    return taken, None


_plain: Any = st.integers() | st.text(st.characters(exclude_categories=["Cs"]))
_lists = st.recursive(_plain, lambda part: st.lists(part, max_size=3), max_leaves=4)


def frozen(value: Any) -> Any:
    return tuple(map(frozen, value)) if isinstance(value, list) else value


@given(
    keys=st.lists(_lists, max_size=30) | st.lists(_plain, max_size=30),
    step=st.integers(1, 50),
    ascii=st.booleans(),
    end=st.sampled_from(["\n", "\r\n", " \n\n"]),
)
def test_lines_as_they_come(keys: list[Any], step: int, ascii: bool, end: str) -> None:
    """Keys come out as they went in: strings, ints of any size and arrays, however they are cut,
    with empty lines between them or none."""
    lines = [json.dumps(key, ensure_ascii=ascii) for key in keys]
    assert list(read(end.join(lines).encode(), step)) == [frozen(key) for key in keys]
    assert list(read("".join(line + end for line in lines).encode(), step)) == list(
        map(frozen, keys)
    )


@pytest.mark.parametrize(
    "text",
    [
        '"a"\n1,2\n',
        '1\n"a\nb"\n3',
        "1\n[2\n3]\n4",
        "1\n]\n[\n",
        '1\n2\n"a" "b"',
        "1\n,\n2",
        "1\n2,\n",
        "1,2\n\n",
        '1,2\n"a\nb"',
        '1,2\n"a\nb"\n',
        "1,2\n[3\n4]\n",
        "1\n\x00",
        "1\n\xff",
        "1\nNaN",
        "1\n-",
        "1\n" + "[" * 100_00,
        "1\n01",
        "1\n'a'",
    ],
)
def test_what_is_no_line(text: str) -> None:
    """Lines that are not one JSON value each are refused, though together they would be JSON; the
    lines before are given."""
    taken, problem = until_refused(text.encode("latin-1"))
    assert isinstance(problem, errors.UnsupportedBatch)
    assert "is not JSON" in str(problem)
    assert taken == [1][: len(taken)] or taken == ["a"] or taken == [1, 2]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("null", errors.NullKey),
        ("1.5", errors.UnsupportedKey),
        ("true", errors.UnsupportedKey),
        ("{}", errors.UnsupportedKey),
        ('["a", null]', errors.NullKey),
        ('{"uuid": "x"}', errors.InvalidKey),
    ],
)
def test_lines_that_are_no_keys(line: str, error: type[Exception]) -> None:
    """A value that is no key is refused by its class, with its line; those before it are given."""
    taken, problem = until_refused(f'"a"\n7\n{line}\n"b"\n'.encode())
    assert isinstance(problem, error)
    assert str(problem).startswith("line 3: ")
    assert taken == ["a", 7]


def test_a_line_without_end() -> None:
    """A line longer than a key may be is refused before all of it has come."""
    lines = NdjsonReader(MOST)
    for _ in range(MOST // 1000):
        assert list(lines.feed(b"a" * 1000)) == []
    with pytest.raises(errors.RequestTooLarge, match=f"line 1 .* {MOST}"):
        list(lines.feed(b"a"))


def test_damaged_lines() -> None:
    """Any bytes give keys, or one of our errors."""
    data = b'"key"\n["a", 1]\n{"base64": "AP8="}\n12345678901234567890123\n'
    for at in range(len(data)):
        for byte in range(256):
            forged = data[:at] + bytes([byte]) + data[at + 1 :]
            try:
                keys = list(read(forged))
            except errors.BloomeryError:
                continue
            assert len(keys) <= 5


def test_answers_are_lines() -> None:
    """Answers, a byte each, come out as lines of true and false."""
    assert b"".join(answers(b"\0\1\1")) == b"false\ntrue\ntrue\n"
    assert b"".join(answers(b"")) == b""
