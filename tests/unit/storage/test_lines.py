"""Lines as keys: what `bloomery dedup` and `contains` run on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import BloomFilter
from bloomery.errors import ReadOnlyFilter, UnsupportedBatch
from properties.strategies import lines, make, shapes


def fresh() -> BloomFilter:
    """An empty filter that practically never errs."""
    return BloomFilter(10_000, 1e-9)


CASES = [
    (b"", False, (b"", 0, 0, 0)),
    (b"", True, (b"", 0, 0, 0)),
    (b"a", False, (b"", 0, 0, 0)),
    (b"a", True, (b"a\n", 1, 1, 1)),
    (b"a\n", False, (b"a\n", 2, 1, 1)),
    (b"a\n", True, (b"a\n", 2, 1, 1)),
    (b"\n", False, (b"\n", 1, 1, 1)),
    (b"\n\n", True, (b"\n", 2, 2, 1)),
    (b"a\nb", False, (b"a\n", 2, 1, 1)),
    (b"a\nb", True, (b"a\nb\n", 3, 2, 2)),
    (b"a\nb\na\n", False, (b"a\nb\n", 6, 3, 2)),
    (b"a\n\nb\n\n", False, (b"a\n\nb\n", 6, 4, 3)),
    (b"a\r\na\n", False, (b"a\r\na\n", 5, 2, 2)),
    (b"\0\n\xff\xfe\n", False, (b"\0\n\xff\xfe\n", 5, 2, 2)),
    (b"a\nb\na", True, (b"a\nb\n", 5, 3, 2)),
]


@pytest.mark.parametrize(("data", "final", "expected"), CASES)
def test_adding_lines(data: bytes, final: bool, expected: tuple[bytes, int, int, int]) -> None:
    """The new lines come back with a newline each; an unfinished line waits, unless it is final."""
    assert fresh().add_lines(data, final=final) == expected
    assert fresh().add_lines(bytearray(data), final=final) == expected
    assert fresh().add_lines(memoryview(data), final=final) == expected


def test_asking_for_lines() -> None:
    """Asking keeps the lines that may be there, or with invert those that are not."""
    filter = fresh()
    filter.update([b"a", "b", b""])
    data = b"a\nx\n\nb\ny\nb"
    assert filter.contains_lines(data) == (b"a\n\nb\n", 9, 5, 3)
    assert filter.contains_lines(data, final=True) == (b"a\n\nb\nb\n", 10, 6, 4)
    assert filter.contains_lines(data, invert=True) == (b"x\ny\n", 9, 5, 2)
    assert filter.contains_lines(data, invert=True, final=True) == (b"x\ny\n", 10, 6, 2)
    assert "x" not in filter


def test_a_line_is_the_key_of_its_bytes() -> None:
    """A line added as text is found as str and bytes, and the other way round."""
    filter = fresh()
    filter.add_lines("é\nhttps://example.org/\n".encode())
    assert filter.contains_many(["é", b"https://example.org/", "é\n", "é\r"]) == [
        *(True, True, False, False)
    ]
    filter.add("word")
    assert filter.add_lines(b"word\n") == (b"", 5, 1, 0)


@given(shapes, lines, st.booleans(), st.integers(1, 400))
def test_lines_in_pieces(shape: dict[str, Any], keys: list[bytes], ends: bool, size: int) -> None:
    """However the text is cut into pieces, its lines get the answers they get one by one."""
    text = b"\n".join(keys) + (b"\n" if ends and keys else b"")
    expected = text.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    alone, pieces = make(shape), make(shape)
    new = [line for line in expected if alone.add(line)]
    out, rest, seen, count = b"", b"", 0, 0
    for start in range(0, len(text), size):
        rest += text[start : start + size]
        kept, used, some, fresh = pieces.add_lines(rest)
        out, rest = out + kept, rest[used:]
        seen, count = seen + some, count + fresh
    kept, used, some, fresh = pieces.add_lines(rest, final=True)
    assert used == len(rest)
    assert out + kept == b"".join(line + b"\n" for line in new)
    assert (seen + some, count + fresh) == (len(expected), len(new))
    assert pieces == alone
    assert pieces.contains_lines(text, final=True)[2:] == (len(expected), len(expected))


@pytest.mark.parametrize("data", ["text\n", 5, None, ["a\n"]])
def test_what_is_no_text(data: Any) -> None:
    """Lines come as bytes: a str, or anything else, is refused."""
    for way in (fresh().add_lines, fresh().contains_lines):
        with pytest.raises(UnsupportedBatch, match="bytes"):
            way(data)
    with pytest.raises(UnsupportedBatch, match="contiguous"):
        fresh().add_lines(memoryview(b"a\nb\n")[::2])


def test_asking_a_read_only_filter(tmp_path: Any) -> None:
    """A mapped filter is asked for lines as any other, and takes none."""
    filter = fresh()
    filter.add_lines(b"a\n")
    filter.save(tmp_path / "filter")
    mapped = BloomFilter.load(tmp_path / "filter", mmap=True)
    assert mapped.contains_lines(b"a\nb\n") == (b"a\n", 4, 2, 1)
    with pytest.raises(ReadOnlyFilter):
        mapped.add_lines(b"b\n")
