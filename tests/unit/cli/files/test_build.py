"""`bloomery build` as people run it: what it prints, its exit codes, and that it goes on."""

import gzip
import json
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import building
from bloomery.building.checkpoint import Checkpoint, Progress
from bloomery.filters.files import key_type
from conftest import require
from waiting import wait_until

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]
OneLine = Callable[[bytes], str]


def test_lines_csv_and_sqlite(run: Run, tmp_path: Path) -> None:
    """Each makes a file that has the keys; the last line says how many, how large and how good."""
    require("pyarrow")
    (tmp_path / "l.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (tmp_path / "t.csv").write_text("id,url\n1,a\n2,b\n")
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE t (url TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [["a"], ["b"], [None]])
    connection.close()
    for number, place in enumerate(
        (
            ["--from", "l.gz"],
            ["--from", "t.csv", "--column", "url"],
            ["--from", "sqlite:///x.db", "--table", "t", "--column", "url"],
        )
    ):
        said = run("build", *place, "--out", f"{number}.bloom").stdout.decode()
        assert said.startswith(f"{number}.bloom: 2 keys"), said
        assert ("(1 NULLs left out)" in said) == (number == 2)
        assert run("contains", f"{number}.bloom", "a", "b", "c").stdout == b"a\nb\n"


def test_json_and_kinds(run: Run, tmp_path: Path) -> None:
    """The figures by name; the options of a kind are those of `create`."""
    done = run(
        *("build", "--from", "-", "-o", "x", "-n", "1000", "--json", "--kind", "counting"),
        *("--counter-bits", "8", "--hasher", "siphash", "--seed", "0x5eed"),
        stdin=b"a\nb\na\n",
    )
    figures = json.loads(done.stdout)
    assert figures["keys"] == 3
    assert (figures["kind"], figures["capacity"], figures["saturated"]) == ("counting", 1000, False)
    made = bloomery.CountingBloomFilter.load(tmp_path / "x")
    assert (made.count("a"), made.seed, made.info()["counter_bits"]) == (2, 0x5EED, 8)


def test_more_keys_than_room_is_said(run: Run, one_line: OneLine) -> None:
    """The file is there and denies nothing; exit code 1 and a line say that it errs more often."""
    keys = b"".join(b"%d\n" % number for number in range(5000))
    done = run("build", "--from", "-", "-o", "x", "-n", "500", stdin=keys, code=1)
    said = one_line(done.stderr)
    assert "was made for 500" in said
    assert "larger --capacity" in said
    assert run("contains", "-c", "x", stdin=keys).stdout == b"5000\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "none.txt"], "none.txt: No such file"),
        (["--from", "-"], "standard input cannot be counted"),
        (["--from", "-", "-n", "9", "--regions", "5"], "kind bloom takes no such option"),
        (["--from", "-", "-n", "9", "--kind", "bank"], "'bank' is not one of 'bloom'"),
        (["--from", "here.txt", "--column", "a"], "columns is not for a file of lines"),
        (["--from", "mysql://u:secret@h/d", "--query", "SELECT 1"], "mysql://… is not read"),
        (["--from", "here.txt", "-o", "here.txt"], "here.txt: is there already; --force"),
        (["--from", "here.txt", "-o", "none/x"], "none/x: No such file or directory"),
    ],
)
def test_mistakes_are_one_line(
    run: Run, one_line: OneLine, tmp_path: Path, arguments: list[str], said: str
) -> None:
    """What was given and what is right; never a secret."""
    (tmp_path / "here.txt").write_text("a\n")
    message = one_line(run("build", "-o", "out", *arguments, code=2).stderr)
    assert said in message
    assert "secret" not in message
    assert not (tmp_path / "out").exists()


def wait_for(path: Path, before: bytes | None, process: subprocess.Popen[bytes]) -> bytes:
    """What a file holds once it is there, and something else than before."""

    def changed() -> bool:
        assert process.poll() is None, process.communicate()
        return path.exists() and path.read_bytes() not in (b"", before)

    assert wait_until(changed, pause=0.001), "nothing was kept"
    return path.read_bytes()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed_again_and_again_it_ends_with_every_key(
    run: Run, start: Start, tmp_path: Path, how: signal.Signals
) -> None:
    """Killed three times, each time further on: the file appears only when it is whole, with each
    key once, and nothing else is left."""
    arguments = ["build", "--out", "out", "--checkpoint", "0", "--kind", "counting", "-n", "400000"]
    for number in range(40):  # 20 MB, each file a batch
        name = f"{number:02}.txt"
        lines = b"".join(b"%d-%d-%s\n" % (number, n, b"x" * 240) for n in range(2000))
        (tmp_path / name).write_bytes(lines)
        arguments += ["--from", name]
    kept: bytes | None = None
    for _ in range(3):
        process = start(*arguments)
        kept = wait_for(tmp_path / "out.resume", kept, process)
        process.send_signal(how)
        _, stderr = process.communicate(timeout=60)
        if how == signal.SIGTERM:
            assert process.returncode == 128 + how
            assert stderr == b"bloomery: interrupted; the same command goes on from where it was\n"
            kept = (tmp_path / "out.resume").read_bytes()
        assert not (tmp_path / "out").exists()
    assert json.loads(kept or b"")["progress"]["rows"] > 0
    said = run(*arguments).stdout
    assert said.startswith(b"out: 80,000 keys")
    assert not [name for name in os.listdir(tmp_path) if name.startswith((".out", "out."))]
    made = bloomery.CountingBloomFilter.load(tmp_path / "out")
    keys = [f"{number}-{n}-{'x' * 240}" for number in range(40) for n in range(0, 2000, 50)]
    counts = [made.count(key) for key in keys]
    assert min(counts) == 1
    assert sum(count > 1 for count in counts) < len(counts) * 0.03  # by chance, as at any 1%


