"""`bloomery diff` and `bloomery count`: what is in B alone, and how many there are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter, CountingBloomFilter

Run = Callable[..., Any]


@pytest.mark.parametrize("options", [[], ["--exact"], ["-n", "1000"]])
def test_lines_of_b_that_a_lacks(run: Run, tmp_path: Path, options: list[str]) -> None:
    """In B's order, as often as they come, to the byte."""
    (tmp_path / "a").write_bytes(b"one\ntwo\n\xff\n")
    (tmp_path / "b").write_bytes(b"three\ntwo\n\xff\nthree\n\nfour")
    assert run("diff", *options, "a", "b").stdout == b"three\nthree\n\nfour\n"
    assert run("diff", *options, "-", "b", stdin=b"three\n\n").stdout == b"two\n\xff\nfour\n"
    assert run("diff", *options, "a", "a").stdout == b""
    assert run("diff", *options, "a", "-", stdin=b"x\none\n").stdout == b"x\n"


def test_a_may_be_a_saved_filter(run: Run, tmp_path: Path) -> None:
    """Of any kind that has text for keys."""
    for filter in (BloomFilter(100), CountingBloomFilter(100)):
        filter.update(["one", "two"])
        filter.save(tmp_path / "seen.bloom")
        assert run("diff", "seen.bloom", "-", stdin=b"one\nthree\n").stdout == b"three\n"
    done = run("diff", "--exact", "seen.bloom", "-", stdin=b"", code=2)
    assert b"--exact needs the lines" in done.stderr


def test_by_field_and_summed_up(run: Run, tmp_path: Path) -> None:
    """A field of JSON on both sides; lines without it come out of B."""
    (tmp_path / "a").write_bytes(b'{"u":"x"}\n{"u":"y"}\n')
    data = b'{"n":1,"u":"x"}\n{"u":"z"}\n{}\n'
    done = run("diff", "--key", ".u", "--json", "a", "-", stdin=data)
    assert done.stdout == b'{"u":"z"}\n{}\n'
    summary = json.loads(done.stderr.splitlines()[-1])
    assert summary == {
        "lines": 3, "absent": 1, "without_key": 1, "exact": False, "error_rate": 1e-6
    }  # fmt: skip


def test_missing_files_fail_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    """A and B, and both of them standard input."""
    (tmp_path / "a").write_bytes(b"one\n")
    for names in (("a", "nowhere"), ("nowhere", "a")):
        assert b"nowhere: No such file" in run("diff", *names, code=2).stderr
    assert b"only one of A and B" in run("diff", "-", "-", code=2).stderr


def test_distinct_lines_are_counted(run: Run) -> None:
    """Never too many, and at most the error rate too few."""
    data = b"".join(b"%d\n" % (n % 20_000) for n in range(50_000))
    counts = json.loads(run("count", "--json", stdin=data).stdout)
    assert counts["lines"] == 50_000
    assert 20_000 * 0.999 - 30 <= counts["distinct"] <= 20_000
    assert run("count", stdin=b"a\nb\na").stdout == b"2 distinct of 3 lines (at most 0.1% more)\n"
    assert json.loads(run("count", "--json", stdin=b"").stdout)["distinct"] == 0
