"""The data folder of a server: its parts, and the lock that one server at a time has on it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from bloomery import errors

# Of a data folder (its control file) and of each segment of its log: 1 had neither. Whatever a
# bloomery of before could not read whole takes a new one, another operation in the log too.
FORMAT = 2


def log_folder(data: str | os.PathLike[str]) -> Path:
    """Where the log's segments are."""
    return Path(data, "log")


def snapshots_folder(data: str | os.PathLike[str]) -> Path:
    """Where the generations of snapshots are."""
    return Path(data, "snapshots")


def lock(data: str | os.PathLike[str]) -> IO[str]:
    """Lock the folder, which is made if need be, until the file that is returned is closed or the
    process ends. FolderInUse if another server has it."""
    Path(data).mkdir(mode=0o700, parents=True, exist_ok=True)  # others' filters are not for all
    file = Path(data, "lock").open("a+", encoding="ascii")  # noqa: SIM115  # for the caller
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read(32).strip() or "unknown"
        file.close()
        raise errors.FolderInUse(
            f"{os.fspath(data)}: another server has this folder, process {owner}: stop it, or use "
            "another folder"
        ) from None
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
