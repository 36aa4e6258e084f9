"""The data folder of a server: its parts, and the lock that one server at a time has on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from bloomery import _native, errors
from bloomery.storage.locking import lock_folder

# Version of a data folder (in its control file) and of each segment of its log. A folder that an
# older bloomery could not read completely needs a new one. So does another operation in the log.
FORMAT = _native.LOG_FORMAT
_SQLITE_LOG = 2  # the last version whose log was in SQLite files


def log_folder(data: str | os.PathLike[str]) -> Path:
    """Where the log's segments are."""
    return Path(data, "log")


def segment_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Return the path of a segment in a log folder."""
    return _native.log_segment_path(folder, number)


def segments(folder: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the segments in a log folder, in order."""
    return _native.log_segments(folder)


def check_version(data: str | os.PathLike[str], version: int) -> None:
    """Raise UnsupportedVersion unless this bloomery reads data folders of this version."""
    if version == FORMAT:
        return
    advice = "start the newer bloomery that wrote it"
    if version < FORMAT:
        advice = (
            "start the bloomery that wrote it, back it up (bloomery backup), and restore the "
            "backup with this one (bloomery restore)"
        )
    raise errors.UnsupportedVersion(
        f"{os.fspath(data)}: a data folder of format version {version}, and this bloomery reads "
        f"version {FORMAT}: {advice}"
    )


def check_log(data: str | os.PathLike[str]) -> None:
    """Raise UnsupportedVersion if the log of a data folder is in SQLite files: this bloomery would
    take it for empty."""
    if any(log_folder(data).glob("*.sqlite")):
        check_version(data, _SQLITE_LOG)


def snapshots_folder(data: str | os.PathLike[str]) -> Path:
    """Where the snapshots are."""
    return Path(data, "snapshots")


def lock(data: str | os.PathLike[str]) -> IO[str]:
    """Lock the folder, which is made if need be, until the file that is returned is closed or the
    process ends. FolderInUse if another server has it."""
    return lock_folder(data, "server")
