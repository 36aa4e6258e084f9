"""Files on their way into a folder: under a hidden name until they are whole, then named."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bloomery import errors
from bloomery.feeds.manifest import NAME as MANIFEST
from bloomery.feeds.manifest import FeedFile
from bloomery.storage.files import sync_folder

FEED, COPY = "a feed that was published here", "a subscriber's copy"
SEEN = "seen.json"
_CHUNK = 1 << 20
# Files of a feed, and what a kill may leave of one on its way: nothing else in a folder is ours.
_FEED_FILE = re.compile(r"(?:\d+-)?[0-9a-f]{16}\.bloom|\d+-\d+-[0-9a-f]{16}\.delta")
_LEFT_OVER = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


def full_name(version: int, sha256: str) -> str:
    """The name of a full file."""
    return f"{version}-{sha256[:16]}.bloom"


def local_name(sha256: str) -> str:
    """The name of a subscriber's file: never one that a manifest chose."""
    return f"{sha256[:16]}.bloom"


def delta_name(before: int, version: int, sha256: str) -> str:
    """The name of a delta between two versions."""
    return f"{before}-{version}-{sha256[:16]}.delta"


def refuse_other_use(folder: Path, *, here: str) -> None:
    """Raise InvalidParameter if a folder is a feed and is to be a copy, or the other way round:
    each removes files that the other needs."""
    there = COPY if (folder / SEEN).exists() else FEED
    if here != there and (folder / MANIFEST).exists():
        raise errors.InvalidParameter(
            f"{folder} is {there}, and cannot be {here}: use another folder"
        )


@contextlib.contextmanager
def incoming(folder: Path) -> Iterator[Path]:
    """A hidden path for a new file, which is removed unless it was settled."""
    path = folder / f".incoming.{os.urandom(8).hex()}.tmp"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def settle(path: Path, target: Path) -> None:
    """Give a file its name, when it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.replace(target)
    sync_folder(str(target.parent))


def digest(path: Path) -> tuple[str, int]:
    """SHA-256 of a file, in hexadecimal, and its size."""
    summed, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            summed.update(chunk)
            size += len(chunk)
    return summed.hexdigest(), size


def is_whole(path: Path, file: FeedFile) -> bool:
    """True if there is a file with the right bytes in it."""
    try:
        return path.stat().st_size == file.size and digest(path)[0] == file.sha256
    except OSError:
        return False


def remove_old(folder: Path, keep: set[str], before: float) -> None:
    """Remove the files of a feed that are not to be kept and were last touched before a time."""
    with os.scandir(folder) as entries:
        for entry in entries:
            ours = _FEED_FILE.fullmatch(entry.name) or _LEFT_OVER.fullmatch(entry.name)
            if ours and entry.name not in keep:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        os.unlink(entry.path)
