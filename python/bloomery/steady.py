"""A clock that nobody sets: for whatever lasts so many seconds, whatever the wall clock does."""

from __future__ import annotations

import functools
import time

__all__ = ["steady"]

# Seconds since the machine started. They go on while it is suspended, where it can tell; all
# processes of a machine read the same.
steady = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
