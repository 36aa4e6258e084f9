"""Is there room? Asked before a large filter is allocated: the kernel promises memory it does not
have and kills the process when it is touched, which no exception handler sees."""

from __future__ import annotations

from bloomery import errors

# Below this no machine is worth asking.
ASK_FROM = 64 << 20

_MEMINFO = "/proc/meminfo"
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def available() -> int | None:
    """Bytes that can be had without swapping, within the cgroup's limit; None where unknown."""
    free: list[int] = []
    try:
        lines = _text(_MEMINFO).splitlines()
        free += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        pass
    for limit, used in _CGROUPS:
        try:
            free.append(int(_text(limit)) - int(_text(used)))
        except (OSError, ValueError):  # no such cgroup, or "max"
            continue
    return max(0, min(free)) if free else None


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


_ADVICE = (
    "use a smaller capacity or a larger error_rate, or map a saved filter with "
    "load(path, mmap=True)"
)


def check(nbytes: int, advice: str = _ADVICE, what: str = "the filter") -> None:
    """Raise NotEnoughMemory, with what to do, unless this many bytes are free."""
    if nbytes < ASK_FROM:
        return
    free = available()
    if free is not None and nbytes > free:
        raise errors.NotEnoughMemory(f"{what} needs {nbytes:,} bytes, {free:,} are free: {advice}")
