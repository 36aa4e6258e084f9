"""How long another Python thread waits while keys go into a growing filter: it sleeps half a
millisecond at a time, and what it sleeps longer is a pause, but for the time in which the machine's
host had taken one of the processors (beats.py). Where they may, both run before other programs.

A thread that wants the interpreter lock asks for it after 5 ms (`sys.getswitchinterval`), so that a
loop without a filter makes it wait as long, and then for the machine's clock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import bloomery
from benchmarks import beats
from benchmarks.keys import int64s
from benchmarks.limits.rows import row
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet

NAP = 0.0005
FIRST = 1_000
BATCH = 1_000


def run(settings: Settings) -> Iterator[Record]:
    count = settings.size(2_000_000 if settings.quick else 20_000_000)
    array = int64s(0, count)
    keys = array.tolist()
    held: list[Any] = []  # answers are freed after the clock stopped: that is the caller's time

    def one_by_one(f: Any) -> None:
        add = f.add
        for key in keys:
            add(key)

    def nothing() -> None:
        for _key in keys:
            pass

    def batches(f: Any) -> None:
        for start in range(0, count, BATCH):
            f.add_many(keys[start : start + BATCH])

    ways: dict[str, Callable[[Any], object]] = {
        "one by one": one_by_one,
        f"in lists of {BATCH:,}": batches,
        "as one list": lambda f: held.append(f.add_many(keys)),
        "as one array": lambda f: held.append(f.add_many(array)),
    }
    floor = _longest(nothing)[0]
    for name, work in ways.items():
        progress.step(f"limits: pauses, {name}")
        longest, wall = _longest(partial(work, bloomery.ScalableBloomFilter(FIRST, 0.01)))
        held.clear()
        yield row(
            f"longest pause of another thread, {count:,} keys {name}",
            longest * 1e3,
            20,
            5,
            f"{wall * 1e3:.1f} ms with the host's; a loop without a filter {floor * 1e3:.1f} ms",
            unit=" ms",
        )


def _longest(work: Callable[[], object]) -> tuple[float, float]:
    """The longest pause without the time in which the machine stood still, and with it."""
    naps: list[tuple[float, float]] = []
    done = threading.Event()

    def look() -> None:
        before = time.perf_counter()
        while not done.is_set():
            time.sleep(NAP)
            now = time.perf_counter()
            naps.append((before, now))
            before = now

    with (
        beats.before_others() as allowed,
        _processors() as processors,
        # Behind others a beat would wait for us, too.
        beats.beating(processors if allowed else ()) as late,
        quiet(),
    ):
        watcher = threading.Thread(target=look)
        watcher.start()
        work()
        done.set()
        watcher.join()
    longest = max(beats.without(*nap, late) for nap in naps)
    return longest - NAP, max(end - start for start, end in naps) - NAP


@contextmanager
def _processors() -> Iterator[set[int]]:
    """Two processors that this thread and those it starts stay on: which ones stand still is then
    known. None where the system does not let anybody choose."""
    if not hasattr(os, "sched_setaffinity"):
        yield set()
        return
    before = os.sched_getaffinity(0)
    chosen = set(sorted(before)[:2])
    os.sched_setaffinity(0, chosen)
    try:
        yield chosen
    finally:
        os.sched_setaffinity(0, before)
