"""The boot-time clock, which nobody sets: for what lasts so many seconds, whatever the wall clock
does."""

from __future__ import annotations

import functools
import time

# Seconds since the machine started. They go on while it is suspended, where it can tell; all
# processes of a machine read the same.
boottime = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
