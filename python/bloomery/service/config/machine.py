"""The memory that this process may use: of the machine, or of its cgroup (a container's)."""

from __future__ import annotations

import os
from pathlib import Path

SHARE = 0.8  # of it is for filters, unless the configuration says otherwise
_CGROUP = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def for_filters() -> int:
    """Return the default of `maxmemory` in bytes; 0, no limit, if the memory is not known."""
    return int(memory() * SHARE)


def memory(cgroup: Path = _CGROUP, own: Path = _OWN) -> int:
    """Return the memory of this process in bytes; 0 if the system does not tell."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        pages = 0
    known = [pages, *_limits(cgroup, own)]
    return min((limit for limit in known if limit > 0), default=0)


def _limits(cgroup: Path, own: Path) -> list[int]:
    """Return the memory limits of this process's cgroup (v2 or v1) and of its parents."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = cgroup, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroup / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be the host's: then the root is the cgroup itself.
        for part in (path, *map(str, Path(path).parents)):
            try:
                text = (root / part.lstrip("/") / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():  # "max": none
                limits.append(int(text))
    return limits
