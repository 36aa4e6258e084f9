"""`bloomery exact build`: two sides in, a file without errors about either out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Run = Callable[..., Any]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, ...]:
    """Options for two files of lines: numbers, of which the first hundred are members."""
    (tmp_path / "revoked.txt").write_text("".join(f"{n}\n" for n in range(100)))
    (tmp_path / "valid.txt").write_text("".join(f"{n}\n" for n in range(100, 10_000)))
    return ("--members", "revoked.txt", "--non-members", "valid.txt", "-o", "r.exact")


def test_no_line_is_answered_wrong(run: Run, sides: tuple[str, ...], tmp_path: Path) -> None:
    """`contains` finds every member and no non-member, though texts of digits may be ints too."""
    said = run("exact", "build", *sides).stdout.decode()
    assert said.startswith("r.exact: 100 members, 9,900 non-members in ")
    members, others = ((tmp_path / f"{name}.txt").read_bytes() for name in ("revoked", "valid"))
    assert run("contains", "r.exact", stdin=members).stdout == members
    assert run("contains", "r.exact", stdin=others, code=1).stdout == b""
    assert run("contains", "-v", "r.exact", stdin=others).stdout == others
    described = json.loads(run("info", "r.exact", "--json").stdout)
    assert (described["kind"], described["non_members"]) == ("exact", 9900)
    assert described["key_type"] == "str"


@pytest.mark.slow
def test_ints_and_json(run: Run, sides: tuple[str, ...], tmp_path: Path) -> None:
    """With --type int keys are ints, and the file remembers it; --json has the figures."""
    built = json.loads(run("exact", "build", *sides, "--type", "int", "--json").stdout)
    assert (built["rows"], built["estimated_count"]) == (10_000, 100)
    assert run("contains", "r.exact", "7", "107").stdout == b"7\n"
    valid = (tmp_path / "valid.txt").read_bytes()
    assert run("contains", "-c", "r.exact", stdin=valid, code=1).stdout == b"0\n"


@pytest.mark.slow
def test_sides_of_two_kinds(run: Run, tmp_path: Path) -> None:
    """One side may be CSV and the other Parquet, by the same column, or lines."""
    (tmp_path / "revoked.csv").write_text("id,why\na1,lost\na2,stolen\n")
    pq.write_table(pa.table({"id": ["a3", "a4"]}), tmp_path / "valid.parquet")
    (tmp_path / "more.txt").write_text("a5\n")
    for others in ("valid.parquet", "more.txt"):
        places = ("--members", "revoked.csv", "--non-members", others, "--column", "id")
        run("exact", "build", *places, "-o", "r.exact", "--force")
        asked = run("contains", "r.exact", "a1", "a2").stdout
        assert asked == b"a1\na2\n"


def test_a_key_on_both_sides(run: Run, sides: tuple[str, ...], tmp_path: Path) -> None:
    """It is one line that names the key; no file is written."""
    with open(tmp_path / "valid.txt", "a") as file:
        file.write("42\n")
    failed = run("exact", "build", *sides, code=2)
    assert b"1 key is among the members and among the non-members: b'42'" in failed.stderr
    assert not (tmp_path / "r.exact").exists()


@pytest.mark.slow
def test_a_file_is_replaced_only_if_that_is_wished(run: Run, sides: tuple[str, ...]) -> None:
    """A set is brought up to date by building it again, with --force."""
    run("exact", "build", *sides)
    assert b"is there already" in run("exact", "build", *sides, code=2).stderr
    run("exact", "build", *sides, "--force", "--error-rate", "0.01%")
    assert json.loads(run("info", "r.exact", "--json").stdout)["error_rate"] == 0.0001


def test_standard_input_is_one_side(run: Run, sides: tuple[str, ...]) -> None:
    """One side can come from a pipe; both cannot."""
    places = ("--members", "-", "--non-members", "valid.txt", "-o", "r.exact")
    run("exact", "build", *places, stdin=b"x\ny\n")
    assert run("contains", "r.exact", "x", "500").stdout == b"x\n"
    twice = ("--members", "-", "--non-members", "-", "-o", "s.exact")
    assert b"only one side" in run("exact", "build", *twice, code=2).stderr


def test_the_plan(run: Run) -> None:
    """`plan` with --non-members explains an exact set's size."""
    text = run("plan", "100k", "--non-members", "10M").stdout.decode()
    for words in ("124 kB", "first level: 6 bits", "9.95", "8.09", "9.56", "0.781%"):
        assert words in text
    figures = json.loads(run("plan", "100k", "--non-members", "10M", "1%", "--json").stdout)
    assert figures["error_rate"] <= 0.01
    assert b"--non-members" in run("plan", "--non-members", "10M", code=2).stderr
