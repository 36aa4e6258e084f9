"""Figures in the package: what `bloomery plan --nodes` computes with, what the planner compares."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.settings import Record
from scripts.figures.results import TREE, Unmeasured, record, records, result
from scripts.figures.servers import worst_lag

PACKAGE = TREE / "python" / "bloomery"
CLUSTER_FIGURES = PACKAGE / "sizing" / "cluster_figures.py"
PLANNER_FIGURES = PACKAGE / "service" / "planner" / "measured.py"


def made() -> dict[Path, str]:
    """Both files; as they are where what they stand on was not measured."""
    files = {}
    for path, change in (
        (CLUSTER_FIGURES, _with_cluster_figures),
        (PLANNER_FIGURES, _with_compared),
    ):
        text = path.read_text("utf-8")
        try:
            files[path] = change(text)
        except Unmeasured:
            files[path] = text
    return files


def cluster_figures() -> dict[str, float]:
    """What the published runs say of the figures of `bloomery.sizing.cluster_figures`."""

    def rate(what: str, pipeline: int) -> Record:
        return record("service", table="rates", server="bloomery", what=what, pipeline=pipeline)

    alone, many_keys = rate("BF.EXISTS", 1), rate("BF.MEXISTS of 100 keys", 16)
    balanced = record(
        "cluster", table="checks", how="redis-benchmark", pipeline=1, who="3 nodes, HAProxy"
    )
    (memory,) = records("service", table="memory")
    found = {
        "request_us": alone["us"],
        "key_us": many_keys["us"],
        "redis_ask_us": alone["peer_us"],
        "balancer_request_us": balanced["haproxy_us"],
        "node_bytes": memory["beside_bytes"],
        "lag_seconds": worst_lag()["p99_ms"] / 1000,
        **_log_costs(),
    }
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def _log_costs() -> dict[str, float]:
    """What the log of nodes costs; nothing of a run whose nodes had no log."""
    found = records("cluster", table="costs")
    if not any("a server alone" in r["what"] for r in found):
        return {}
    singly, crowd, batch = (r for r in found if "writer_us" in r)
    loads = [
        r["nbytes"] / (r["seconds"] + r["empty_seconds"])  # the node's start among it
        for r in records("cluster", table="loading")
        if "node" in r["what"]
    ]
    return {
        "follow_request_us": crowd["follower_us"] - batch["follower_us"],
        "follow_key_us": batch["follower_us"],
        "write_request_us": crowd["writer_us"] - crowd["follower_us"],
        "write_key_us": batch["writer_us"] - batch["follower_us"],
        "redis_request_us": crowd["redis_us"] - batch["redis_us"],
        "redis_key_us": batch["redis_us"],
        "kept_entry_bytes": singly["stream_bytes"] - 8,
        "load_bytes_a_second": min(loads),  # into memory that is new to the machine
    }


def _with_cluster_figures(text: str) -> str:
    for name, value in cluster_figures().items():
        shown = f"{value / 1e6:g}e6" if value >= 1e6 else repr(value)
        text, count = re.subn(rf"(    {name}: float = ).*", rf"\g<1>{shown}", text)
        assert count == 1, name
    return text


def _with_compared(text: str) -> str:
    names = (
        *("what", "bytes_a_key", "insert_us", "ask_us", "wrong_maybes"),
        *("removes", "survives", "runs"),
    )
    rows = [
        ", ".join(repr(float(f"{r[n]:.3g}") if isinstance(r[n], float) else r[n]) for n in names)
        for r in records("compare")
    ]
    lines = "".join(f"    Measured({row.replace(chr(39), chr(34))}),\n" for row in rows)
    found = result("compare")
    told = f"{found['command']}, {found['started'][:10]}, commit {found['machine']['commit']}"
    block = f'ROWS = [\n{lines}]\nSOURCE = "{told}"\n'
    text, count = re.subn(
        r"ROWS = \[\n.*?\]\nSOURCE = \".*?\"\n", lambda _: block, text, flags=re.S
    )
    assert count == 1
    return text
