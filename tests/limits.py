"""Disks that fail: real errors of real files, for as long as a block lasts."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def files_no_larger(nbytes: int) -> Iterator[None]:
    """As long as it is entered, a write beyond this size fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def failing_writes(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the log of this SQLite database: "disk I/O error"."""
    with files_no_larger(path.with_name(f"{path.name}-wal").stat().st_size):
        yield
