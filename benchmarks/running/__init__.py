"""`running`: what it costs to see and to guard a server: HTTP, samples, users."""

from __future__ import annotations

from benchmarks import steps
from benchmarks.lines import Line, missing, word
from benchmarks.running import http, sampling, users
from benchmarks.service import servers
from benchmarks.settings import Record, Settings

STEPS: steps.Steps = {
    "http": http.run,
    "sampling": sampling.run,
    "users": users.run,
}
TABLES: steps.Tables = {
    "http": http.render,
    "sampling": sampling.render,
    "users": users.render,
}


def run(settings: Settings) -> list[Record]:
    servers.check_tools()
    return steps.run(STEPS, settings)


def render(records: list[Record]) -> str:
    return steps.render(TABLES, records)


def judge(records: list[Record]) -> list[Line]:
    """The lines of "How good": every *must* that its issue states."""
    found = {r["table"]: r for r in records}
    lines: list[Line] = []
    r = found.get("http")
    for what, must, aim, name in (
        ("HTTP contains, 1,000 keys a request", 1e6, 3e6, "batch"),
        ("Arrow stream into add", 5e6, 10e6, "arrow"),
    ):
        asked = f">= {must / 1e6:g} M keys/s", f">= {aim / 1e6:g} M"
        if r is None:
            lines.append(missing(what, *asked))
        else:
            measured, rate = f"{r[name] / 1e6:.2f} M keys/s", r[name]
            lines.append(Line(what, *asked, measured, word(rate >= must, rate >= aim)))
    what, asked_ratio = "HTTP contains, one key, to a FastAPI constant", ">= 0.7x"
    if r is None:
        lines.append(missing(what, asked_ratio))
    else:
        measured = f"{r['ratio']:.2f}x ({r['one']:,.0f} to {r['constant']:,.0f} a second)"
        lines.append(Line(what, asked_ratio, "-", measured, word(r["ratio"] >= 0.7)))
    return [*lines, sampling.judge(records), *users.judge(records)]
