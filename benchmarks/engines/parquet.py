"""A key in one of 100 row groups of a Parquet file: filters, and reading what is left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, progress, quiet, rotated, time_call
from bloomery.integrations.parquet import add_bloom, might_contain, read

ROW_GROUPS = 100
LEAST_DATASET, LEAST_DUCKDB = 20, 1
KEYS = 20
OURS, DATASET, DUCKDB = "bloomery, read", "pyarrow.dataset with a filter", "DuckDB, with filters"


def run(settings: Settings) -> list[Record]:
    rows = settings.size(1_000_000 if settings.quick else 5_000_000) // ROW_GROUPS * ROW_GROUPS
    progress.step(f"engines: a Parquet file of {rows:,} rows")
    with tempfile.TemporaryDirectory() as folder:
        return [_measure(Path(folder), rows, settings)]


def _measure(folder: Path, rows: int, settings: Settings) -> Record:
    dice = np.random.default_rng(18)
    ids = dice.permutation(rows)
    columns = {
        "user": pa.array(ids),
        "name": pa.array([f"user-{i}" for i in ids]),
        **{f"x{i}": pa.array(dice.random(rows)) for i in range(6)},
    }
    plain, filtered = folder / "plain.parquet", folder / "filtered.parquet"
    pq.write_table(pa.table(columns), plain, row_group_size=rows // ROW_GROUPS)
    seconds = time_call(lambda: add_bloom(plain, "user", 0.01, out=filtered)) / 1e9
    keys = [int(key) for key in dice.choice(ids, KEYS, replace=False)]
    with duckdb.connect() as con:

        def query(file: Path, key: int) -> Any:
            return con.sql(f"SELECT * FROM '{file}' WHERE user = {key}").to_arrow_table()

        ways: dict[str, Callable[[int], Any]] = {
            OURS: lambda key: read(filtered, "user", key),
            "bloomery, might_contain alone": lambda key: might_contain(filtered, "user", key),
            DATASET: lambda key: ds.dataset(filtered).to_table(filter=ds.field("user") == key),
            DUCKDB: lambda key: query(filtered, key),
            "DuckDB, without filters": lambda key: query(plain, key),
        }
        left = [sum(might_contain(filtered, "user", key)) for key in keys]
        lost = sum(not ways[OURS](key).equals(ways[DATASET](key)) for key in keys[:3])
        best = Best()
        for turn in range(settings.rounds):
            for name, way in rotated(list(ways.items()), turn):
                some = keys[:2] if name == DATASET else keys
                with quiet():
                    best.note(name, time_call(_each, way, some), len(some))
    return {
        "table": "parquet",
        "rows": rows,
        "bytes": filtered.stat().st_size if filtered.exists() else 0,
        "ms": {name: ns / 1e6 for name, ns in best.ns.items()},
        "row_groups_left": float(np.mean(left)),
        "lost": lost,
        "add_seconds": seconds,
    }


def _each(way: Callable[[int], Any], keys: list[int]) -> None:
    for key in keys:
        way(key)


def render(records: list[Record]) -> str:
    (r,) = records
    columns = [Column("a key of one row group", left=True), Column("ms"), Column("to ours")]
    rows = [[way, f"{ms:.2f}", f"{ms / r['ms'][OURS]:.1f}x"] for way, ms in r["ms"].items()]
    title = (
        f"{r['rows']:,} rows, 8 columns, {ROW_GROUPS} row groups, {r['row_groups_left']:.2f} of "
        f"them left by the filters, which took {r['add_seconds']:.1f} s to add; {r['lost']} lost"
    )
    return table(title, columns, rows)


def judge(records: list[Record]) -> list[Line]:
    what = "might_contain and reading what is left, 100 row groups"
    musts = {DATASET: f">= {LEAST_DATASET}x pyarrow.dataset", DUCKDB: f">= {LEAST_DUCKDB}x DuckDB"}
    if not records:
        return [missing(what, must) for must in musts.values()]
    (r,) = records
    lines = []
    for way, least in ((DATASET, LEAST_DATASET), (DUCKDB, LEAST_DUCKDB)):
        ratio = r["ms"][way] / r["ms"][OURS]
        lines.append(Line(what, musts[way], "-", f"{ratio:.1f}x", word(ratio >= least)))
    return lines
