"""How long after an acknowledged write the other nodes know of it, under 20,000 writes a second.

A prober adds a fresh key at one node, and from the acknowledgement on asks the two others again and
again until both say *maybe*; the longer time counts. Its questions are some 0.1 ms apart.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from benchmarks.cluster.pace import MOST_WAITING, Pace, load
from benchmarks.cluster.stage import NODES, Stage, stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service.wire import Wire
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet

NAME = "followed"
RATE = 20_000
BURSTS = (10, 1)  # keys of a pipeline: some clients send several at once, others one
CONNECTIONS = 10  # of each node
MOST_MS, AIM_MS, LONGEST_MS = 8.0, 4.0, 100.0
SPACING = 0.02  # seconds between probes, on average
PATIENCE = 30.0


def run(settings: Settings) -> list[Record]:
    records = []
    rate = RATE * min(1.0, max(0.1, settings.scale))
    for offered, burst in ((0, 0), *((rate, burst) for burst in BURSTS)):
        text = f"{offered:,.0f} writes/s, {burst} at once" if offered else "no other writes"
        progress.step(f"cluster: lag, {text}")
        with stage() as there:
            there.start(NODES)
            with there.nodes[0].wire() as wire:
                keys = int(rate * settings.cluster_seconds * 2)
                wire.call("BF.RESERVE", NAME, 0.001, max(1_000_000, keys), "KIND", "bloom")
            _everywhere(there)
            seconds = settings.cluster_seconds / (1 if offered else 3)
            records.append(_measured(there, offered, burst, seconds))
    return records


def _everywhere(there: Stage) -> None:
    """Return when all nodes have the filter."""
    until = time.monotonic() + PATIENCE
    for node in there.nodes:
        with node.wire() as wire:
            while NAME.encode() not in wire.call("KEYS", NAME):
                if time.monotonic() > until:
                    raise RuntimeError("a node has not heard of the filter")
                time.sleep(0.05)


def _measured(there: Stage, offered: float, burst: int, seconds: float) -> Record:
    pace = Pace([one.port for one in there.nodes], "BF.ADD", NAME, offered, burst, CONNECTIONS)
    cpu = there.cpu_seconds()
    own = time.process_time()
    if not offered:
        samples, late = _probed(there, seconds)
        reached: Record = {"rate": 0.0, "errors": 0, "left_out": 0, "cpu_seconds": 0.0}
    else:
        with load(pace) as writers:
            writers.start()
            time.sleep(min(1.0, seconds / 4))  # at its pace
            cpu, own = there.cpu_seconds(), time.process_time()
            samples, late = _probed(there, seconds)
            after = there.cpu_seconds()
            reached = writers.end()
    after = there.cpu_seconds() if not offered else after
    used = {name: (after[name] - cpu[name]) / seconds for name in after}
    used["load"] = reached["cpu_seconds"] / max(1e-9, reached.get("seconds", seconds))
    used["prober"] = (time.process_time() - own) / seconds
    return {
        "table": "lag",
        "offered": offered,
        "burst": burst,
        "reached": reached["rate"],
        "errors": reached["errors"],
        "left_out": reached["left_out"],
        "probes": len(samples),
        "late": late,
        "write_ms": _at([one for one, _ in samples], 0.5),
        **{f"p{share * 100:g}_ms": _at([two for _, two in samples], share) for share in _SHARES},
        "cores": used,
    }


_SHARES = (0.5, 0.99, 0.999, 1.0)


def _at(samples: Sequence[float], share: float) -> float:
    ordered = sorted(samples)
    return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _probed(there: Stage, seconds: float) -> tuple[list[tuple[float, float]], int]:
    """Seconds that each write took, and after how many more the others had it; how many probes
    were given up."""
    draw = random.Random(11)
    wires = [node.wire() for node in there.nodes]
    samples: list[tuple[float, float]] = []
    late = number = 0
    try:
        with quiet():
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                time.sleep(draw.random() * 2 * SPACING)
                writer = number % len(wires)
                others = wires[:writer] + wires[writer + 1 :]
                one = _probe(wires[writer], others, f"probe-{number}")
                number += 1
                if one is None:
                    late += 1
                else:
                    samples.append(one)
    finally:
        for wire in wires:
            wire.socket.close()
    return samples, late


def _probe(writer: Wire, others: list[Wire], key: str) -> tuple[float, float] | None:
    clock = time.perf_counter
    sent = clock()
    writer.call("BF.ADD", NAME, key)
    known = clock()
    left = list(others)
    while left:
        for wire in left:
            wire.send("BF.EXISTS", NAME, key)
        left = [wire for wire in left if not wire.reply()]
        if left:
            if clock() - known > PATIENCE:
                return None
            time.sleep(50e-6)
    return known - sent, clock() - known


def render(records: list[Record]) -> str:
    columns = [Column("writes/s", left=True), Column("at once"), Column("reached")]
    columns += [Column(t) for t in ("probes", "a write, p50", "known: p50", "p99", "p99.9", "max")]
    columns += [Column(t) for t in ("Redis", "nodes", "load", "prober: cores")]
    rows = []
    for r in records:
        cores = r["cores"]
        nodes = "+".join(f"{v:.2f}" for name, v in cores.items() if name.startswith("node"))
        rows.append(
            [
                *(f"{r['offered']:,.0f}", str(r["burst"] or "-"), f"{r['reached']:,.0f}"),
                *(f"{r['probes']:,}", f"{r['write_ms']:.2f} ms"),
                *(f"{r[name]:.2f} ms" for name in ("p50_ms", "p99_ms", "p99.9_ms", "p100_ms")),
                *(f"{cores['Redis']:.2f}", nodes),
                *(f"{cores[name]:.2f}" for name in ("load", "prober")),
            ]
        )
    errors, left_out, late = (
        sum(r[name] for r in records) for name in ("errors", "left_out", "late")
    )
    title = (
        f"From an acknowledged write at one of {NODES} nodes until both others know of it; "
        f"{CONNECTIONS} connections a node write BF.ADD at their own pace;\nall of it on this "
        f"machine's cores; {errors} errors, {late} probes given up, {left_out} writes left out "
        f"(since {MOST_WAITING:,} waited on their connection)"
    )
    return table(title, columns, rows)


def judge(records: list[Record]) -> list[Line]:
    what = f"acknowledged write to the others' answer, p99 under {RATE // 1000} k writes/s"
    must, aim = f"<= {MOST_MS:g} ms, at most {LONGEST_MS:g}", f"<= {AIM_MS:g} ms"
    found = [r for r in records if r["table"] == "lag" and r["offered"]]
    if not found:
        return [missing(what, must, aim)]
    measured = ", ".join(
        f"{r['p99_ms']:.2f} ms, at most {r['p100_ms']:.0f} ({r['burst']} at once, "
        f"{r['reached']:,.0f}/s)"
        for r in found
    )
    worst = max(r["p99_ms"] for r in found)
    longest = max(r["p100_ms"] for r in found)
    whole = all(r["reached"] >= 0.98 * r["offered"] and not r["late"] for r in found)
    whole = whole and longest <= LONGEST_MS
    return [Line(what, must, aim, measured, word(whole and worst <= MOST_MS, worst <= AIM_MS))]
