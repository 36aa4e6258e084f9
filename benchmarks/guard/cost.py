"""What a *no* costs: the guard's `get` beside the filter's own `in`."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.guard.stage import Stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet, time_in
from bloomery.guard import Guard

MOST_NS = 1000
CHUNK = 1000  # under a millisecond: what else the machine does hardly falls into one
KINDS = ("new keys", "the same keys again")


def run(stage: Stage, settings: Settings) -> list[Record]:
    """Chunk by chunk, the filter and the guard in turn; another first each time."""
    progress.step("guard: the cost of a no")
    maybes = stage.filter.contains_many(stage.absent)
    nos = [key for key, maybe in zip(stage.absent, maybes, strict=True) if not maybe]
    size = min(CHUNK, len(nos) // 3)
    chunks = [nos[low : low + size] for low in range(0, len(nos) - size + 1, size)]
    guard = Guard(stage.filter, stage.source(), window=3600.0)
    records = []
    for kind in KINDS:
        found: list[tuple[float, float]] = []
        with quiet():
            for number, chunk in enumerate(chunks[: settings.guard_chunks]):
                keys = chunk if kind == KINDS[0] else chunks[0]
                passes: list[Callable[[], int]] = [
                    lambda keys=keys: time_in(stage.filter, _fresh(keys)),  # type: ignore[misc]
                    lambda keys=keys: _time_get(guard.get, _fresh(keys)),  # type: ignore[misc]
                ]
                order = (0, 1) if number % 2 else (1, 0)
                took = {which: passes[which]() / len(keys) for which in order}
                found.append((took[0], took[1]))
        records.append(
            {
                "table": "cost",
                "keys": kind,
                "chunks": len(found),
                "in_ns": median(a for a, _ in found),
                "get_ns": median(b for _, b in found),
                "over_ns": median(b - a for a, b in found),
            }
        )
    return records


def _fresh(keys: list[str]) -> list[str]:
    """The same keys as objects that nobody has hashed or encoded yet."""
    return "\n".join(keys).split("\n")


def _time_get(get: Callable[[Any], object], keys: list[str]) -> int:
    start = time.perf_counter_ns()
    for key in keys:
        get(key)
    return time.perf_counter_ns() - start


def render(records: list[Record]) -> str:
    columns = [Column("a no to", left=True)]
    columns += [Column(t) for t in ("chunks", "`in`, ns", "`guard.get`, ns", "more, ns")]
    rows = [
        [r["keys"], str(r["chunks"]), *(f"{r[n]:.0f}" for n in ("in_ns", "get_ns", "over_ns"))]
        for r in records
    ]
    return table(f"A no, str keys, medians of chunks of {CHUNK:,}", columns, rows)


def judge(records: list[Record]) -> list[Line]:
    what, must = "a no, over the filter's `in`", "<= 1 µs"
    found = [r for r in records if r["table"] == "cost"]
    if not found:
        return [missing(what, must)]
    worst = max(found, key=lambda r: float(r["over_ns"]))
    measured = ", ".join(f"{r['over_ns'] / 1000:.2f} µs ({r['keys']})" for r in found)
    return [Line(what, must, "-", measured, word(worst["over_ns"] <= MOST_NS))]
