"""When the machine stood still: a process for each processor that only sleeps, half a millisecond
at a time, before all others, and notes when it woke up late.

A virtual machine's host takes a processor away for tens of milliseconds at a time, whoever runs on
it. A pause of ours that lies in such a time says nothing of us. `python -m benchmarks.beats NUMBER`
beats on that processor until its input ends, and prints when it was late as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator

NAP = 0.0005
LATE = 0.002
"""Seconds beyond a nap from which on it is told."""

Times = list[tuple[float, float]]
"""From and to, by `time.perf_counter`, which all processes of a machine share on Linux."""


@contextlib.contextmanager
def before_others() -> Iterator[bool]:
    """This thread and those it starts run before all other programs: false where they may not."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):  # not Linux, or not allowed
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, *before)


@contextlib.contextmanager
def beating(processors: Collection[int]) -> Iterator[Times]:
    """Fills the list when it ends."""
    late: Times = []
    beats: list[subprocess.Popen[str]] = []
    try:
        for number in processors:
            command = [sys.executable, "-m", __name__, str(number)]
            pipe = subprocess.PIPE
            beats.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe))
        for beat in beats:
            assert beat.stdout is not None
            beat.stdout.readline()
        yield late
        for beat in beats:
            late += [(start, end) for start, end in json.loads(beat.communicate()[0])]
    finally:
        for beat in beats:
            beat.kill()
            beat.wait()


def without(start: float, end: float, late: Times) -> float:
    """Seconds from `start` to `end` in which no processor stood still."""
    left, at = end - start, start
    for began, ended in sorted(late):
        began, ended = max(began, at), min(ended, end)
        if ended > began:
            left, at = left - (ended - began), ended
    return left


def _wait(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _main(processor: int) -> None:
    try:
        os.sched_setaffinity(0, {processor})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    except (AttributeError, OSError):  # as above: nothing is known of the host
        print("\n[]", flush=True)
        return
    over = threading.Event()
    threading.Thread(target=_wait, args=(over,)).start()
    gc.disable()
    print(flush=True)
    late: Times = []
    before = time.perf_counter()
    while not over.is_set():
        time.sleep(NAP)
        now = time.perf_counter()
        if now - before > NAP + LATE:
            late.append((before, now))
        before = now
    print(json.dumps(late))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
