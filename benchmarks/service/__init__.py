"""`service`: `bloomery serve` beside Debian's redis-server; snapshots, restart, memory."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from benchmarks.service import handwritten, latency, rates, restart, servers
from benchmarks.settings import Record, Settings

STEPS: dict[str, Callable[[Settings], list[Record]]] = {
    "rates": rates.run,
    "redis-py": handwritten.run,
    "latency": latency.run,
    "restart": restart.run,
}

TABLES: dict[str, Callable[[list[Record]], str]] = {
    "filters": rates.render_filters,
    "rates": rates.render,
    "memory": rates.render_memory,
    "redis-py": handwritten.render,
    "latency": latency.render,
    "restart": restart.render,
}


def run(settings: Settings) -> list[Record]:
    """A step that fails is told, and the others still run."""
    servers.check_tools()
    records: list[Record] = []
    for name, step in STEPS.items():
        try:
            records += step(settings)
        except Exception:  # noqa: BLE001 (minutes of other figures should not be lost to one step)
            records.append({"table": "failed", "step": name, "failure": traceback.format_exc()})
    return records


def render(records: list[Record]) -> str:
    parts = [
        show(rows)
        for name, show in TABLES.items()
        if (rows := [r for r in records if r["table"] == name])
    ]
    parts += [f"FAILED: {r['step']}\n{r['failure']}" for r in records if "failure" in r]
    return "\n\n".join(parts)
