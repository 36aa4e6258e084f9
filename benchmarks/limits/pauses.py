"""How long another Python thread waits while keys go into a growing filter: it sleeps half a
millisecond at a time, and what it sleeps longer is a pause.

Beside the time on the wall stands what the thread that adds had of a processor meanwhile: on a busy
machine the first counts others' work too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import bloomery
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

    def batches(f: Any) -> None:
        for start in range(0, count, BATCH):
            f.add_many(keys[start : start + BATCH])

    ways: dict[str, Callable[[Any], object]] = {
        "one by one": one_by_one,
        f"in lists of {BATCH:,}": batches,
        "as one list": lambda f: held.append(f.add_many(keys)),
        "as one array": lambda f: held.append(f.add_many(array)),
    }
    for name, work in ways.items():
        progress.step(f"limits: pauses, {name}")
        longest, worked = _longest(partial(work, bloomery.ScalableBloomFilter(FIRST, 0.01)))
        held.clear()
        yield row(
            f"longest pause of another thread, {count:,} keys {name}",
            longest * 1e3,
            20,
            5,
            f"{worked * 1e3:.1f} ms of them at work here",
            unit=" ms",
        )


def _longest(work: Callable[[], object]) -> tuple[float, float]:
    """The longest pause, and the most that the adding thread worked in one."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    pauses: list[tuple[float, float]] = []
    done = threading.Event()

    def look() -> None:
        before, worked = time.perf_counter(), time.clock_gettime(clock)
        while not done.is_set():
            time.sleep(NAP)
            now, more = time.perf_counter(), time.clock_gettime(clock)
            pauses.append((now - before - NAP, more - worked))
            before, worked = now, more

    watcher = threading.Thread(target=look)
    with quiet():
        watcher.start()
        work()
        done.set()
        watcher.join()
    return max(pause for pause, _ in pauses), max(worked for _, worked in pauses)
