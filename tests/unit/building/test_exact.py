"""Exact sets out of files and databases: both sides read once, and saved when they are whole."""

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import building, errors
from bloomery.filters.files import key_type

MEMBERS, OTHERS = [f"m{n}" for n in range(500)], [f"n{n}" for n in range(9000)]


def lines(path: Path, keys: list[Any]) -> building.Rows:
    """A file of lines, opened."""
    path.write_text("".join(f"{key}\n" for key in keys), "utf-8")
    return building.open_rows(str(path))


def test_two_files_of_lines(tmp_path: Path) -> None:
    """Lines are keys; the file says that they are text, and holds what a list would give."""
    out = tmp_path / "out.exact"
    told: list[int] = []
    members, others = lines(tmp_path / "a", MEMBERS), lines(tmp_path / "b", OTHERS * 2)
    built = building.build_exact(members, others, out, on_batch=told.append)
    assert built.filter == bloomery.ExactSet.build(MEMBERS, OTHERS) == bloomery.open(out)
    assert (built.rows, built.nulls, told[-1]) == (500 + 18_000, 0, 500 + 18_000)
    assert key_type(out) == "str"


def test_a_database_and_nulls(tmp_path: Path) -> None:
    """Rows of SQL are keys; a NULL is left out, or refused."""
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE token (id INTEGER, revoked INTEGER)")
        rows = [(n, n % 10 == 0) for n in range(1000)] + [(None, 1)]
        database.executemany("INSERT INTO token VALUES (?, ?)", rows)
    url = f"sqlite:///{tmp_path}/shop.db"
    query = "SELECT id FROM token WHERE revoked = {}"
    revoked, valid = (building.open_rows(url, query=query.format(which)) for which in (1, 0))
    out = tmp_path / "out.exact"
    built = building.build_exact(revoked, valid, out)
    assert built.nulls == 1
    assert [key in built.filter for key in range(1000)] == [key % 10 == 0 for key in range(1000)]
    assert key_type(out) == "int"
    with pytest.raises(errors.NullKey, match="NULL"):
        building.build_exact(revoked, valid, out, nulls="error")


def test_a_key_on_both_sides_is_named(tmp_path: Path) -> None:
    """The line that both files have is in the message, and nothing is written."""
    out = tmp_path / "out.exact"
    members = lines(tmp_path / "a", MEMBERS)
    others = lines(tmp_path / "b", [*OTHERS, "m77"])
    with pytest.raises(errors.ConflictingKeys, match=r"^1 key is .*: b'm77'"):
        building.build_exact(members, others, out)
    assert not out.exists()


def test_a_side_that_can_be_read_only_once(tmp_path: Path) -> None:
    """Of a pipe the key cannot be named, but of the other side it can."""
    read, write = os.pipe()
    os.write(write, b"m1\nx\n")
    os.close(write)
    piped, others = building.open_rows(f"/dev/fd/{read}"), lines(tmp_path / "b", MEMBERS)
    with pytest.raises(errors.ConflictingKeys, match=r"^1 key is .*: b'm1'"):
        building.build_exact(piped, others, tmp_path / "out.exact")
    os.close(read)


def test_a_column_that_holds_no_keys(tmp_path: Path) -> None:
    """What is no key is one error that names the source."""
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE price (value REAL)")
        database.execute("INSERT INTO price VALUES (1.5)")
    rows = building.open_rows(f"sqlite:///{tmp_path}/shop.db", query="SELECT value FROM price")
    with pytest.raises(errors.InvalidSource, match="float"):
        building.build_exact(rows, lines(tmp_path / "b", OTHERS), tmp_path / "out.exact")
