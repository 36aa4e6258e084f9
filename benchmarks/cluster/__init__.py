"""`cluster`: filters in Redis, nodes with copies of them, and HAProxy in front; by many processes
on one machine."""

from __future__ import annotations

from benchmarks.cluster import balanced, costs, lag, library, loading
from benchmarks.lines import Line
from benchmarks.service import steps
from benchmarks.settings import Record, Settings

STEPS: steps.Steps = {
    "library": library.run,
    "loading": loading.run,
    "checks": balanced.run,
    "costs": costs.run,
    "lag": lag.run,
}
TABLES: steps.Tables = {
    "library": library.render,
    "loading": loading.render,
    "checks": balanced.render,
    "costs": costs.render,
    "lag": lag.render,
}


def run(settings: Settings) -> list[Record]:
    return steps.run(STEPS, settings)


def render(records: list[Record]) -> str:
    return steps.render(TABLES, records)


def judge(records: list[Record]) -> list[Line]:
    """The lines of "How good": every *must* that the issue states."""
    parts = (library.judge, loading.judge, balanced.judge, costs.judge, lag.judge)
    return [line for judged in parts for line in judged(records)]
