"""Whether the machine was ours: how many cores worked for others, before a part and during it."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

BUSY = 0.2
"""More cores than this at work for others: two threads have no two cores, and waits are theirs."""

PATIENCE = 30.0
"""Seconds in which a busy machine may come to rest before a part begins."""

_TICKS = os.sysconf("SC_CLK_TCK")
_KERNEL = 0x00200000  # PF_KTHREAD, of a process's flags


def others_at_work() -> float:
    """How many cores work, or are taken by the machine's host, while this program only sleeps.

    The least of several samples of 2 seconds: what the part before left behind soon ends.
    """
    least, until = _cores_at_work(), time.monotonic() + PATIENCE
    while least > BUSY and time.monotonic() < until:
        least = min(least, _cores_at_work())
    return round(least, 2)


def _cores_at_work(seconds: float = 2.0) -> float:
    try:
        before = _machine()
        time.sleep(seconds)
        work, idle = (after - then for after, then in zip(_machine()[:2], before[:2], strict=True))
    except OSError:  # not Linux
        return os.getloadavg()[0]
    return (os.cpu_count() or 1) * work / max(1, work + idle)


def _machine() -> tuple[int, int, int]:
    """Of all cores since the start of the machine, in ticks: at work or stolen, idle; stolen."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle, fields[7]


def adopt() -> None:
    """Let processes whose parents end become ours, and not those of the system's first one: what a
    browser leaves to itself would count as others' work."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class Watch:
    """How many cores other programs and the machine's host took since this was made.

    Ours are this process and all that descend from it. What a process did is in the kernel's count
    for its parent once that has waited for it, so the sum over those that live misses none.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = others()

    def cores(self) -> float:
        """0 where the system does not tell."""
        now, then = others(), self._before
        if not now or not then:
            return 0.0
        grown = sum(own + waited for own, waited in now.values())
        grown -= sum(own + waited for own, waited in then.values())
        # Nobody waits for some processes: what those did who outlived the part is the least.
        least = sum(now[one][0] - then[one][0] for one in now.keys() & then.keys())
        return round(max(grown, least) / _TICKS / (time.monotonic() - self._began), 2)


def others() -> dict[tuple[int, int], tuple[int, int]]:
    """Of each process that is neither ours nor the kernel's, by number and start: ticks of its own,
    and of those that it waited for; and what the host took, under (0, 0)."""
    found: dict[int, tuple[int, tuple[int, int], tuple[int, int]]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[6]) & _KERNEL:
            continue
        user, system, users, systems = map(int, fields[11:15])
        number = int(file.parent.name)
        times = (user + system, users + systems)
        found[number] = (int(fields[1]), (number, int(fields[19])), times)
    if not found:
        return {}
    ours: set[int] = set()
    more = {os.getpid()}
    while more:
        ours |= more
        more = {number for number, (parent, _, _) in found.items() if parent in ours} - ours
    others = {name: times for n, (_, name, times) in found.items() if n not in ours}
    return others | {(0, 0): (_machine()[2], 0)}
