"""`family`: each kind beside the plain filter and its peers; bits and rates; the bank."""

from __future__ import annotations

from benchmarks import steps
from benchmarks.family import bank, speed, static, weights
from benchmarks.settings import Record, Settings

STEPS: steps.Steps = {
    "speed": speed.run,
    "static": static.run,
    **{f"weights of {kind}": measure for kind, measure in weights.MEASURES.items()},
    "bank": bank.run,
}
TABLES: steps.Tables = {
    "speed": speed.render,
    "static": static.render,
    "weights": weights.render,
    "bank": bank.render,
}


def run(settings: Settings) -> list[Record]:
    return steps.run(STEPS, settings)


def render(records: list[Record]) -> str:
    return steps.render(TABLES, records)
