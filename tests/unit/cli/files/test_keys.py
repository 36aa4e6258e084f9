"""Keys as text: what they are by --type, by the file, or by how they are written."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloomery
from bloomery.cli.files import keys
from bloomery.errors import InvalidParameter
from bloomery.filters.files import key_type, save

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]
SOME_ID = UUID("6f2d1a3e-0c4b-4c1d-9d55-0a1b2c3d4e5f")


@pytest.fixture
def ints(tmp_path: Path) -> Path:
    """A file that says that its keys, 5 and 7, are ints."""
    made = bloomery.BloomFilter(1000, 1e-9)
    made.update([5, 7])
    save(made, tmp_path / "n.bloom", "int")
    return tmp_path / "n.bloom"


@pytest.mark.slow
def test_a_file_of_ints_is_asked_for_ints(run: Run, ints: Path) -> None:
    """As arguments, as lines, inverted and counted; and what is added is an int."""
    assert run("contains", "n.bloom", "5", "6", "7").stdout == b"5\n7\n"
    assert run("contains", "n.bloom", stdin=b"5\n6\n7").stdout == b"5\n7\n"
    assert run("contains", "-v", "n.bloom", stdin=b"5\n6\n").stdout == b"6\n"
    assert run("add", "n.bloom", "5", "8", "--new").stdout == b"8\n"
    run("add", "n.bloom", stdin=b"9\n-10\n")
    assert all(bloomery.BloomFilter.load(ints).contains_many([5, 7, 8, 9, -10]))
    assert key_type(ints) == "int"


@pytest.mark.slow
def test_what_is_no_int_is_an_error(run: Run, one_line: OneLine, ints: Path) -> None:
    """A text that is no key of the file's type is an error, and nothing is added."""
    before = ints.read_bytes()
    for command in ("contains", "add"):
        message = one_line(run(command, "n.bloom", "8", "x", code=2).stderr)
        assert "'x' is not a whole number" in message
        assert "x" in one_line(run(command, "n.bloom", stdin=b"8\nx\n", code=2).stderr)
    assert ints.read_bytes() == before


@pytest.mark.slow
def test_keys_of_two_types(run: Run, ints: Path) -> None:
    """Text that is added by --type is found beside the ints: the file says nothing any more."""
    run("add", "n.bloom", "--type", "str", "x", "12")
    assert key_type(ints) is None
    assert run("contains", "n.bloom", "5", "x", "12", "13").stdout == b"5\nx\n12\n"
    assert run("contains", "n.bloom", "--type", "str", "5", "12").stdout == b"12\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scalable", "cuckoo", "static"])
def test_a_file_that_says_nothing_is_asked_for_each(run: Run, tmp_path: Path, kind: str) -> None:
    """A no is certain without a --type too: for text, ints, UUIDs and times."""
    moment = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
    held: list[Any] = [5, -6, "7", SOME_ID, moment, "x"]
    classes = {"scalable": bloomery.ScalableBloomFilter, "cuckoo": bloomery.CuckooFilter}
    if kind == "static":
        filter: Any = bloomery.StaticFilter.build(held, 1e-9)
    else:
        filter = classes[kind](1000, error_rate=1e-6)
        filter.update(held)
    filter.save(tmp_path / "f")
    texts = ["5", "-6", "7", str(SOME_ID), "2024-02-29T12:00:00Z", "x"]
    assert run("contains", "f", "--", *texts, "8").stdout.decode().split("\n")[:-1] == texts
    lines = "\n".join([*texts, "8"]).encode()
    assert run("contains", "f", stdin=lines).stdout.decode().split("\n")[:-1] == texts
    assert run("contains", "-v", "f", stdin=lines).stdout == b"8\n"


@pytest.mark.slow
def test_a_bank_is_asked_for_each(run: Run, tmp_path: Path) -> None:
    """Of the users too: a program may have numbered them."""
    bank = bloomery.FilterBank(error_rate=1e-6)
    bank.add(1, 5)
    bank.add("ada", "6")
    bank.save(tmp_path / "b")
    lines = b"1\t5\n1\t6\nada\t6\nada\t5\n"
    assert run("contains", "b", stdin=lines).stdout == b"1\t5\nada\t6\n"
    assert run("contains", "b", "--user", "1", "5", "6").stdout == b"5\n"
    run("add", "b", "--user", "ada", "--type", "int", "5")
    assert run("contains", "b", "--user", "ada", "--type", "int", "5", "6").stdout == b"5\n"


