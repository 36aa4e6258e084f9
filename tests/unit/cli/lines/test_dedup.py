"""`bloomery dedup`: every line once, whatever the input is made of."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from conftest import first_fast
from unit.cli.conftest import COMMAND, environment

Run = Callable[..., Any]

# Runs a command and says the most memory it took, in KiB. A process of its own, as a child begins
# with the peak of the one that starts it: from here that is the peak of all tests before.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def first_occurrences(data: bytes) -> bytes:
    """What dedup must print, by the plain definition (and like awk: every line gets its end)."""
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return b"".join(line + b"\n" for line in dict.fromkeys(lines))


@pytest.mark.parametrize(
    "data",
    first_fast(
        [
            b"a\nb\n\na\n\xff\0\n\nb",
            b"",
            b"\n",
            b"\n\n\n",
            b"a\n",
            b"a",
            b"a\na",
            b"a\nb\na\nc\nb\n",
            b"a\r\na\n",
            b"\0\n\xff\xfe\n\0\n",
            b" a\na \na\n",
        ]
    ),
)
def test_small_inputs(run: Run, data: bytes) -> None:
    """Empty input, no line end at the end, empty and binary lines: the first occurrences."""
    done = run("dedup", stdin=data)
    assert done.stdout == first_occurrences(data)
    assert done.stderr == b""


@pytest.mark.slow
def test_a_large_input(run: Run, tmp_path: Path) -> None:
    """Several chunks of random binary lines give the first occurrences, from file and pipe."""
    rng = random.Random(7)
    lines = [rng.randbytes(rng.randrange(40)).replace(b"\n", b" ") for _ in range(100_000)]
    data = b"\n".join(rng.choices(lines, k=200_000))
    (tmp_path / "lines").write_bytes(data)
    wanted = first_occurrences(data)
    assert run("dedup", "lines").stdout == wanted
    assert run("dedup", stdin=data).stdout == wanted
    assert run("dedup", "-", stdin=data).stdout == wanted


def test_several_files_are_one_stream(run: Run, tmp_path: Path) -> None:
    """Files follow each other, and the end of a file ends a line."""
    (tmp_path / "one").write_bytes(b"a\nb")
    (tmp_path / "two").write_bytes(b"b\nc\n")
    assert run("dedup", "one", "-", "two", stdin=b"d\na\n").stdout == b"a\nb\nd\nc\n"


@pytest.mark.slow
@pytest.mark.parametrize("length", first_fast([1 << 20, (1 << 20) - 1, (1 << 20) + 1, 5_000_000]))
def test_a_line_longer_than_a_chunk(run: Run, tmp_path: Path, length: int) -> None:
    """A line longer than the chunk it is read in is a line like any other."""
    long = b"x" * length
    data = b"a\n" + long + b"\nb\n" + long + b"\na\n"
    (tmp_path / "lines").write_bytes(data)
    assert run("dedup", "lines").stdout == b"a\n" + long + b"\nb\n"
    assert run("dedup", stdin=data).stdout == b"a\n" + long + b"\nb\n"


def test_lines_come_out_as_they_come_in(start: Callable[..., Any]) -> None:
    """A slow stream is answered line by line, not when a buffer is full."""
    process = start("dedup")
    for line in (b"a\n", b"b\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == line
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """200 MB of duplicates pass through a process that may not hold half of that."""
    pytest.importorskip("resource")  # Windows has none
    data = b"".join(b"https://host.example/page/%d\n" % n for n in range(1000))
    with (tmp_path / "lines").open("wb") as file:
        for _ in range(200_000_000 // len(data)):
            file.write(data)
    command = [sys.executable, "-c", MEASURED, *COMMAND, "dedup", "lines", "-n", "10k"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, check=True, timeout=120
    )
    assert done.stdout == data
    peak = int(done.stderr)
    assert 1_000 < peak < 100_000


@pytest.mark.slow
def test_full_filter_warns_once(run: Run, tmp_path: Path) -> None:
    """More distinct lines than --capacity: one warning on stderr that says what to do."""
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(200_000)))
    done = run("dedup", "lines", "--capacity", "1000")
    text = done.stderr.decode()
    assert text.count("\n") == 1
    assert "1,000 distinct lines" in text
    assert "larger --capacity" in text


@pytest.mark.slow
def test_files_get_a_filter_that_is_large_enough(run: Run, tmp_path: Path) -> None:
    """The capacity estimated from samples holds the whole file: no warning."""
    lines = b"".join(b"https://host.example/%d\n" % n for n in range(150_000))
    (tmp_path / "lines").write_bytes(lines)
    done = run("dedup", "lines")
    assert done.stdout == lines
    assert done.stderr == b""


@pytest.mark.slow
def test_error_rate_is_the_share_of_lines_lost(run: Run) -> None:
    """A high rate drops lines and a low one does not: it is what --help says it is."""
    lines = b"".join(b"%d\n" % n for n in range(20_000))
    few = run("dedup", "--capacity", "20k", "--error-rate", "30%", stdin=lines).stdout
    assert len(few) < 0.97 * len(lines)
    assert run("dedup", "--capacity", "20k", "-e", "1e-9", stdin=lines).stdout == lines


@pytest.mark.slow
def test_silent_in_a_pipe(run: Run, tmp_path: Path) -> None:
    """Without a terminal there is no progress on stderr, with or without --quiet."""
    (tmp_path / "lines").write_bytes(b"a\n" * 3_000_000)
    assert run("dedup", "lines").stderr == b""
    assert run("dedup", "lines", "--quiet").stderr == b""


@pytest.mark.slow
def test_progress_on_a_terminal(start: Callable[..., Any], tmp_path: Path) -> None:
    """With stderr on a terminal a long run shows lines and rate there, and --quiet does not."""
    pty = pytest.importorskip("pty")
    import os
    import select
    import time

    shown, took = {}, 60.0
    for args in ((), ("--quiet",)):
        ours, theirs = pty.openpty()
        process = start("dedup", *args, stderr=theirs)
        os.close(theirs)
        seen, began = b"", time.monotonic()
        while b"lines/s" not in seen and time.monotonic() < began + took:
            process.stdin.write(b"line\n")
            process.stdin.flush()
            while select.select([ours], [], [], 0.1)[0]:
                seen += os.read(ours, 65536)
        took = time.monotonic() - began  # as long as the bar took, the quiet one shows nothing
        process.stdin.close()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        os.close(ours)
        shown[args] = seen
    assert b"lines/s" in shown[()]
    assert shown[("--quiet",)] == b""


def test_a_filter_that_is_just_full_is_not_overfull(run: Run, tmp_path: Path) -> None:
    """The keys of a filter that is there are estimated: that it may hold a few more than it is made
    for is no reason to warn, and that many more came is one."""
    path = tmp_path / "seen.bloom"
    lines = [f"line {i}" for i in range(1000)]
    for seed in range(100):
        filter = BloomFilter(len(lines), seed=seed)
        filter.update(lines)
        if filter.estimated_count > len(lines):
            break
    assert filter.estimated_count > len(lines)
    filter.save(path)
    done = run("dedup", "--filter", str(path), stdin="\n".join(lines).encode())
    assert (done.stdout, done.stderr) == (b"", b"")
    more = "\n".join(f"more {i}" for i in range(200)).encode()
    assert b"warning: more than the 1,000" in run("dedup", "--filter", str(path), stdin=more).stderr
