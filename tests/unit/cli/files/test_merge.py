"""`bloomery merge`: one filter of several, and clear words where that cannot be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery.filters.files import key_type, save

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]


def test_all_keys_of_all_files(run: Run, tmp_path: Path) -> None:
    """The new file denies no key of any, and the old ones stay; nothing is replaced unasked."""
    for name in ("a", "b", "c"):
        run("create", name, "-n", "100")
        run("add", name, f"of {name}", "of all")
    before = (tmp_path / "a").read_bytes()
    assert run("merge", "out", "a", "b", "c").stdout == b"out: about 4 keys, room for 100\n"
    merged = bloomery.BloomFilter.load(tmp_path / "out", verify=True)
    assert all(merged.contains_many(["of a", "of b", "of c", "of all"]))
    assert (tmp_path / "a").read_bytes() == before
    run("merge", "out", "a", "b", code=2)
    run("merge", "--force", "a", "a", "b")
    assert "of b" in bloomery.BloomFilter.load(tmp_path / "a")


def test_what_keys_are_is_kept_if_all_files_say_the_same(run: Run, tmp_path: Path) -> None:
    """Else the file says nothing, and is asked for each."""
    for name, said in (("a", "int"), ("b", "int"), ("c", None)):
        save(bloomery.BloomFilter(100), tmp_path / name, said)
    run("merge", "ab", "a", "b")
    run("merge", "abc", "a", "b", "c")
    assert (key_type(tmp_path / "ab"), key_type(tmp_path / "abc")) == ("int", None)


def test_what_cannot_be_merged(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """The line names both files and what differs, or what the kind cannot do."""
    run("create", "a", "-n", "100")
    run("create", "b", "-n", "100000")
    run("create", "c", "--kind", "cuckoo", "-n", "100")
    message = one_line(run("merge", "out", "a", "b", code=2).stderr)
    assert "a and b: " in message
    assert "num_bits" in message
    assert "CuckooFilter" in one_line(run("merge", "out", "c", "c", code=2).stderr)
    assert not (tmp_path / "out").exists()


def test_more_keys_than_room(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """A merged filter with more keys than it was made for is there, with a warning and code 1."""
    for name, start in (("a", 0), ("b", 1000)):
        made = bloomery.BloomFilter(1000)
        made.update(str(number) for number in range(start, start + 1000))
        save(made, tmp_path / name)
    assert "wrong maybes" in one_line(run("merge", "out", "a", "b", code=1).stderr)
    assert "1999" in bloomery.BloomFilter.load(tmp_path / "out")
