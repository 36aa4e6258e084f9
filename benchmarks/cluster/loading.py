"""How fast a node has its copy: a snapshot of 1 GiB in Redis, until it is ready; and
`to_local` of a filter in Redis."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.cluster.stage import Stage, stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet
from bloomery import sizing
from bloomery.integrations.redis import RedisFilter

LEAST = 500.0  # MB/s
ERROR_RATE = 0.01
NAME = "large"


# New memory may cost more than all else: a virtual machine whose free memory goes back to its host
# after two seconds (free page reporting) was seen to take 3.3 s for 1 GiB, in any program. So the
# same is measured with memory that another process has just let go of; and what new memory takes by
# itself is told beside it.
_HOLD = """
import mmap, sys, time
began = time.perf_counter()
held = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(held), 4096):
    held[at] = 0
print(time.perf_counter() - began, flush=True)
sys.stdin.read()
"""
_SETTLED = 4.0  # seconds after which what is free has gone back
_STARTED = 0.3  # seconds after which a node has begun, and has not come to its filters


def run(settings: Settings) -> list[Record]:
    """An empty node's start is kept apart: it is the same without a filter."""
    with stage() as there:
        empty = [there.timed() for _ in range(settings.cluster_loads)]
        nbytes = _fill(there, settings.cluster_load_bytes)
        fresh, given, new = [], [], []
        local = [_to_local(there, nbytes) for _ in range(settings.cluster_loads)]
        for number in range(settings.cluster_loads):
            progress.step(f"cluster: loading, round {number + 1} of {settings.cluster_loads}")
            time.sleep(_SETTLED)
            fresh.append(there.timed())
            time.sleep(_SETTLED)
            with _held(nbytes) as (seconds, let_go):
                new.append(seconds)
                threading.Timer(_STARTED, let_go).start()
                given.append(there.timed())
    off = median(empty)
    return [
        _record("a node, until it is ready", nbytes, median(given) - off, off),
        _record("a node, in memory new to this machine", nbytes, median(fresh) - off, off),
        _record("new memory alone, written once a page", nbytes, median(new), 0.0),
        _record("RedisFilter.to_local", nbytes, median(local), 0.0),
    ]


@contextlib.contextmanager
def _held(nbytes: int) -> Iterator[tuple[float, Callable[[], None]]]:
    """Another process has so much memory, and half as much again, until it is told to let go."""
    command = [sys.executable, "-c", _HOLD, str(nbytes * 3 // 2)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield float(process.stdout.readline()) / 1.5, process.stdin.close


def _fill(there: Stage, wanted: int) -> int:
    """A snapshot of a filter of about so many bytes."""
    progress.step("cluster: loading, the snapshot")
    capacity = sizing.solve(memory=wanted, error_rate=ERROR_RATE).capacity
    [node] = there.start()
    with node.wire() as wire:
        wire.call("BF.RESERVE", NAME, ERROR_RATE, capacity, "KIND", "bloom")
        wire.add(NAME, range(100_000))
        wire.call("SAVE")
    node.stop()
    return wanted


def _to_local(there: Stage, nbytes: int) -> float:
    """Seconds for a copy of a filter of about so many bytes in Redis itself."""
    capacity = sizing.solve(memory=nbytes, error_rate=ERROR_RATE).capacity
    with RedisFilter.create(there.url, "copied", capacity, ERROR_RATE) as one, quiet():
        began = time.perf_counter()
        made = one.to_local()
        taken = time.perf_counter() - began
        del made
        one.delete()
    return taken


def _record(what: str, nbytes: int, seconds: float, empty: float) -> Record:
    return {
        "table": "loading",
        "what": what,
        "nbytes": nbytes,
        "seconds": seconds,
        "empty_seconds": empty,
        "mb_a_second": nbytes / 1e6 / max(seconds, 1e-3),
    }


def _whole(record: Record) -> tuple[float, float]:
    """Seconds, a node's start among them, and MB a second. What a start takes differs by more than
    the loading of what is in memory, so that the difference of two says nothing."""
    seconds = record["seconds"] + record["empty_seconds"]
    return seconds, record["nbytes"] / 1e6 / seconds


def render(records: list[Record]) -> str:
    columns = [Column("what", left=True)]
    columns += [Column(t) for t in ("bits", "seconds", "MB/s", "an empty one: seconds")]
    rows = [
        [
            r["what"],
            f"{r['nbytes'] / 1e6:,.0f} MB",
            f"{_whole(r)[0]:.2f}",
            f"{_whole(r)[1]:,.0f}",
            f"{r['empty_seconds']:.2f}" if r["empty_seconds"] else "-",
        ]
        for r in records
    ]
    return table("Bits out of Redis, medians; a node's start included", columns, rows)


def judge(records: list[Record]) -> list[Line]:
    what, must = "loading 1 GiB of bits into a node", f">= {LEAST:g} MB/s"
    found = [r for r in records if r["table"] == "loading"]
    if not found:
        return [missing(what, must)]
    measured = ", ".join(f"{_whole(r)[1]:,.0f} MB/s ({r['what']})" for r in found)
    return [Line(what, must, "-", measured, word(_whole(found[0])[1] >= LEAST))]
