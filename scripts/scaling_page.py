"""The tables of docs/scaling.md, made from the figures of `bloomery.sizing.cluster_figures`:
`python scripts/scaling_page.py`.

`python scripts/scaling_page.py benchmarks/results/cluster.json` shows what a run of `make
bench-cluster` has measured beside the figures, for whoever changes them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
    return head + "".join(rows)


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
        "cores | a node loads in | nearest limit | instead, all in Redis |\n"
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
        f"{made.all_masters:,}",
        f"{made.balancer_cores:,.1f}",
        f"{made.load_seconds:,.1f} s",
        f"{near.what}, {near.share:.0%}",
        f"{made.shared_masters:,} masters",
    )
    return f"| {' | '.join(cells)} |\n"


def measured(document: dict[str, Any]) -> dict[str, float]:
    """The figures that a run of the benchmark gives."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for record in document["parts"]["cluster"]:
        tables.setdefault(record["table"], []).append(record)
    found: dict[str, float] = {}
    if loading := tables.get("loading"):
        found["load_bytes_a_second"] = loading[0]["mb_a_second"] * 1e6
    if costs := {r["what"].partition(",")[0]: r for r in reversed(tables.get("costs", []))}:
        singly, many = costs["BF.ADD"], costs["BF.MADD of 1"]
        found["follow_key_us"] = many["follower_us"]
        found["write_key_us"] = many["writer_us"] - many["follower_us"]
        found["redis_key_us"] = many["redis_us"]
        found["sent_key_bytes"] = many["in_bytes"]
        found["kept_entry_bytes"] = singly["stream_bytes"] - FIGURES.stream_key_bytes
    checks = {(r["how"], r["pipeline"], r["who"]): r for r in tables.get("checks", [])}
    if direct := checks.get(("redis-benchmark", 1, "one node")):
        found["request_us"] = direct["us"] - FIGURES.key_us
        found["balancer_request_us"] = checks["redis-benchmark", 1, "3 nodes, HAProxy"][
            "haproxy_us"
        ]
    lags = [r for r in tables.get("lag", []) if r["burst"] == 1]
    for r in lags:
        nodes = [value for name, value in r["cores"].items() if name.startswith("node")]
        found["follow_request_us"] = sum(nodes) / len(nodes) / r["reached"] * 1e6
        found["redis_request_us"] = r["cores"]["Redis"] / r["reached"] * 1e6 - FIGURES.redis_key_us
        found["lag_seconds"] = r["p99_ms"] / 1000
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for key, value in measured(json.loads(Path(sys.argv[1]).read_text("utf-8"))).items():
            print(f"{key:22} {value:14,.4g}   now {getattr(FIGURES, key):,.4g}")
    else:
        PAGE.write_text(page(), "utf-8")
