"""The data folder of a server: its parts, and the lock that one server at a time has on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from bloomery.storage.locking import lock_folder

# Of a data folder (its control file) and of each segment of its log: 1 had neither. Whatever a
# bloomery of before could not read whole takes a new one, another operation in the log too.
FORMAT = 2


def log_folder(data: str | os.PathLike[str]) -> Path:
    """Where the log's segments are."""
    return Path(data, "log")


def snapshots_folder(data: str | os.PathLike[str]) -> Path:
    """Where the snapshots are."""
    return Path(data, "snapshots")


def lock(data: str | os.PathLike[str]) -> IO[str]:
    """Lock the folder, which is made if need be, until the file that is returned is closed or the
    process ends. FolderInUse if another server has it."""
    return lock_folder(data, "server")
