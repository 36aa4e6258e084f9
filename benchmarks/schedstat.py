"""What Linux's scheduler counts of threads: time on a processor, and time spent waiting for one."""

from __future__ import annotations

import contextlib
from io import FileIO
from pathlib import Path


def opened(process: int | str = "self") -> FileIO:
    """The counts of a process's first thread, to be read again and again."""
    return Path(f"/proc/{process}/schedstat").open("rb", buffering=0)


def ran(file: FileIO) -> float:
    """Seconds that the thread was on a processor."""
    return _seconds(file, 0)


def waited(file: FileIO) -> float:
    """Seconds that the thread was ready to run, and another one ran."""
    return _seconds(file, 1)


def cpu_seconds(process: int) -> float:
    """Seconds that all threads of a process that have not ended were on a processor."""
    spent = 0.0
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            spent += ran(file)  # unless it has just ended
    return spent


def _seconds(file: FileIO, field: int) -> float:
    file.seek(0)
    return int(file.read().split()[field]) / 1e9
