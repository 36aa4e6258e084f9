"""How long a single BF.EXISTS takes under load, before, during and after snapshots of 1 GB.

The load is half of what the server answered a moment before to clients that wait for it: near that,
a figure would be of the queue in front of the server, and on a machine whose speed wanders nobody
knows how near a fixed load is.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import hiredis

from benchmarks import busy, schedstat
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.wire import Wire, key, packed
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet

SHARE = 0.5
"""Of the capacity, offered as the load."""

CAPACITY_SECONDS = 5.0
EVERY = 0.001
"""Seconds between two probes, on average. The load sends bursts each millisecond: probes at the
same pace would meet the same part of every burst, in one phase its end and in the next its start,
and p99 would differ by six times between phases in which nothing differs."""

CALM = 4.0
"""Seconds before and after a snapshot."""

LONGEST = 600.0


def run(settings: Settings) -> list[Record]:
    keys = settings.logged_keys
    # Not pinned: a snapshot is a process of its own, and the kernel may put it where there is room.
    with (
        servers.scratch() as folder,
        servers.bloomery(folder / "data", "--set", "snapshot-seconds=0", pinned=False) as server,
        server.wire() as wire,
        server.wire() as asked,
    ):
        progress.step(f"service: latency, adding {keys:,} keys")
        wire.call("BF.RESERVE", "big", 0.01, settings.snapshot_capacity, "KIND", "bloom")
        wire.add("big", range(keys))
        about = wire.call("BF.INFO", "big")
        nbytes = dict(zip(about[::2], about[1::2], strict=True))[b"Size"]
        records: list[Record] = []
        capacity = _capacity(server.port)
        offered = SHARE * capacity
        with _load(server.port, offered) as load, quiet():
            for when in _phases(wire, folder / "data" / "snapshots"):
                progress.step(f"service: latency, {when.name}")
                began, watch = time.monotonic(), busy.Watch()
                samples, wall = _probe(asked, when.over)
                record = _record(when.name, samples, wall, time.monotonic() - began)
                records.append(record | {"others": watch.cores()})
        load |= {"capacity": capacity, "offered": offered}
        for record in records:
            record |= {"table": "latency", "filter_bytes": nbytes, "load": load}
        return records


class _Phase:
    def __init__(self, name: str, over: Callable[[], bool]) -> None:
        self.name, self.over = name, over


def _phases(wire: Wire, snapshots: Path) -> Iterator[_Phase]:
    """Calm, a first snapshot (all of it from the log), calm, a second one (a copy, and the log)."""
    yield _Phase("before", _after(CALM))
    for name in ("first snapshot", "second snapshot"):
        done = _made(snapshots)
        _save(wire)
        until = _after(LONGEST)
        yield _Phase(name, partial(_saved, snapshots, done, until))
        if until():
            raise RuntimeError(f"the {name} took longer than {LONGEST:.0f} s")
        yield _Phase(f"after the {name}", _after(CALM))


def _save(wire: Wire) -> None:
    """Begin a snapshot, when the one before has ended: that goes on after its manifest is there."""
    late = _after(LONGEST)
    while True:
        try:
            wire.call("BGSAVE")
            return
        except hiredis.ReplyError:
            if late():
                raise
        time.sleep(0.1)


def _made(snapshots: Path) -> set[Path]:
    return set(snapshots.glob("*/manifest.json"))


def _saved(snapshots: Path, before: set[Path], until: Callable[[], bool]) -> bool:
    return until() or not _made(snapshots) <= before


def _after(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def _capacity(port: int) -> float:
    """Requests a second that are answered if the next ones are sent when the last ones are."""
    progress.step("service: latency, the capacity")
    with _load(port, math.inf) as outcome:
        time.sleep(CAPACITY_SECONDS)
    return float(outcome["rate"])


@contextlib.contextmanager
def _load(port: int, rate: float) -> Iterator[Record]:
    """The load; what came of it is known once it has ended."""
    command = [sys.executable, "-m", "benchmarks.service.load", str(port), "big", str(rate)]
    outcome: Record = {}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield outcome
        printed, _ = process.communicate(b"\n", timeout=60)
        outcome.update(json.loads(printed))
    finally:
        process.kill()
        process.wait()


def _probe(wire: Wire, over: Callable[[], bool]) -> tuple[list[float], list[float]]:
    """Seconds of each request: without those in which this process had no processor to read the
    reply, and with them. Requests are sent on time whether or not the last was answered, so that a
    stall of the server meets as many of them as it would meet users; one that waited for the reply
    to the last would measure its own queue wherever an answer takes as long as it pauses."""
    samples: list[float] = []
    wall: list[float] = []
    sent: deque[tuple[float, float]] = deque()
    clock, number, ending = time.perf_counter, 0, False
    with schedstat.opened() as own:
        due = clock()
        while not ending or sent:
            if not ending and clock() >= due:
                request = packed(("BF.EXISTS", "big", key(number)))
                sent.append((clock(), schedstat.waited(own)))
                wire.socket.sendall(request)
                number, due = number + 1, due + EVERY * random.uniform(0.5, 1.5)
                ending = number % 50 == 0 and over()
                continue
            pause = LONGEST if ending else max(0.0, due - clock())
            if not select.select([wire.socket], [], [], pause)[0]:
                continue
            for _ in range(wire.receive()):
                began, before = sent.popleft()
                wall.append(clock() - began)
                samples.append(max(0.0, wall[-1] - (schedstat.waited(own) - before)))
    return samples, wall


def _record(when: str, samples: list[float], wall: list[float], seconds: float) -> Record:
    samples.sort()
    wall.sort()

    def at(share: float, of: list[float] = samples) -> float:
        return of[min(len(of) - 1, int(share * len(of)))] * 1000

    return {
        "when": when,
        "seconds": seconds,
        "probes": len(samples),
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "max_ms": at(1),
        "wall_p99_ms": at(0.99, wall),
    }


def render(records: list[Record]) -> str:
    load = records[0]["load"]
    title = (
        f"BF.EXISTS on a filter of {records[0]['filter_bytes'] / 1e9:.2f} GB under "
        f"{load['rate']:,.0f} requests a second ({load['offered']:,.0f} offered, half of the "
        f"{load['capacity']:,.0f} it could answer, 80% BF.EXISTS, 20% BF.ADD, 50 connections; "
        f"{load['errors']} errors, {load['left_out']:,} left out)"
    )
    titles = ("seconds", "probes", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "p99 on the wall, ms")
    columns = [Column("when", left=True), *map(Column, (*titles, "cores that others took"))]
    names = ("p50_ms", "p99_ms", "p999_ms", "max_ms", "wall_p99_ms")
    rows = [
        [
            r["when"],
            f"{r['seconds']:.1f}",
            f"{r['probes']:,}",
            *(f"{r[name]:.2f}" for name in (*names, "others")),
        ]
        for r in records
    ]
    return table(title, columns, rows)
