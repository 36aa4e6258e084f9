"""Checks of three nodes behind HAProxy beside one node directly, and what a check costs the nodes.

Two cores are not enough for three nodes, HAProxy and who asks. So one node has a core to itself,
and all else shares the other, at a load that it can bear. What counts is the processor time of a
check in that node, which gets as many checks a second in either case: directly, or as its third of
what HAProxy spreads. If it is the same, three nodes with a core each do three times as many checks.

What a check costs depends on how busy a node is: one that finds several requests waiting answers
them in one turn. So redis-benchmark, which asks as fast as it is answered, stands beside it, and is
not judged: HAProxy on a third of a core cannot keep three nodes as busy as it keeps one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

from benchmarks.cluster.pace import Pace, load
from benchmarks.cluster.stage import NODES, balancer, stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.rates import CONNECTIONS, benchmark
from benchmarks.service.servers import Running
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

NAME = "checked"
MOST = 1.10
PACES = {1: 2_000, 16: 24_000}  # a pipeline of so many: checks a second and a node
SECONDS = 1.5
DIRECT = "one node"
BALANCED = f"{NODES} nodes, HAProxy"
EVEN, FULL = "even pace", "redis-benchmark"

Found = tuple[float, float, float]  # checks a second; microseconds of the nodes, of HAProxy


def run(settings: Settings) -> list[Record]:
    keys = settings.service_keys
    found: dict[tuple[str, int, str], list[Found]] = {}
    with stage() as there:
        nodes = there.start(NODES, pinned=True)
        for node in nodes[1:]:
            os.sched_setaffinity(node.process.pid, {int(servers.cores()[1])})
        with nodes[0].wire() as wire:
            wire.call("BF.RESERVE", NAME, 0.01, keys, "KIND", "bloom")
            wire.add(NAME, range(keys))
        _require_all(nodes, keys)
        with balancer(there.folder, nodes) as front:
            doors = {DIRECT: (nodes[0], nodes[:1]), BALANCED: (front, nodes)}
            rounds = settings.cluster_check_rounds
            for number in range(rounds):
                for pipeline in PACES:
                    progress.step(
                        f"cluster: checks, pipeline of {pipeline}, round {number + 1} of {rounds}"
                    )
                    for who, (door, asked) in doors.items():
                        for how, work in ((EVEN, _paced), (FULL, _full)):
                            one = _used(work, door, asked, front, pipeline, settings)
                            found.setdefault((how, pipeline, who), []).append(one)
    return [
        {
            "table": "checks",
            "how": how,
            "who": who,
            "pipeline": pipeline,
            "rounds": len(some),
            "rate": median(rate for rate, _, _ in some),
            "us": median(us for _, us, _ in some),
            "haproxy_us": median(us for _, _, us in some),
            "ratio": median(
                one[1] / other[1]
                for one, other in zip(some, found[how, pipeline, DIRECT], strict=True)
            ),
        }
        for (how, pipeline, who), some in found.items()
    ]


def _require_all(nodes: list[Running], keys: int) -> None:
    for node in nodes:
        with node.wire() as wire:
            lost = keys - wire.count(NAME, range(keys))
        if lost:
            raise RuntimeError(f"{lost} keys are not on every node")


def _used(
    work: Callable[[Running, int, int, Settings], tuple[float, int]],
    door: Running,
    asked: list[Running],
    front: Running,
    pipeline: int,
    settings: Settings,
) -> Found:
    # Of an even pace a node gets its exact share: HAProxy gives each as many connections.
    watched = asked[:1] if work is _paced else asked
    before, front_before = sum(one.cpu_seconds() for one in watched), front.cpu_seconds()
    rate, checks = work(door, len(asked), pipeline, settings)
    used = sum(one.cpu_seconds() for one in watched) - before
    share = checks * len(watched) / len(asked)
    return rate, used / share * 1e6, (front.cpu_seconds() - front_before) / checks * 1e6


def _paced(door: Running, nodes: int, pipeline: int, settings: Settings) -> tuple[float, int]:
    """As many checks a second and connections for each node."""
    keys = 2 * settings.service_keys  # half of them are in
    rate = nodes * PACES[pipeline]
    pace = Pace([door.port], "BF.EXISTS", NAME, rate, pipeline, nodes * CONNECTIONS, keys)
    with load(pace, servers.cores()[1]) as running:
        running.start()
        time.sleep(SECONDS * min(1.0, settings.scale))
        found = running.end()
    return found["rate"], found["replies"]


def _full(door: Running, nodes: int, pipeline: int, settings: Settings) -> tuple[float, int]:
    checks = 2 * settings.service_requests(pipeline)
    words, keys = ["BF.EXISTS", NAME, "__rand_int__"], 2 * settings.service_keys
    connections = nodes * CONNECTIONS
    return benchmark(door.port, words, pipeline, checks, keys, connections=connections), checks


def render(records: list[Record]) -> str:
    columns = [Column("load", left=True), Column("pipeline"), Column("who is asked", left=True)]
    columns += [Column(t) for t in ("checks/s", "nodes' CPU a check", "to one node", "HAProxy's")]
    rows = [
        [
            *(r["how"], str(r["pipeline"]), r["who"], f"{r['rate']:,.0f}"),
            *(f"{r['us']:.2f} µs", f"{r['ratio']:.2f}x", f"{r['haproxy_us']:.2f} µs"),
        ]
        for r in sorted(records, key=lambda r: (r["how"], r["pipeline"]))
    ]
    title = (
        f"BF.EXISTS, {CONNECTIONS} connections a node; even pace: of the node that has a core to "
        f"itself, redis-benchmark: of all;\nmedians of {records[0]['rounds']} rounds"
    )
    return table(title, columns, rows)


def judge(records: list[Record]) -> list[Line]:
    what = f"{NODES} nodes behind HAProxy: the nodes' CPU a check, to one node directly"
    must = f"<= {MOST:g}x"
    found = [r for r in records if r["table"] == "checks" and r["who"] == BALANCED]
    even, full = ([r for r in found if r["how"] == how] for how in (EVEN, FULL))
    if not even:
        return [missing(what, must)]
    measured = ", ".join(f"{r['ratio']:.2f}x (pipeline of {r['pipeline']})" for r in even)
    measured += " at the same load a node; as fast as these two cores let them: "
    measured += ", ".join(f"{r['ratio']:.2f}x" for r in full)
    return [Line(what, must, "-", measured, word(max(r["ratio"] for r in even) <= MOST))]
