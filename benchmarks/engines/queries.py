"""A filter as a term of a query, beside `contains_many` of the same column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, progress, quiet, rotated, time_call
from bloomery import BloomFilter
from bloomery.integrations.duckdb import register
from bloomery.integrations.polars import contains

LEAST_RATE, MOST_RATIO = 20e6, 1.5
BASE = "contains_many"
# The same rows where each engine has them: DuckDB's have to be brought out of its table first.
OWN = {"Polars": "contains_many of Polars' column", "DuckDB": "contains_many of DuckDB's column"}
FALLBACK = "DuckDB, asked by Python"
FLOOR = "DuckDB, a function of Python that does nothing"


def run(settings: Settings) -> list[Record]:
    rows = settings.size(1_000_000 if settings.quick else 5_000_000)
    ids = np.random.default_rng(18).permutation(2 * rows)[:rows]
    columns = {"int64": pa.array(ids), "str": pa.array([f"user-{i}" for i in ids])}
    return [_measure(kind, column, settings) for kind, column in columns.items()]


def _measure(kind: str, column: Any, settings: Settings) -> Record:
    progress.step(f"engines: {len(column):,} rows of {kind}")
    seen = BloomFilter.from_keys(column[: len(column) // 2], error_rate=0.01)
    frame = pl.DataFrame({"id": column})
    with duckdb.connect() as con:
        con.execute("SET threads = 1")
        con.register("rows", pa.table({"id": column}))
        con.execute("CREATE TABLE t AS SELECT * FROM rows")
        native = register(con, "seen", seen)
        register(con, "asked", _Asked(seen))
        always: Any = "arrow"
        true = pa.array(np.ones(len(column), bool))
        con.create_function(
            "nothing", lambda keys: true[: len(keys)], [_TYPES[kind]], "BOOLEAN", type=always
        )

        def query(condition: str) -> int:
            return int(con.execute(f"SELECT count(*) FROM t WHERE {condition}").fetchall()[0][0])

        ways: dict[str, Callable[[], Any]] = {
            BASE: lambda: seen.contains_many(column),
            OWN["Polars"]: lambda: seen.contains_many(frame["id"]),
            OWN["DuckDB"]: lambda: seen.contains_many(con.sql("SELECT id FROM t")),
            "Polars": lambda: frame.select(contains("id", seen)),
            "Polars, lazy": lambda: frame.lazy().select(contains("id", seen)).collect(),
            "Polars, streaming": lambda: (
                frame.lazy().select(contains("id", seen)).collect(engine="streaming")
            ),
            "DuckDB": lambda: query("seen(id)"),
            FALLBACK: lambda: query("asked(id)"),
            FLOOR: lambda: query("nothing(id)"),
        }
        expected = int(np.sum(ways[BASE]()))
        wrong = abs(query("seen(id)") - expected) + abs(query("asked(id)") - expected)
        wrong += abs(int(ways["Polars, streaming"]()["id"].sum()) - expected)
        best = Best()
        for turn in range(settings.rounds):
            for name, way in rotated(list(ways.items()), turn):
                with quiet():
                    best.note(name, time_call(way), len(column))
    figures = {"rows": len(column), "ns": best.ns, "wrong": wrong, "native": native == "native"}
    return {"table": "queries", "kind": kind, **figures}


class _Asked:
    """The filter as one that only Python can ask."""

    def __init__(self, filter: BloomFilter) -> None:
        self.contains_many = filter.contains_many


_TYPES = {"int64": "BIGINT", "str": "VARCHAR"}


def render(records: list[Record]) -> str:
    ways = list(records[0]["ns"])
    columns = [Column("ns a row", left=True), *(Column(r["kind"]) for r in records)]
    columns += [Column(f"{r['kind']}, to {BASE}") for r in records]
    rows = [
        [
            way,
            *(f"{r['ns'][way]:.1f}" for r in records),
            *(f"{r['ns'][way] / r['ns'][BASE]:.2f}x" for r in records),
        ]
        for way in ways
    ]
    return table(f"A filter as a term of a query, {records[0]['rows']:,} rows", columns, rows)


def judge(records: list[Record]) -> list[Line]:
    rate, must = (
        "contains_many in Arrow batches, a core",
        f">= {LEAST_RATE / 1e6:g} M rows a second",
    )
    terms = {"Polars": "term of a Polars query", "DuckDB": "term of a DuckDB query"}
    most = f"<= {MOST_RATIO}x contains_many"
    if not records:
        return [missing(rate, must), *(missing(what, most) for what in terms.values())]
    slowest = min(1e9 / r["ns"][BASE] for r in records)
    lines = [Line(rate, must, "-", f"{slowest / 1e6:.0f} M", word(slowest >= LEAST_RATE))]
    for way, what in terms.items():
        for base, column in ((OWN[way], "the engine's own column"), (BASE, "an Arrow column")):
            ratios = {r["kind"]: r["ns"][way] / r["ns"][base] for r in records}
            measured = ", ".join(f"{ratio:.2f}x ({kind})" for kind, ratio in ratios.items())
            good = word(max(ratios.values()) <= MOST_RATIO)
            lines.append(Line(f"{what}, {column}", most, "-", measured, good))
    return lines
