"""`cluster`: filters in Redis, nodes with copies of them, and HAProxy in front; by many processes
on one machine."""

from __future__ import annotations

from benchmarks import steps
from benchmarks.cluster import balanced, checking, costs, lag, library, loading, weight
from benchmarks.lines import Line
from benchmarks.settings import Record, Settings

STEPS: steps.Steps = {
    "library": library.run,
    "loading": loading.run,
    "checks": balanced.run,
    "checking": checking.run,
    "costs": costs.run,
    "lag": lag.run,
    "weight": weight.run,
}
TABLES: steps.Tables = {
    "library": library.render,
    "loading": loading.render,
    "checks": balanced.render,
    "checking": checking.render,
    "costs": costs.render,
    "lag": lag.render,
    "weight": weight.render,
}


def run(settings: Settings) -> list[Record]:
    return steps.run(STEPS, settings)


def render(records: list[Record]) -> str:
    return steps.render(TABLES, records)


def judge(records: list[Record]) -> list[Line]:
    """The lines of "How good": every *must* that the issue states."""
    parts = (library, loading, balanced, checking, costs, lag, weight)
    return [line for part in parts for line in part.judge(records)]
