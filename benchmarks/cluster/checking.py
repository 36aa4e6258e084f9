"""What a check costs a node: beside a server alone, and as nodes become more at the same load each.

The node that is watched and the server alone have a core to themselves, in turn; the other nodes,
Redis and who asks share the other one. What a check costs drifts with the machine, so each figure
of the node is beside one of the server alone that was taken a moment before.
"""

from __future__ import annotations

import os
import time
from statistics import median

from benchmarks.cluster.pace import Pace, load
from benchmarks.cluster.stage import stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.servers import Running
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

NAME = "asked"
COUNTS = (1, 2, 4, 8)
PACES = {1: 2_000, 16: 16_000}  # a pipeline of so many: checks a second and a node
CONNECTIONS = 20  # of each node
MOST_ALONE, MOST_APART = 1.05, 0.10


def run(settings: Settings) -> list[Record]:
    """A server alone and the first of several nodes, asked in turn."""
    keys = settings.service_keys
    found: list[Record] = []
    with (
        stage() as there,
        servers.bloomery(there.folder / "alone") as alone,
    ):
        os.sched_setaffinity(there.store.process.pid, {int(servers.cores()[1])})
        _fill(alone, keys)
        for count in COUNTS:
            for node in there.start(count - len(there.nodes), pinned=True):
                if node is not there.nodes[0]:
                    os.sched_setaffinity(node.process.pid, {int(servers.cores()[1])})
                else:
                    _fill(node, keys)
            progress.step(f"cluster: a check at one of {count} nodes")
            found += [_measured(there.nodes, alone, pipeline, settings) for pipeline in PACES]
    return found


def _fill(server: Running, keys: int) -> None:
    with server.wire() as wire:
        wire.call("BF.RESERVE", NAME, 0.01, keys, "KIND", "bloom")
        wire.add(NAME, range(keys))


def _measured(nodes: list[Running], alone: Running, pipeline: int, settings: Settings) -> Record:
    pairs = []
    for number in range(settings.cluster_check_rounds):
        pair = [([alone], alone), (nodes, nodes[0])]
        used = [_used(*one, pipeline, settings) for one in (pair[::-1] if number % 2 else pair)]
        pairs.append(used[::-1] if number % 2 else used)
    return {
        "table": "checking",
        "nodes": len(nodes),
        "pipeline": pipeline,
        "rounds": len(pairs),
        "us": median(node for _, node in pairs),
        "alone_us": median(other for other, _ in pairs),
        "ratio": median(node / other for other, node in pairs),
    }


def _used(asked: list[Running], watched: Running, pipeline: int, settings: Settings) -> float:
    """Microseconds of the watched server for a check, while all that are asked have as many."""
    rate, keys = len(asked) * PACES[pipeline], 2 * settings.service_keys  # half of them are in
    ports = [one.port for one in asked]
    pace = Pace(ports, "BF.EXISTS", NAME, rate, pipeline, CONNECTIONS, keys)
    with load(pace, servers.cores()[1]) as running:
        running.start()
        before, began = watched.cpu_seconds(), time.monotonic()
        time.sleep(settings.cluster_check_seconds)
        used, seconds = watched.cpu_seconds() - before, time.monotonic() - began
        reached: float = running.end()["rate"]
    return used / (reached * seconds / len(asked)) * 1e6


def render(records: list[Record]) -> str:
    columns = [Column("nodes"), Column("pipeline")]
    columns += [Column(t) for t in ("node's CPU a check", "a server alone", "ratio")]
    rows = [
        [
            *(str(r["nodes"]), str(r["pipeline"]), f"{r['us']:.2f} µs"),
            *(f"{r['alone_us']:.2f} µs", f"{r['ratio']:.2f}x"),
        ]
        for r in sorted(records, key=lambda r: (r["pipeline"], r["nodes"]))
    ]
    paces = ", ".join(f"{rate:,}/s (pipeline of {p})" for p, rate in PACES.items())
    title = (
        f"BF.EXISTS at one of several nodes beside a server alone, each asked {paces};\nmedians of "
        f"{records[0]['rounds']} rounds"
    )
    return table(title, columns, rows)


def judge(records: list[Record]) -> list[Line]:
    """The lines of "How good"."""
    alone, flat = "CPU a check at a node, to a server alone", "CPU a check at 1, 2, 4, 8 nodes"
    must, must_flat = f"<= {MOST_ALONE:g}x", f"flat within {MOST_APART:.0%}"
    found = [r for r in records if r["table"] == "checking"]
    if not found:
        return [missing(alone, must), missing(flat, must_flat)]
    single = [r for r in found if r["nodes"] == 1]
    first = {r["pipeline"]: r["ratio"] for r in single}
    apart = [(r, r["ratio"] / first[r["pipeline"]]) for r in found if r["nodes"] > 1]
    to_alone = ", ".join(f"{r['ratio']:.2f}x (pipeline of {r['pipeline']})" for r in single)
    to_one = ", ".join(
        f"{r['nodes']}: {times:.2f}x (pipeline of {r['pipeline']})" for r, times in apart
    )
    near = max(r["ratio"] for r in single) <= MOST_ALONE
    level = max(times for _, times in apart) <= 1 + MOST_APART
    return [
        Line(alone, must, "-", to_alone, word(near)),
        Line(flat, must_flat, "-", f"to one node, {to_one}", word(level)),
    ]