@pytest.mark.slow
def test_removing_takes_a_type(run: Run, tmp_path: Path) -> None:
    """Without one, text is removed: what was never added is not tried."""
    made = bloomery.CuckooFilter(100, 1e-6)
    made.add(5)
    made.save(tmp_path / "c")
    run("remove", "c", "5", code=1)
    assert run("remove", "-v", "c", "--type", "int", "5").stdout == b"5\n"


@pytest.mark.slow
def test_create_and_dedup(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """`create` says what keys will be, text unless it is told; `dedup` keeps text alone."""
    run("create", "n", "-n", "100", "--type", "int")
    run("add", "n", "5")
    assert 5 in bloomery.BloomFilter.load(tmp_path / "n")
    assert "type int" in one_line(run("dedup", "--filter", "n", stdin=b"5\n", code=2).stderr)
    run("create", "t", "-n", "100")
    assert key_type(tmp_path / "t") == "str"
    run("dedup", "--filter", "d", stdin=b"5\n")
    assert key_type(tmp_path / "d") == "str"
    message = one_line(run("create", "c", "--kind", "cuckoo", "--type", "int", code=2).stderr)
    assert "--type" in message


@pytest.mark.slow
def test_keys_of_several_columns_are_no_text(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """They are asked for in Python, and the line says so."""
    made = bloomery.BloomFilter(10)
    made.add(("a", 1))
    save(made, tmp_path / "t", "tuple")
    assert "in Python" in one_line(run("contains", "t", "a", code=2).stderr)


def test_a_number_too_long_to_read_is_no_certain_no(
    run: Run, one_line: OneLine, tmp_path: Path
) -> None:
    """An int of more digits than Python reads may be in the filter: its type has to be named."""
    made, digits = bloomery.BloomFilter(10, 1e-9), b"1" + b"0" * 5000
    made.add(10**5000)
    made.save(tmp_path / "f")
    message = one_line(run("contains", "-v", "f", stdin=digits, code=2).stderr)
    assert "5,001 digits" in message
    assert run("contains", "-v", "--type", "str", "f", stdin=digits).stdout == digits + b"\n"


def test_forms_of_a_text() -> None:
    """The text comes first, then every other key that is written like it."""
    assert keys.forms(b"x") == [b"x"]
    assert keys.forms(b"-007") == [b"-007", -7]
    with pytest.raises(InvalidParameter, match="5,000 digits"):  # a no would not be certain
        keys.forms(b"9" * 5000)
    assert keys.forms(str(SOME_ID).upper().encode()) == [str(SOME_ID).upper().encode(), SOME_ID]
    assert keys.forms(b"2024-02-30 12:00") == [b"2024-02-30 12:00"]
    assert keys.forms(b"2024-02-29 12:00") == [b"2024-02-29 12:00", datetime(2024, 2, 29, 12)]


@pytest.mark.parametrize(
    "text",
    ["12:00+00", "12:00:00Z", "12:00:00.0+0000", "12:00:00.000000000+00:00", "13:30+01:30"],
)
def test_times_as_databases_write_them(text: str) -> None:
    """A time in any usual form is the same key, by every Python."""
    written = f"2024-02-29 {text}".encode()
    assert keys.forms(written) == [written, datetime(2024, 2, 29, 12, tzinfo=timezone.utc)]


TEXTS = st.one_of(
    st.from_regex(rb"[+-]?[0-9]{1,5}|[a-z0-9 -]{0,9}", fullmatch=True),
    st.uuids().map(lambda one: str(one).encode()),
    st.datetimes(timezones=st.sampled_from([None, timezone.utc])).map(lambda t: str(t).encode()),
)


@given(lines=st.lists(TEXTS, min_size=1), end=st.booleans())
def test_no_form_of_a_line_is_overlooked(lines: list[bytes], end: bool) -> None:
    """Lines are taken for text as a whole only if each of them is nothing else."""
    chunk = memoryview(b"\n".join(lines) + (b"\n" if end else b""))
    assert keys.are_text(None, chunk) == all(len(keys.forms(line)) == 1 for line in lines)
