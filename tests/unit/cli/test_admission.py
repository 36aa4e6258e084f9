"""`bloomery admission` replays a trace, and says which lines it left out."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
TRACE = b"".join(b"%d /%s 10\n" % (n, key.encode()) for n, key in enumerate("ababxaybzab"))


def test_json(run: Run, tmp_path: Path) -> None:
    """Figures for each size, without admission and with it, from a compressed file."""
    (tmp_path / "t.gz").write_bytes(gzip.compress(TRACE))
    facts = json.loads(run("admission", "t.gz", "-c", "20", "-c", "1MB", "--json").stdout)
    hits = [(each["cache_bytes"], each["admission"], each["hits"]) for each in facts["caches"]]
    assert hits == [(20, False, 2), (20, True, 4), (10**6, False, 6), (10**6, True, 4)]
    assert facts["requests"] == 11


@pytest.mark.slow
def test_a_table_and_what_was_left_out(run: Run, one_line: Callable[[bytes], str]) -> None:
    """A table from standard input; a line that is none is counted, and named."""
    done = run("admission", "-", "--cache", "20", "--window", "1h", stdin=TRACE + b"no\n")
    text = done.stdout.decode()
    assert "11 requests for 5 objects of 50 bytes; 60% asked for once" in text
    assert "18.18%" in text
    assert "36.36%" in text
    assert one_line(done.stderr).startswith("1 line was left out; line 12 is b'no\\n'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["-", "-c", "20", "--strict"], TRACE + b"no\n", "line 12 is b'no\\n'; must be a time"),
        (["-", "-c", "20"], b"", "standard input has no requests: it is empty"),
        (["-", "-c", "20"], b"junk\n", "has no requests: line 1 is b'junk\\n'"),
        (["-", "-c", "0"], TRACE, "must be bytes above 0"),
        (["-"], TRACE, "Missing option '--cache'"),
        (["none.txt", "-c", "20"], b"", "none.txt: No such file"),
        (["-", "-c", "20", "--window", "soon"], TRACE, "window is 'soon'"),
    ],
)
def test_what_is_wrong_is_said(
    run: Run, one_line: Callable[[bytes], str], arguments: list[str], stdin: bytes, message: str
) -> None:
    """One line on standard error, and exit code 2."""
    done = run("admission", *arguments, stdin=stdin, code=2)
    assert message in one_line(done.stderr)
    assert not done.stdout
