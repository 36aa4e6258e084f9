"""`engines`: filters inside queries of Polars and DuckDB, and filters in Parquet files."""

from __future__ import annotations

from benchmarks import steps
from benchmarks.engines import parquet, queries
from benchmarks.lines import Line
from benchmarks.settings import Record, Settings

# Each module has a step of its name, the tables that it fills, and the lines of "How good".
MODULES = {"queries": queries, "parquet": parquet}


def run(settings: Settings) -> list[Record]:
    return steps.run({name: module.run for name, module in MODULES.items()}, settings)


def render(records: list[Record]) -> str:
    return steps.render({name: module.render for name, module in MODULES.items()}, records)


def judge(records: list[Record]) -> list[Line]:
    """The lines of "How good": every *must* that the issue states."""
    return [
        line
        for name, module in MODULES.items()
        for line in module.judge([r for r in records if r["table"] == name])
    ]
