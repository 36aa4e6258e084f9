"""A lock on a folder, which one process at a time has."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from bloomery import errors


def lock_folder(folder: str | os.PathLike[str], owner: str) -> IO[str]:
    """Lock the folder, which is made if need be, until the file that is returned is closed or the
    process ends. FolderInUse if another `owner`, a server say, has it."""
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)  # others' keys are not for all
    file = Path(folder, "lock").open("a+", encoding="ascii")  # noqa: SIM115  # for the caller
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        process = file.read(32).strip() or "unknown"
        file.close()
        raise errors.FolderInUse(
            f"{os.fspath(folder)}: another {owner} has this folder, process {process}: stop it, or "
            "use another folder"
        ) from None
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
