"""`bloomery parquet` lists filters, adds them, and finds rows by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")

Run = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three row groups of a few columns."""
    ids = list(range(30))
    columns = {"id": ids, "name": [f"name {i}" for i in ids], "flag": [i < 15 for i in ids]}
    columns["price"] = pa.array([Decimal(i).scaleb(-1) for i in ids], pa.decimal128(9, 2))
    columns["at"] = pa.array([i * 1_000_000 for i in ids]).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=10)
    return tmp_path / "a.parquet"


@pytest.mark.slow
def test_add_list_and_find(run: Run, file: Path) -> None:
    """Filters are added to a new file, listed, and rows are found by them."""
    names = [word for name in ("id", "price", "at") for word in ("-c", name)]
    done = run("parquet", "add-bloom", "a.parquet", *names, "-o", "b.parquet", "-e", "0.001")
    assert b"9 filters, " in done.stderr
    listed = run("parquet", "inspect", "b.parquet")
    assert b"30 rows in 3 row groups, 5 columns, 9 filters" in listed.stderr
    assert listed.stdout.splitlines()[1] == b"name\tno filters"
    assert listed.stdout.splitlines()[0].startswith(b"id\t3 of 3 row groups\t")
    found = [
        json.loads(line)
        for line in run("parquet", "inspect", "b.parquet", "--json").stdout.splitlines()
    ]
    assert {each["column"] for each in found} == {"id", "price", "at"}
    row = run("parquet", "find", "b.parquet", "id", "12").stdout
    shown = {"id": 12, "name": "name 12", "flag": True, "price": "1.20"}
    assert json.loads(row) == shown | {"at": "1970-01-01 00:00:12+00:00"}
    for column, value in {"price": "1.2", "at": "1970-01-01T00:00:12Z", "name": "name 12"}.items():
        asked = run("parquet", "find", "b.parquet", column, value, "-s", "id")
        assert asked.stdout == b'{"id": 12}\n'
    assert run("parquet", "find", "b.parquet", "id", "12", "--row-groups").stdout == b"1\n"
    assert run("parquet", "find", "b.parquet", "id", "99", code=1).stdout == b""


@pytest.mark.slow
def test_sidecar(run: Run, file: Path) -> None:
    """A sidecar leaves the file as it was."""
    before = file.read_bytes()
    run("parquet", "add-bloom", "a.parquet", "-c", "id", "--sidecar", "a.bloom")
    assert file.read_bytes() == before
    asked = run("parquet", "find", "a.parquet", "id", "12", "--sidecar", "a.bloom", "--row-groups")
    assert asked.stdout == b"1\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["find", "a.parquet", "id", "abc"], b"holds INT64, and 'abc' is none: give it as"),
        (["find", "a.parquet", "flag", "maybe"], b"holds BOOLEAN, and 'maybe' is none"),
        (["find", "a.parquet", "nobody", "1"], b"has no column 'nobody'"),
        (["add-bloom", "a.parquet", "-c", "id"], b"pass either out"),
        (["inspect", "missing"], b"No such file"),
    ],
)
def test_failures_are_one_line(run: Run, file: Path, arguments: list[str], problem: bytes) -> None:
    """What is wrong is told in one line, with exit code 2."""
    done = run("parquet", *arguments, code=2)
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
