"""`service`: `bloomery serve` beside Debian's redis-server; snapshots, restart, memory."""

from __future__ import annotations

from benchmarks import steps
from benchmarks.service import handwritten, latency, pauses, rates, restart, servers, workers
from benchmarks.settings import Record, Settings

STEPS: steps.Steps = {
    "rates": rates.run,
    "redis-py": handwritten.run,
    "latency": latency.run,
    "restart": restart.run,
    "pauses": pauses.run,
    "workers": workers.run,
}

TABLES: steps.Tables = {
    "filters": rates.render_filters,
    "rates": rates.render,
    "memory": rates.render_memory,
    "redis-py": handwritten.render,
    "latency": latency.render,
    "restart": restart.render,
    "pauses": pauses.render,
    "workers": workers.render,
    "idle": workers.render_idle,
}


def run(settings: Settings) -> list[Record]:
    servers.check_tools()
    return steps.run(STEPS, settings)


def render(records: list[Record]) -> str:
    return steps.render(TABLES, records)
