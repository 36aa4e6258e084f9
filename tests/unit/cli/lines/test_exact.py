"""`dedup --exact` and `--window`: what a wrong maybe cannot drop, and what is forgotten."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_exact_drops_no_line(run: Run) -> None:
    """Every distinct line comes out, though the filter in front errs often enough to be seen."""
    data = b"".join(b"line %d\n" % (n % 20_000) for n in range(30_000))
    done = run("dedup", "--exact", "--json", stdin=data)
    assert done.stdout == b"".join(b"line %d\n" % n for n in range(20_000))
    assert json.loads(done.stderr)["exact"] is True


def test_exact_goes_on_where_it_ended(run: Run, tmp_path: Path) -> None:
    """Keys are kept in FILE between runs, by field too; a filter there is refused."""
    first = run("dedup", "--exact", "-f", "seen", "--key", ".u", stdin=b'{"u":1}\n{"u":"x"}\n')
    assert first.stdout.count(b"\n") == 2
    again = run("dedup", "--exact", "--across-runs", "seen", stdin=b"1\nx\ny\n")
    assert again.stdout == b"y\n"
    run("create", "f.bloom", "-n", "100")
    done = run("dedup", "--exact", "-f", "f.bloom", stdin=b"a\n", code=2)
    assert b"--exact needs the keys" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_did_not_come_out_is_not_kept(run: Run) -> None:
    """After a failed write the next run brings the same lines again."""
    with open("/dev/full", "wb") as full:
        done = run("dedup", "--exact", "-f", "seen", stdin=b"a\nb\n", code=2, stdout=full)
    assert b"will come out again" in done.stderr
    assert run("dedup", "--exact", "-f", "seen", stdin=b"a\nb\n").stdout == b"a\nb\n"


def test_a_window_is_kept_with_the_filter(run: Run) -> None:
    """The file forgets by time; another window for it is refused, none is fine."""
    assert run("dedup", "--window", "1h", "-f", "w.bloom", stdin=b"a\na\nb\n").stdout == b"a\nb\n"
    assert run("dedup", "-f", "w.bloom", stdin=b"b\nc\n").stdout == b"c\n"
    assert json.loads(run("info", "w.bloom", "--json").stdout)["window"] == 3600
    done = run("dedup", "--window", "2h", "-f", "w.bloom", stdin=b"", code=2)
    assert b"leave --window out" in done.stderr
    done = run("dedup", "--window", "soon", stdin=b"", code=2)
    assert b"window is 'soon'" in done.stderr


def test_what_exact_made_is_not_taken_for_a_filter(run: Run) -> None:
    """The error says what is missing, not that the file is damaged."""
    run("dedup", "--exact", "--filter", "seen", stdin=b"a\n")
    done = run("dedup", "--filter", "seen", stdin=b"a\n", code=2)
    assert b"seen was made with --exact: give that again" in done.stderr
