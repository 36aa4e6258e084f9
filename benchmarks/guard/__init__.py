"""`guard`: exact answers from a filter, a cache and a real PostgreSQL; who had to be asked."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from benchmarks import steps
from benchmarks.guard import batches, cost, reads
from benchmarks.guard.stage import Stage, stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

LEAST_BUILD = 0.8


def run(settings: Settings) -> list[Record]:
    with stage(settings) as there:
        parts: steps.Steps = {
            "cost": partial(cost.run, there),
            "batches": partial(batches.run, there),
            "build": partial(_build, there),
            "reads": partial(reads.run, there),
        }
        return steps.run(parts, settings)


def _build(there: Stage, settings: Settings) -> list[Record]:
    if settings.scale != 1:  # its table has half a million rows
        return []
    progress.step("guard: a filter from a table")
    return [{"table": "build", **import_module("benchmarks.guard.build").run(there.url)}]


def _render_build(records: list[Record]) -> str:
    (r,) = records
    columns = [Column("rows", left=True), *(Column(t) for t in ("fetched, s", "built, s", "ratio"))]
    rows = [
        [what, f"{r['fetch' + end]:.2f}", f"{r['build' + end]:.2f}", f"{r['ratio' + end]:.2f}x"]
        for what, end in (("of a query", ""), ("of a table, in the order of its key", "_ordered"))
    ]
    return table("A filter from 500,000 rows, beside fetching them alone", columns, rows)


TABLES: steps.Tables = {
    "reads": lambda rows: f"{reads.render(rows)}\n\n{reads.render_observed(rows)}",
    "orders": reads.render_orders,
    "cost": cost.render,
    "batches": batches.render,
    "build": _render_build,
}


def render(records: list[Record]) -> str:
    return steps.render(TABLES, records)


def judge(records: list[Record]) -> list[Line]:
    """The lines of "How good": every *must* that the issue states."""
    what, must = "build from PostgreSQL, to fetching the rows", f">= {LEAST_BUILD:g}x"
    found = [r for r in records if r["table"] == "build"]
    build = missing(what, must)
    if found:
        ratios = [found[0][name] for name in ("ratio", "ratio_ordered")]
        measured = f"{ratios[0]:.2f}x (a query), {ratios[1]:.2f}x (a table, resumable)"
        build = Line(what, must, "-", measured, word(min(ratios) >= LEAST_BUILD))
    return [*reads.judge(records), *cost.judge(records), *batches.judge(records), build]
