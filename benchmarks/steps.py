"""Parts that are several steps, each with tables of its own."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable

from benchmarks.settings import Record, Settings

Steps = dict[str, Callable[[Settings], Iterable[Record]]]
Tables = dict[str, Callable[[list[Record]], str]]


def run(steps: Steps, settings: Settings) -> list[Record]:
    """A step that fails is told, and the others still run."""
    records: list[Record] = []
    for name, step in steps.items():
        try:
            records += step(settings)
        except Exception:  # noqa: BLE001 (minutes of other figures should not be lost to one step)
            records.append({"table": "failed", "step": name, "failure": traceback.format_exc()})
    return records


def render(tables: Tables, records: list[Record]) -> str:
    parts = [
        show(rows)
        for name, show in tables.items()
        if (rows := [r for r in records if r["table"] == name])
    ]
    parts += [f"FAILED: {r['step']}\n{r['failure']}" for r in records if "failure" in r]
    return "\n\n".join(parts)
