"""Disks that fail: real errors of real files, for as long as a block lasts."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import missing


@contextmanager
def small_disk(folder: Path, nbytes: int) -> Iterator[Path]:
    """Mount an empty disk of `nbytes` bytes at a new folder.

    Its files grow by single pages, whatever the kernel's default is: with huge pages a file on a
    full disk has room for up to 2 MiB more.
    """
    folder.mkdir()
    rights = [] if os.geteuid() == 0 else ["sudo", "-n"]
    options = f"size={nbytes},mode=777,huge=never"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        subprocess.run([*rights, *command], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        missing("the right to mount a small disk (root)")
    try:
        yield folder
    finally:
        subprocess.run([*rights, "umount", "--lazy", str(folder)], check=True)


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
