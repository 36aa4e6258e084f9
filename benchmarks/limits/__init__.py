"""`limits`: how near the others of the family, the worst moment and rarer keys are to what the
plain filter, a C loop or a plain key take. Every figure is a ratio in one run."""

from __future__ import annotations

from benchmarks import steps
from benchmarks.limits import growing, keys, pauses, threads
from benchmarks.lines import Line, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings

STEPS: steps.Steps = {
    "growing": growing.run,
    "keys": keys.run,
    "threads": threads.run,
    "pauses": pauses.run,
}


def run(settings: Settings) -> list[Record]:
    return steps.run(STEPS, settings)


def render(records: list[Record]) -> str:
    measured = [r for r in records if "failure" not in r]
    titles = ("what", "measured", "must", "aim", "how")
    rows = [
        [r["what"], _shown(r, r["measured"]), _limit(r, "must"), _limit(r, "aim"), r["how"]]
        for r in measured
    ]
    parts = [table("Limits", [Column(title, left=True) for title in titles], rows)]
    parts += [f"FAILED: {r['step']}\n{r['failure']}" for r in records if "failure" in r]
    return "\n\n".join(parts)


def judge(records: list[Record]) -> list[Line]:
    lines = []
    for r in records:
        if "failure" in r:
            continue
        least = r["better"] == "more"
        met, hoped = (
            None if limit is None else (r["measured"] >= limit if least else r["measured"] <= limit)
            for limit in (r["must"], r["aim"])
        )
        measured = f"{_shown(r, r['measured'])} ({r['how']})"
        lines.append(
            Line(r["what"], _limit(r, "must"), _limit(r, "aim"), measured, word(bool(met), hoped))
        )
    return lines


def _shown(record: Record, value: float) -> str:
    return f"{value:.2f}{record['unit']}"


def _limit(record: Record, name: str) -> str:
    if record[name] is None:
        return "-"
    sign = ">=" if record["better"] == "more" else "<="
    return f"{sign} {record[name]:g}{record['unit']}"
