"""A row of the limits, and times that are fit for ratios: the best of rounds in turns."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet, rotated

Work = Callable[[], Callable[[], object]]
"""Makes what is to be timed, outside the clock."""


def row(
    what: str,
    measured: float,
    must: float,
    aim: float | None,
    how: str,
    *,
    unit: str = "x",
    better: str = "less",
) -> Record:
    return {
        "what": what,
        "measured": measured,
        "must": must,
        "aim": aim,
        "how": how,
        "unit": unit,
        "better": better,
    }


def best(
    settings: Settings, label: str, works: dict[str, Work], *, wall: bool = False
) -> dict[str, float]:
    """The least seconds of each, of this thread's processor time unless `wall`."""
    clock = time.perf_counter if wall else time.thread_time
    found = dict.fromkeys(works, float("inf"))
    for number in range(settings.rounds):
        progress.step(f"limits: {label}, round {number + 1}/{settings.rounds}")
        for name in rotated(list(works), number):
            call = works[name]()
            with quiet():
                start = clock()
                result = call()
                found[name] = min(found[name], clock() - start)
            del result, call
    return found


def ready(call: Callable[[], object]) -> Work:
    """Work that leaves nothing behind, so that it needs nothing made."""
    return lambda: call
