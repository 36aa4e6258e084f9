"""Engines skip row groups by the filters that `add_bloom` wrote: their own counters say so.

Spark's test is in tests/integration/spark/test_parquet.py, where its JVM is.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery.integrations.parquet import might_contain
from conftest import require
from integration.parquet.row_groups import CONDITIONS, ROW_GROUPS, WANTED, write_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file without filters, and the same with them."""
    return write_files(tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    """DuckDB, with one thread."""
    with require("duckdb").connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        yield con


@pytest.mark.parametrize("column", CONDITIONS)
def test_duckdb_skips_row_groups(files: dict[str, Path], duckdb: Any, column: str) -> None:
    """DuckDB scans one row group with filters, all without, and finds the row either way."""
    scanned = {}
    condition = CONDITIONS[column].replace("TIMESTAMP '", "TIMESTAMPTZ '")
    for name, file in files.items():
        query = f"FROM '{file}' WHERE {condition}"
        assert duckdb.execute(f"SELECT id {query}").fetchall() == [(WANTED,)]
        plan = duckdb.execute(f"EXPLAIN ANALYZE SELECT * {query}").fetchall()[0][1]
        found = re.search(r"Row Groups Scanned: (\d+) / (\d+)", plan)
        assert found is not None, plan
        scanned[name] = int(found[1])
    # DuckDB 2.0 asks no filter of decimals that are not stored as ints.
    assert scanned == {"plain": ROW_GROUPS, "filtered": ROW_GROUPS if column == "price" else 1}


def test_duckdb_agrees_with_every_answer(files: dict[str, Path], duckdb: Any) -> None:
    """DuckDB's probe and ours give the same answer for present and absent values."""
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?)"
    file = files["filtered"]
    for i in range(0, 30_000, 500):
        for column, value in {"id": i, "name": f"user-{i}", "x": i / 8}.items():
            theirs = duckdb.execute(probe, [str(file), column, value]).fetchall()
            assert [not row[0] for row in theirs] == might_contain(file, column, value)
