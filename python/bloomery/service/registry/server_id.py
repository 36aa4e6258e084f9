"""Which server this is, in a registry that others use too: a number that is made once and kept."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from bloomery.storage import files

LOCAL_REGISTRY = "registry.sqlite"  # in the data folder, where no other is configured


def server_id(data: Path, *, new: bool, problems: list[str]) -> str:
    """Read the id of a data folder, or make one. If the folder is not new and has none, this is
    added to the problems, and the folder's own registry is removed, to be made anew."""
    path = data / "id"
    known = path.read_bytes().strip() if path.exists() else b""
    if re.fullmatch(rb"[0-9a-f]{16}", known):
        return known.decode()
    if not new:
        problems.append(
            f"{path}: {'damaged' if known else 'missing'}: to a registry this is now another "
            "server, which cannot have the names of the one before"
        )
        for left in data.glob(f"{LOCAL_REGISTRY}*"):
            left.unlink()
    new_id = secrets.token_hex(8)
    with files.replacing(path) as file:
        file.write(new_id.encode())
    return new_id
