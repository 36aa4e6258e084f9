"""Names as text: readable where they can be, all different, and back again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.errors import InvalidParameter
from bloomery.names import LONGEST, printable, unprintable


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"users:seen", "users:seen"),
        ("café ☕".encode(), "café ☕"),
        (b"", ""),
        (b"a\\b", "a\\\\b"),
        (b"\\x00", "\\\\x00"),
        (b"a\x00\n\x7f", "a\\x00\\x0a\\x7f"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),  # a lone surrogate, which is no UTF-8
        ("\u2028\u202e".encode(), "\\xe2\\x80\\xa8\\xe2\\x80\\xae"),
    ],
)
def test_a_name_is_shown_as_people_can_read_it(name: bytes, text: str) -> None:
    """Printable characters stay, a backslash is doubled, every other byte is \\xNN."""
    assert printable(name) == text
    assert unprintable(text) == name


@given(st.binary(max_size=200))
def test_every_name_comes_back(name: bytes) -> None:
    """What is shown is printable, and read back it is the name."""
    text = printable(name)
    assert text.isprintable()
    assert unprintable(text) == name


@pytest.mark.parametrize(
    "name",
    [b"a" * (LONGEST + 1), b"\0" * LONGEST, "☕".encode() * LONGEST, b"\xff" * 20_000_000],
    ids=["one too many", "long when shown", "wide", "20 MB"],
)
def test_a_long_name_is_cut_but_its_own(name: bytes) -> None:
    """A name too long for an index is cut; names that differ at their end stay different."""
    text = printable(name)
    assert len(text.encode()) <= LONGEST
    assert text != printable(name + b"x")
    assert text.startswith(printable(name[:6]))
    with pytest.raises(InvalidParameter, match="cannot be read back"):
        unprintable(text)


def test_the_longest_name_that_is_whole() -> None:
    """Up to LONGEST bytes nothing is cut."""
    assert printable(b"a" * LONGEST) == "a" * LONGEST


@pytest.mark.parametrize("text", ["\\", "\\x0", "\\xZZ", "a\\q", "\\x41", "\n", "\ud800", "\\xFF"])
def test_text_that_is_no_printed_name_is_refused(text: str) -> None:
    """Only what `printable` gives is read back, so that a name has one text."""
    with pytest.raises(InvalidParameter, match="no printed name"):
        unprintable(text)