def test_other_arguments_are_refused_by_name(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """And the line says how to begin anew."""
    (tmp_path / "a.txt").write_text("a\n")
    other = Checkpoint(tmp_path / "out", {"kind": "cuckoo"})
    other.save(bloomery.CuckooFilter(10), Progress())
    message = one_line(run("build", "--from", "a.txt", "-o", "out", code=2).stderr)
    assert "kind" in message
    assert "--restart" in message
    run("build", "--from", "a.txt", "-o", "out", "--restart")


def test_the_bar_shows_rows_and_rate(tmp_path: Path) -> None:
    """On a terminal there is a bar with rows, rate and time left; with --quiet there is none."""
    import pty
    import sys

    (tmp_path / "l.txt").write_bytes(b"".join(b"%d\n" % n for n in range(1_000_000)))
    program = (
        "import bloomery.cli.progress as p; p._PATIENCE = p._INTERVAL = 0\n"
        "import sys; from bloomery.cli import main; sys.exit(main())"
    )
    shown = {}
    for quiet in ([], ["--quiet"]):
        reader, writer = pty.openpty()
        command = [sys.executable, "-c", program, "build", "--from", "l.txt", "-f", "-o", "x"]
        process = subprocess.Popen(
            [*command, *quiet],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=writer,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        )
        os.close(writer)
        text = b""
        try:
            while piece := os.read(reader, 65_536):
                text += piece
        except OSError:  # the other end is closed
            pass
        os.close(reader)
        assert process.wait(60) == 0, text.decode()
        shown[bool(quiet)] = text.decode()
    assert "rows/s" in shown[False]
    bars = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown[False])
    assert max(len(line) for line in re.split(r"[\r\n]+", bars)) <= 80
    assert "\n" not in bars.rstrip()  # each is drawn over the one before
    assert "0:00:0" in shown[False]
    assert shown[True] == ""


def test_as_many_rows_as_room_never_fail(run: Run, tmp_path: Path) -> None:
    """Rows that were counted fit, however many keys the bits look like."""
    full = bloomery.BloomFilter(40)
    crowd: list[str] = []
    for number in range(100_000):  # keys that share no bit: there look to be more of them
        before = full.fill_ratio
        alone = full.copy()
        alone.add(f"k{number}")
        if round((alone.fill_ratio - before) * full.num_bits) == full.num_hashes:
            full, crowd = alone, [*crowd, f"k{number}"]
        if len(crowd) == 40:
            break
    assert full.saturated
    (tmp_path / "l.txt").write_text("\n".join(crowd))
    done = run("build", "--from", "l.txt", "-o", "x.bloom", "--json")
    assert not json.loads(done.stdout)["saturated"]
    assert done.stderr == b""


def test_a_database_file_is_not_read_as_lines(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """SQLite's file is known by its first bytes, and the line says what to write."""
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE t (url TEXT)")
    connection.close()
    for more in ([], ["--table", "t", "--column", "url"]):
        said = one_line(run("build", "--from", "shop.db", *more, "-o", "x", code=2).stderr)
        assert "sqlite:///shop.db" in said
    assert not (tmp_path / "x").exists()


def test_lines_of_ints(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """With a type, lines are ints, and the file says so to those who ask it."""
    (tmp_path / "l.txt").write_text("5\n-7\n")
    run("build", "--from", "l.txt", "--type", "int", "-o", "n.bloom")
    assert key_type(tmp_path / "n.bloom") == "int"
    assert run("contains", "n.bloom", "--", "5", "-7", "+5", "6").stdout == b"5\n-7\n+5\n"
    (tmp_path / "l.txt").write_text("5\nabc\n")
    said = one_line(run("build", "--from", "l.txt", "--type", "int", "-o", "x", code=2).stderr)
    assert "l.txt: 'abc' is not a whole number" in said


def test_what_the_keys_are_survives_a_stop(tmp_path: Path) -> None:
    """A build that goes on says what all its keys are; one of an older version says nothing."""
    rows = ["1\n2\n", "3\n"]
    (tmp_path / "l.txt").write_text("".join(rows))
    source = building.open_rows(str(tmp_path / "l.txt"))
    identity = {**source.identity, "kind": "bloom", "capacity": None, "nulls": "skip"}
    for types, expected in ((["int"], None), (["str"], "str"), (None, None), ([], "str")):
        progress = Progress(position=[0, 4], rows=2)
        if types is not None:
            progress.key_types = types
        Checkpoint(tmp_path / "out", identity).save(bloomery.BloomFilter(3), progress)
        building.build(source, tmp_path / "out")
        assert key_type(tmp_path / "out") == expected
