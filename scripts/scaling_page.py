"""The tables of docs/scaling.md, made from the figures of `bloomery.sizing.cluster_figures`:
`python scripts/scaling_page.py`. Those are from results files: `make figures` writes them, and then
this page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from bloomery.sizing.cluster import ClusterPlan, plan_cluster
from bloomery.sizing.cluster_figures import FIGURES, SOURCES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
MARK = "<!-- made by scripts/scaling_page.py -->\n"
KEYS = (10**9, 10**12)
CHECKS = (300_000, 1_000_000, 10_000_000, 100_000_000)
BATCHES = (1, 100)
WRITES = 10_000


def page() -> str:
    """The whole page: what people wrote, and the tables."""
    written = PAGE.read_text("utf-8").partition(MARK)[0]
    return written + MARK + _figures() + "".join(_worked(keys) for keys in KEYS)


def _figures() -> str:
    rows = [
        f"| `{name}` | {_amount(name, value)} | {SOURCES[name][0]} | {SOURCES[name][1]} |\n"
        for name, value in asdict(FIGURES).items()
    ]
    head = "\n## The figures\n\n| name | | what | measured by |\n|---|---|---|---|\n"
    return head + "".join(rows) + "\n" + "".join(f"- {line}\n" for line in _said())


def _said() -> list[str]:
    """What follows from the figures for whoever has to choose."""
    check, follow = FIGURES.check_us, FIGURES.follow_us
    return [
        f"A request to check costs a node {FIGURES.request_us / FIGURES.key_us:.0f} times what a "
        f"key in it does: with 100 keys a request it checks {check(1) / check(100):.0f} times as "
        "many.",
        f"A write of 1,000 keys costs each node {1000 * follow(1000) / follow(1):.1f} times what "
        "a write of one key does.",
        f"HAProxy takes {FIGURES.balancer_request_us / FIGURES.request_us:.1f} times as much "
        "processor time for a request as the node that answers it.",
    ]


def _amount(name: str, value: float) -> str:
    if name.endswith("_us"):
        return f"{value:g} µs"
    if name.endswith("_seconds"):
        return f"{value * 1000:g} ms"
    if name == "load_bytes_a_second":
        return f"{value / 1e6:,.0f} MB/s"
    if name.endswith("_bytes"):
        return f"{value / 1e6:,.0f} MB" if value >= 1e6 else f"{value:,.0f} B"
    return f"{value:g}"


def _worked(keys: int) -> str:
    power = len(str(keys)) - 1
    head = (
        f"\n## 10^{power} keys\n\nAt 1%, with {WRITES:,} writes a second; nodes and masters of 64 "
        "GB, 10 Gbit.\n\n| checks a second | keys a request | groups | nodes | masters | HAProxy, "
        "cores | a node loads in | nearest limit | instead, a RedisFilter |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    plans = [
        plan_cluster(keys, checks=checks, writes=WRITES, batch=batch)
        for batch in BATCHES
        for checks in CHECKS
    ]
    return head + "".join(map(_row, plans))


def _row(made: ClusterPlan) -> str:
    near = max(made.limits, key=lambda limit: limit.share)
    cells = (
        f"{made.checks:,.0f}",
        f"{made.batch}",
        f"{made.groups:,}",
        f"{made.all_nodes:,}",
        f"{made.groups:,}",
        f"{made.balancer_cores:,.1f}",
        f"{made.load_seconds:,.1f} s",
        f"{near.what}, {near.share:.0%}",
        f"{made.shared_masters:,} masters",
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
