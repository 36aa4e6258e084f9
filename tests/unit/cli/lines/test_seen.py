"""What `dedup` and `diff` remember: more lines than was estimated, and who makes a kept file."""

import copy
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery._native import LineKey
from bloomery.cli.lines.seen import Fingerprints, GrowingLines
from bloomery.errors import InvalidParameter
from unit.cli.conftest import COMMAND, environment

Run = Callable[..., Any]


@pytest.mark.parametrize("by_field", [False, True])
def test_an_estimate_that_is_too_small_drops_nothing(by_field: bool) -> None:
    """A hundred were expected and 20,000 came, each twice: each comes out once, in its order."""
    lines = [b'{"k": "%d"}' % n if by_field else b"%d" % n for n in range(20_000)]
    key = LineKey.json(["k"]) if by_field else None
    seen, out = GrowingLines(100, 1e-6), b""
    for at in range(0, 20_000, 500):
        chunk = b"\n".join(lines[at : at + 500] * 2 + ([b"none"] if by_field else [])) + b"\n"
        new, consumed, count, chosen = seen.add_lines(memoryview(chunk), False, key)
        assert (consumed, count) == (len(chunk), chunk.count(b"\n"))
        assert chosen == new.count(b"\n")
        out += new
    assert [line for line in out.splitlines() if line != b"none"] == lines
    assert key is None or (key.missing, key.lines, key.first_missing) == (40, 40_040, 1001)
    absent, *_ = seen.absent_lines(memoryview(b"\n".join([*lines, b"other"])), True, None)
    if not by_field:
        assert absent == b"other\n"


@pytest.mark.parametrize("rate", [1e-9, 0.5])
def test_every_error_rate_that_a_filter_has(rate: float) -> None:
    """The first layer gets a part of it, which must not be one that no filter has."""
    seen = GrowingLines(100, rate)
    for at in range(0, 2000, 500):
        lines = memoryview(b"".join(b"%d\n" % n for n in range(at, at + 500)))
        assert seen.add_lines(lines, False, None)[1] == len(lines)
    # 100, 1000 and 2000 lines: no layer errs more seldom than 1e-9, and their sum is told.
    assert seen.facts()["error_rate"] == pytest.approx(3e-9 if rate == 1e-9 else rate)


@pytest.mark.parametrize("rate", [2.0, 0.55, 0.9e-9])
def test_an_error_rate_is_refused_as_it_was_given(rate: float) -> None:
    """By the number that a person wrote, and not by the part that a layer would have."""
    with pytest.raises(InvalidParameter, match=rf"not {rate}(;|$)"):
        GrowingLines(100, rate)


def test_lines_without_a_slot_are_kept_beside() -> None:
    """A chunk of more lines than a filter has slots for: each comes out once, none is lost."""
    seen = Fingerprints(1000, 1e-6)
    lines = [b"%d" % n for n in range(20_000)]
    for wanted in (20_000, 0):
        text, _, count, chosen = seen.add_lines(b"\n".join(lines + lines), final=True)
        assert (count, chosen, text.count(b"\n")) == (40_000, wanted, wanted)
    text, *_ = seen.contains_lines(b"\n".join([b"other", *lines]), final=True, invert=True)
    assert text == b"other\n"


def test_a_line_that_comes_often_takes_one_slot() -> None:
    """A cuckoo filter has a key as often as it was added, and this one once."""
    seen = Fingerprints(10, 1e-6)
    _, _, count, chosen = seen.add_lines(b"a\n" * 1000)
    assert (count, chosen, seen.count) == (1000, 1, 1)


def test_fingerprints_are_for_memory_alone() -> None:
    """Lines that are kept beside would be missing in a copy or a file, and so there is none."""
    seen = Fingerprints(10, 1e-6)
    for lost in ("save", "to_bytes", "remove", "remove_many", "discard"):
        assert not hasattr(seen, lost)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="for memory alone"):
            copied(seen)


def test_diff_of_a_file_that_is_larger_than_said(run: Run, tmp_path: Path) -> None:
    """A capacity is where to begin: nothing that A lacks is left out for it."""
    (tmp_path / "a").write_text("".join(f"{n}\n" for n in range(30_000)))
    asked = "".join(f"{n}\n" for n in range(29_000, 40_000)).encode()
    assert run("diff", "-n", "1000", "a", "-", stdin=asked).stdout.count(b"\n") == 10_000


@pytest.mark.parametrize("exact", [[], ["--exact"]])
def test_a_may_be_a_pipe_by_name(tmp_path: Path, exact: list[str]) -> None:
    """What is looked at of A is not lost: `diff <(sort a) b`."""
    (tmp_path / "b").write_bytes(b"a\nb\nc\n")
    command = " ".join([*COMMAND, "diff", *exact, "<(printf 'a\\nb\\n')", "b"])
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, check=True
    )
    assert done.stdout == b"c\n"


def test_two_that_begin_one_file_keep_the_keys_of_both(tmp_path: Path, run: Run) -> None:
    """Whoever comes second waits for the first, though the file was not there when it looked."""
    for name, numbers in (("one", range(500)), ("two", range(500, 1000))):
        (tmp_path / name).write_text("".join(f"{n}\n" for n in numbers))
    started = [
        subprocess.Popen(
            [*COMMAND, "dedup", "--filter", "seen.bloom", name],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        for name in ("one", "two")
    ]
    assert [process.wait() for process in started] == [0, 0]
    assert run("dedup", "--filter", "seen.bloom", "one", "two").stdout == b""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "seen.bloom", "two"]
