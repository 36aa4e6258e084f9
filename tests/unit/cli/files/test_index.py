"""`bloomery index`: a folder of files, indexed and searched from the shell."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import require
from unit.cli.conftest import environment

require("typer")
pytestmark = pytest.mark.slow

Run = Callable[..., Any]


def folder(tmp_path: Path, files: int = 3) -> None:
    """CSV files of ten rows each."""
    (tmp_path / "data").mkdir()
    for file in range(files):
        rows = "".join(f"{file * 10 + n},u{file * 10 + n}\n" for n in range(10))
        (tmp_path / "data" / f"{file}.csv").write_text(f"id,name\n{rows}")


def test_what_is_built_is_found(run: Run, tmp_path: Path) -> None:
    """Rows as JSON lines or CSV, parts by their files; 1 if there are none."""
    require("pyarrow")
    folder(tmp_path)
    done = run("index", "build", "data", "--columns", "id,name", "--fp-chance", "0.1%")
    assert b"3 files, 30 rows, 6 filters" in done.stderr
    assert run("index", "find", "data", "id=12").stdout == b'{"id": 12, "name": "u12"}\n'
    shown = run("index", "find", "data", "name=u29", "--show", "id", "--format", "csv")
    assert shown.stdout == b'"id"\n29\n'
    parts = run("index", "find", "data", "id=12", "name=u12", "--format", "parts").stdout
    assert parts == b"1.csv part 0 (maybe)\n"
    assert run("index", "find", "data", "id=99", code=1).stdout == b""
    assert run("index", "find", "data", "id=12", "name=u13", code=1).stdout == b""


def test_times_that_python_does_not_have_are_printed(run: Run, tmp_path: Path) -> None:
    """The row of the year 148,000 is no damage, and no crash."""
    pa, pq = require("pyarrow"), require("pyarrow.parquet")
    times = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us"))
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"ts": times, "n": [1, 2]}), tmp_path / "data" / "a.parquet")
    run("index", "build", "data", "--columns", "n")
    row = b'{"ts": 4611686018427387904, "n": 2}\n'
    assert run("index", "find", "data", "n=2").stdout == row
    assert run("parquet", "find", "data/a.parquet", "n", "2").stdout == row


def test_a_column_without_values_is_told(run: Run, tmp_path: Path) -> None:
    """A name that was mistyped would find nothing, and nobody would know why."""
    require("pyarrow")
    folder(tmp_path)
    done = run("index", "build", "data", "--columns", "id,nmae")
    assert b"no row has a value in the column 'nmae': is that its name?" in done.stderr
    assert b"'id'" not in done.stderr


def test_it_is_built_again_where_files_came(run: Run, tmp_path: Path) -> None:
    """New files are searched at once, and indexed by the same command."""
    require("pyarrow")
    folder(tmp_path)
    build = ("index", "build", "data", "--columns", "id", "--index", "idx")
    run(*build)
    (tmp_path / "data" / "new.csv").write_text("id,name\n77,new\n")
    found = run("index", "find", "data", "id=77", "--index", "idx", "--format", "parts")
    assert found.stdout == b"new.csv (new)\n"
    said = run("index", "verify", "data", "--index", "idx")
    assert said.stdout == b"changed since it was indexed: new.csv\n"
    assert b"4 files" in run(*build).stderr
    assert run(*build, "--quiet", "--rebuild").stderr == b""
    facts = json.loads(run("index", "stats", "data", "--index", "idx", "--json").stdout)
    assert (facts["files"], facts["rows"], facts["columns"]) == (4, 31, ["id"])
    assert b"fp chance" in run("index", "stats", "idx").stdout
    assert run("index", "verify", "idx").stdout == b""


def test_errors_say_what_would_be_right(run: Run, tmp_path: Path) -> None:
    """One line each: no index, no such column, no condition, a damaged index."""
    require("pyarrow")
    folder(tmp_path)
    assert b"index build" in run("index", "find", "data", "id=1", code=2).stderr
    run("index", "build", "data", "--columns", "id")
    assert b"not indexed" in run("index", "find", "data", "name=x", code=2).stderr
    assert b"COLUMN=VALUE" in run("index", "find", "data", "id", code=2).stderr
    assert b"rebuild" in run("index", "build", "data", "--columns", "name", code=2).stderr
    assert b"no folder" in run("index", "build", "none", "--columns", "id", code=2).stderr
    (pack,) = (tmp_path / "data" / ".bloomery-index").glob("*.pack")
    pack.write_bytes(b"x" * pack.stat().st_size)
    assert b"rebuild" in run("index", "find", "data", "id=1", code=2).stderr
    assert b"damaged: " in run("index", "verify", "data", code=1).stdout


# The program, with a bar that is due at once.
IMPATIENT = """
import sys
from bloomery.cli import main, progress
progress._PATIENCE = 0.0
raise SystemExit(main(sys.argv[1:]))
"""


def test_bar_shows_progress(tmp_path: Path) -> None:
    """A build that takes long enough draws a progress bar on a terminal."""
    require("pyarrow")
    folder(tmp_path, 20)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", IMPATIENT, "index", "build", "data", "--columns", "id"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError:  # the terminal is gone, and so is the process
        pass
    os.close(ours)
    assert process.wait() == 0, shown
    assert b"of 20 files" in shown
