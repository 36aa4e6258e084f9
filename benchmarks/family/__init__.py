"""`family`: each kind beside the plain filter and its peers; bits and rates; the bank."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable

from benchmarks.family import bank, speed, static, weights
from benchmarks.settings import Record, Settings

STEPS: dict[str, Callable[[Settings], Iterable[Record]]] = {
    "speed": speed.run,
    "static": static.run,
    **{f"weights of {kind}": measure for kind, measure in weights.MEASURES.items()},
    "bank": bank.run,
}


def run(settings: Settings) -> list[Record]:
    """A step that fails is told, and the others still run."""
    records: list[Record] = []
    for name, step in STEPS.items():
        try:
            records += step(settings)
        except Exception:  # noqa: BLE001 (minutes of other figures should not be lost to one step)
            records.append({"table": "failed", "step": name, "failure": traceback.format_exc()})
    return records


def render(records: list[Record]) -> str:
    tables = {"speed": speed, "static": static, "weights": weights, "bank": bank}
    parts = [
        module.render(rows)
        for name, module in tables.items()
        if (rows := [r for r in records if r["table"] == name])
    ]
    parts += [f"FAILED: {r['step']}\n{r['failure']}" for r in records if "failure" in r]
    return "\n\n".join(parts)
