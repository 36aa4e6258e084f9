"""Engines skip row groups by the filters that `add_bloom` wrote: their own counters say so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomery.integrations.parquet import add_bloom, might_contain
from conftest import missing, require
from privates import java_frame_of

pa = require("pyarrow")
pq = require("pyarrow.parquet")

ROW_GROUPS, ROWS = 20, 500
WANTED = 4242  # among the ids
PLAIN = ["id", "small", "name", "x", "price", "day", "moment", "raw"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of many row groups, in none of which an id is out of range, and the same with filters.
    There are no dictionaries, by which engines could skip as well."""
    folder = tmp_path_factory.mktemp("engines")
    ids = np.random.default_rng(3).permutation(ROW_GROUPS * ROWS)
    first = datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp()
    columns = {
        "id": pa.array(ids, pa.int64()),
        "small": pa.array(ids, pa.int32()),
        "name": pa.array([f"user-{i}" for i in ids]),
        "x": pa.array(ids / 8),
        "price": pa.array([Decimal(int(i)).scaleb(-2) for i in ids], pa.decimal128(9, 2)),
        "day": pa.array(ids, pa.int32()).cast(pa.date32()),
        "moment": pa.array((ids + int(first)) * 1_000_000).cast(pa.timestamp("us", "UTC")),
        "raw": pa.array([b"raw-%d" % i for i in ids]),
    }
    plain = folder / "plain.parquet"
    pq.write_table(pa.table(columns), plain, row_group_size=ROWS, use_dictionary=False)
    add_bloom(plain, PLAIN, 1e-4, out=folder / "filtered.parquet")
    return {"plain": plain, "filtered": folder / "filtered.parquet"}


CONDITIONS = {
    "id": f"id = {WANTED}",
    "small": f"small = {WANTED}",
    "name": f"name = 'user-{WANTED}'",
    "x": f"x = cast({WANTED / 8} AS double)",
    "price": f"price = cast({WANTED / 100} AS decimal(9, 2))",
    "day": f"day = DATE '{np.datetime64(WANTED, 'D')}'",
    "moment": "moment = TIMESTAMP '2024-01-01 01:10:42+00:00'",
}


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


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session of Spark in this process, shared with whoever has started one."""
    sql = require("pyspark.sql")
    running = sql.SparkSession.getActiveSession()
    settings = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    try:
        session = running or settings.getOrCreate()
    except (OSError, RuntimeError) as problem:
        missing(f"Java for Spark ({problem})")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    if running is None:
        session.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_spark_skips_row_groups(files: dict[str, Path], spark: Any) -> None:
    """Spark's scan gives out the rows of one row group with filters, of all without."""
    for column in ("id", "name", "price", "moment"):
        rows = {}
        for name, file in files.items():
            frame = spark.read.parquet(str(file)).where(CONDITIONS[column])
            assert [row.id for row in frame.collect()] == [WANTED]
            scan = java_frame_of(frame).queryExecution().executedPlan().collectLeaves().apply(0)
            rows[name] = scan.metrics().get("numOutputRows").get().value()
        assert rows["plain"] == ROW_GROUPS * ROWS
        assert rows["filtered"] == ROWS, column
    whole = spark.read.parquet(str(files["filtered"])).orderBy("id").toPandas()
    assert list(whole["id"]) == list(range(ROW_GROUPS * ROWS))
