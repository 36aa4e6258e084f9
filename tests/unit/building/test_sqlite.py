"""Rows of a database, here SQLite: types, order, going on, mistakes."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import building, errors

pytestmark = pytest.mark.slow
ROWS = 25_000  # three batches


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE urls (id INTEGER PRIMARY KEY, url TEXT, day INTEGER)")
        rows = ((n, f"u{n}", n // 9000 or None) for n in range(ROWS))
        connection.executemany("INSERT INTO urls VALUES (?, ?, ?)", rows)
    connection.close()
    return path


@pytest.fixture
def database(tmp_path: Path, _made: Path) -> str:
    """A database of URLs with a primary key, ties and NULLs; its URL."""
    return f"sqlite:///{shutil.copy(_made, tmp_path)}"


def built(rows: building.Rows, out: Path, **options: Any) -> building.Built:
    """Build and close."""
    try:
        return building.build(rows, out, **options)
    finally:
        rows.close()


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"table": "urls", "columns": ["url"]}, [f"u{n}" for n in range(ROWS)]),
        ({"table": "urls", "columns": ["id"]}, list(range(ROWS))),
        ({"query": "SELECT 'x' || url FROM urls -- all;"}, [f"xu{n}" for n in range(ROWS)]),
        ({"query": "SELECT id, url FROM urls;"}, [(n, f"u{n}") for n in range(ROWS)]),
        ({"table": "main.urls", "columns": ["url"], "order_by": "day"}, ["u0", "u9000", "u24999"]),
    ],
)
def test_all_keys_are_in(
    database: str, tmp_path: Path, options: dict[str, Any], keys: list[Any]
) -> None:
    """A table or a query, one column or several; each keeps its type."""
    made = built(building.open_rows(database, **options), tmp_path / "out")
    assert made.rows == ROWS
    assert made.filter.capacity == ROWS
    assert all(made.filter.contains_many(keys))


@pytest.mark.parametrize("order", [None, "day", "url"])
def test_it_goes_on_though_rows_moved(database: str, tmp_path: Path, order: str | None) -> None:
    """Rows that were read are deleted, others come before the position: what was there from the
    beginning is all in. Resuming by a number of rows would have lost some."""
    out = tmp_path / "out"

    def stop(progress: Any) -> None:
        if progress.rows:
            raise KeyboardInterrupt

    def rows() -> building.Rows:
        return building.open_rows(database, table="urls", columns=["url"], order_by=order)

    with pytest.raises(KeyboardInterrupt):
        built(rows(), out, on_batch=stop, capacity=ROWS)
    with sqlite3.connect(database.removeprefix("sqlite:///")) as connection:
        connection.execute("DELETE FROM urls WHERE id < 5000")
        connection.execute("INSERT INTO urls VALUES (-1, 'a', 0)")
    connection.close()
    made = built(rows(), out, capacity=ROWS)
    assert all(made.filter.contains_many([f"u{n}" for n in range(5000, ROWS)]))
    if order is None:  # a unique one: no row is read twice
        assert made.rows == ROWS


def test_a_query_without_an_order_begins_anew(database: str, tmp_path: Path) -> None:
    """It keeps nothing, and says why."""
    rows = building.open_rows(database, query="SELECT url FROM urls")
    assert "order_by" in rows.unresumable

    def stop(progress: Any) -> None:
        if progress.rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        built(rows, tmp_path / "out", on_batch=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "urls", "columns": ["nope"]}, "no column 'nope', only id, url, day"),
        ({"table": "nope", "columns": ["url"]}, "no such table"),
        ({"query": "SELEC url"}, "no such table: SELEC"),
        ({"query": "DELETE FROM urls"}, "syntax error"),
        ({"query": "SELECT url FROM urls", "order_by": "id"}, "no column 'id', only url"),
        ({"query": "SELECT id, url FROM urls", "order_by": "id"}, "say which of them"),
    ],
)
def test_mistakes_are_one_clear_error(database: str, options: dict[str, Any], said: str) -> None:
    """Before anything is read."""
    with pytest.raises((errors.InvalidSource, errors.InvalidParameter), match=said):
        building.open_rows(database, **options)


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    """A file that is not there, and one that is something else."""
    with pytest.raises(FileNotFoundError):
        building.open_rows(f"sqlite:///{tmp_path}/none.db", query="SELECT 1")
    (tmp_path / "x.db").write_text("text, and a good deal of it " * 50)
    with pytest.raises(errors.InvalidSource, match="not a database"):
        building.open_rows(f"sqlite:///{tmp_path}/x.db", table="urls", columns=["url"])


def test_positions_keep_value_and_type() -> None:
    """What orders rows comes back exactly; a damaged position is refused."""
    from datetime import date, datetime, timedelta, timezone
    from decimal import Decimal
    from uuid import UUID

    from bloomery.building.sql import decode_position, encode_position

    zone = timezone(timedelta(hours=2))
    values = [0, -(2**70), "ä\n", b"\0\xff", UUID(int=3), date(2026, 1, 2)]
    values += [datetime(2026, 1, 2, 3, 4, 5, 6), datetime(2026, 1, 2, tzinfo=zone), Decimal("1.50")]
    for value in values:
        back = decode_position(encode_position("c", value))
        assert (back, type(back)) == (value, type(value))
    stored = [["int", "0"], ["int", "-1180591620717411303424"], ["str", "ä\n"], ["bytes", "00ff"]]
    stored += [["UUID", "00000000-0000-0000-0000-000000000003"], ["date", "2026-01-02"]]
    stored += [["datetime", "2026-01-02T03:04:05.000006"]]
    stored += [["datetime", "2026-01-02T00:00:00+02:00"], ["Decimal", "1.50"]]
    assert [encode_position("c", value) for value in values] == stored  # on people's disks
    for refused in (0.5, True, object()):
        with pytest.raises(errors.InvalidSource, match="cannot order by the column 'c'"):
            encode_position("c", refused)
    for damaged in (None, [], ["int", "x"], ["object", "x"], ["UUID", 5]):
        with pytest.raises(errors.CorruptData):
            decode_position(damaged)


def test_the_file_is_a_filter(database: str, tmp_path: Path) -> None:
    """What was built opens like any saved filter, and denies what is not there."""
    built(building.open_rows(database, table="urls", columns=["url"]), tmp_path / "out")
    found = bloomery.BloomFilter.load(tmp_path / "out")
    wrong = sum(found.contains_many([f"absent-{n}" for n in range(10_000)]))
    assert wrong < 200
