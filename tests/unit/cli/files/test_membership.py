"""`bloomery add` and `bloomery contains`."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]


@pytest.fixture
def made(tmp_path: Path) -> str:
    """A filter file with three keys in it."""
    filter = BloomFilter(1000, 1e-6)
    filter.update(["a", "b", "c"])
    filter.save(tmp_path / "f.bloom")
    return "f.bloom"


def test_add_is_silent_and_kept(run: Run, made: str, tmp_path: Path) -> None:
    """add prints nothing, and the library finds the keys in the file."""
    assert run("add", made, "d").stdout == b""
    assert "d" in BloomFilter.load(tmp_path / made)


def test_add_new_prints_the_new_ones(run: Run, made: str) -> None:
    """--new prints the keys that were definitely new, each once, in order."""
    assert run("add", made, "x", "a", "x", "y", "--new").stdout == b"x\ny\n"
    assert run("add", made, "--new", stdin=b"y\nz\na\nz\n").stdout == b"z\n"


def test_keys_are_bytes_as_they_are(run: Run, made: str) -> None:
    """A key that is not UTF-8 is the same key as an argument and as a line."""
    run("add", made, b"\xff\xfe")
    assert run("contains", made, stdin=b"\xff\xfe\nno\n").stdout == b"\xff\xfe\n"
    assert run("contains", made, b"\xff\xfe").stdout == b"\xff\xfe\n"


def test_a_key_that_looks_like_an_option(run: Run, made: str) -> None:
    """After -- everything is a key."""
    run("add", made, "--", "--new")
    assert run("contains", made, "--", "--new", "-v").stdout == b"--new\n"


def test_contains_prints_possible_members(run: Run, made: str) -> None:
    """The keys that may be members are printed, the others are not."""
    assert run("contains", made, "a", "nope", "c").stdout == b"a\nc\n"
    assert run("contains", made, stdin=b"nope\nb\na").stdout == b"b\na\n"


def test_contains_exit_codes_are_greps(run: Run, made: str) -> None:
    """0 when a key was selected, 1 when none was, 2 on an error."""
    run("contains", made, "a", code=0)
    run("contains", made, "nope", code=1)
    run("contains", made, stdin=b"", code=1)
    run("contains", "missing.bloom", "a", code=2)


def test_invert(run: Run, made: str) -> None:
    """-v selects what is definitely not a member, and the exit code follows."""
    assert run("contains", "-v", made, "a", "nope").stdout == b"nope\n"
    assert run("contains", "--invert", made, stdin=b"a\nnope\n").stdout == b"nope\n"
    run("contains", "-v", made, "a", "b", code=1)


def test_count(run: Run, made: str) -> None:
    """-c prints only how many, also when that is none."""
    assert run("contains", "-c", made, "a", "b", "nope").stdout == b"2\n"
    assert run("contains", "--count", made, stdin=b"x\ny\n", code=1).stdout == b"0\n"


def test_quiet(run: Run, made: str) -> None:
    """-q prints nothing and answers by the exit code."""
    assert run("contains", "-q", made, "a").stdout == b""
    assert run("contains", "--quiet", made, stdin=b"x\na\n").stdout == b""
    run("contains", "-q", made, "nope", code=1)


def test_quiet_stops_at_the_first(start: Callable[..., Any], made: str) -> None:
    """-q does not wait for the rest of a stream once it has its answer."""
    process: subprocess.Popen[bytes] = start("contains", "-q", made)
    assert process.stdin is not None
    process.stdin.write(b"a\n")
    process.stdin.flush()
    assert process.wait(timeout=60) == 0
    process.communicate()


@pytest.mark.parametrize("command", ["add", "contains", "info"])
def test_a_missing_file_says_how_to_make_one(run: Run, one_line: OneLine, command: str) -> None:
    """A missing filter is one line that names it and the command that makes one."""
    message = one_line(run(command, "no.bloom", code=2).stderr)
    assert message.startswith("no.bloom: No such file or directory")
    assert "bloomery create no.bloom" in message


@pytest.mark.slow
def test_two_adds_at_once_lose_no_key(start: Callable[..., Any], made: str, tmp_path: Path) -> None:
    """Processes that add to one file at the same time wait for each other."""
    processes = [start("add", made, f"key{n}") for n in range(6)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    kept = BloomFilter.load(tmp_path / made)
    assert all(f"key{n}" in kept for n in range(6))


def test_many_lines(run: Run, made: str) -> None:
    """More lines than fit into one chunk are all added and all found."""
    lines = b"".join(b"https://host.example/page/%d\n" % n for n in range(100_000))
    run("create", "g.bloom", "--capacity", "100k")
    run("add", "g.bloom", stdin=lines)
    assert run("contains", "g.bloom", stdin=lines).stdout == lines
    run("contains", "-v", "g.bloom", stdin=lines, code=1)
