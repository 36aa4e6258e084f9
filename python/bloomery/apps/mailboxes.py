"""Mailboxes on disk, Maildir folders and mbox files: messages as their own bytes, taken out safely.

A Maildir is a file for each message: one is deleted or moved at a time. An mbox is one file, which
the standard library writes anew beside the old one and renames. A message that is moved is written
to the other mailbox first: interrupted at any point, it is in one of the two, or in both.
"""

from __future__ import annotations

import errno
import mailbox
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bloomery.errors import InvalidParameter
from bloomery.storage.files import sync_folder

if TYPE_CHECKING:
    from typing_extensions import Self

_FOLDERS = ("cur", "new")
# The line before each message of an mbox: who sent it, and when. A line of text may begin so too.
_FROM_LINE = re.compile(rb"From \S+\s+.*\d\d:\d\d.*\d{4}")
_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:")
_CONTENT_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,15})[ \t\r]*$", re.I | re.M)
_END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
_SLACK = 2  # bytes: programs count the empty lines at the end of a message in more than one way


class Maildir:
    """A folder of messages; what other programs do to it meanwhile does no harm."""

    def __init__(self, path: Path) -> None:
        """Open the one that is there."""
        if not all((path / name).is_dir() for name in _FOLDERS):
            raise InvalidParameter(f"{path} is no Maildir: it has no folders cur and new")
        self.path = path

    def messages(self) -> Iterator[tuple[Path, bytes | None]]:
        """Yield each message and its bytes, the oldest name first.

        None for its bytes: it cannot be read, or is a symbolic link, which is no copy.
        """
        files = [
            file
            for name in _FOLDERS
            for file in (self.path / name).iterdir()
            if not file.name.startswith(".")
        ]
        for file in sorted(files, key=lambda file: file.name):
            try:
                yield file, None if file.is_symlink() else file.read_bytes()
            except FileNotFoundError:
                continue  # read or deleted by a mail program meanwhile
            except OSError:
                yield file, None

    def remove(self, files: list[Path]) -> None:
        """Delete messages."""
        for file in files:
            file.unlink(missing_ok=True)

    def move(self, files: list[Path], to: Path) -> None:
        """Move messages, with their flags, to a Maildir that is made if it is not there."""
        for name in (*_FOLDERS, "tmp"):
            (to / name).mkdir(parents=True, exist_ok=True)
        for file in files:
            place = to / file.parent.name / file.name
            with suppress(FileNotFoundError):
                try:
                    os.link(file, place)  # unlike a rename, never over another message
                except OSError as problem:
                    if problem.errno == errno.ENOENT:
                        continue
                    if problem.errno == errno.EEXIST:
                        same = os.path.samestat(place.lstat(), file.lstat())
                        place = place if same else _other_name(place)
                    if not place.exists():
                        _copy(file, to / "tmp" / file.name, place)
                sync_folder(str(place.parent))
                file.unlink()

    def __enter__(self) -> Self:
        """Need no lock."""
        return self

    def __exit__(self, *_: object) -> None:
        """Have nothing to close."""


def _other_name(place: Path) -> Path:
    base, colon, flags = place.name.partition(":")
    return place.with_name(f"{base}.{os.urandom(4).hex()}{colon}{flags}")


def _copy(file: Path, temporary: Path, place: Path) -> None:
    """Copy to another file system: whole, or not at all."""
    with file.open("rb") as source, temporary.open("wb") as target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    temporary.rename(place)


class Mbox:
    """A file of messages; locked while it may be changed, as mail programs do it."""

    def __init__(self, path: Path, *, change: bool) -> None:
        """Open the one that is there."""
        with path.open("rb") as file:
            if file.read(5) not in (b"From ", b""):
                raise InvalidParameter(f"{path} is no mbox: its first line begins not with 'From '")
        self.path, self._change = path, change
        self._box = mailbox.mbox(path, create=False)

    def messages(self) -> Iterator[tuple[Any, bytes | None]]:
        """Yield each message and its bytes, in their order.

        None for its bytes: it begins with a line that begins with "From " and may be text, or ends
        before such a line, and so may be a part of a message. It is text if it names no sender and
        time, if no header follows, or if the message before it says that it is longer.
        """
        last: tuple[Any, bytes | None] | None = None
        owed = 0  # bytes of the message before that are still to come, if it says how long it is
        left = self.path.stat().st_size  # bytes of the file, from the message at hand on
        for key in self._box.keys():  # noqa: SIM118 (iterating would parse every message)
            raw = self._box.get_bytes(key, from_=True)
            first, _, data = raw.partition(b"\n")
            left -= len(raw)
            whole = owed <= _SLACK and bool(_FROM_LINE.match(first) and _HEADER.match(data))
            owed = _owed(data, left) if owed <= _SLACK else owed - len(raw) - 1
            if last is not None:
                yield last if whole else (last[0], None)
            last = key, data if whole else None
        if last is not None:
            yield last

    def remove(self, keys: list[Any]) -> None:
        """Write the file anew without these messages; it stays its owner's."""
        owner = self.path.stat()
        for key in keys:
            self._box.discard(key)
        self._box.flush()
        now = self.path.stat()
        if (now.st_uid, now.st_gid) != (owner.st_uid, owner.st_gid):
            with suppress(PermissionError):
                os.chown(self.path, owner.st_uid, owner.st_gid)

    def move(self, keys: list[Any], to: Path) -> None:
        """Add these messages to an mbox, which is made if it is not there; then remove them."""
        with Mbox(_touched(to), change=True) as target, to.open("rb+", buffering=0) as file:
            # Open until all is written: whoever closes a file gives up the locks it has on it.
            _end_last_message(file)
            for key in keys:
                target._box.add(self._box.get_bytes(key, from_=True))
            target._box.flush()  # which syncs
        self.remove(keys)

    def __enter__(self) -> Self:
        """Lock it."""
        try:
            if self._change:
                self._box.lock()
        except mailbox.ExternalClashError:
            self._box.close()
            raise OSError(
                errno.EBUSY,
                "is locked by another program: try again when that is done; if none is at it, "
                f"remove {self.path}.lock",
                str(self.path),
            ) from None
        return self

    def __exit__(self, kind: object, problem: BaseException | None, _: object) -> None:
        """Unlock and close it."""
        try:
            self._box.close()
        except mailbox.Error as failure:
            problem = problem or failure
        if isinstance(problem, mailbox.Error):
            raise OSError(
                errno.EIO, f"{problem}: it is as it was; run the command again", str(self.path)
            ) from problem


def _owed(message: bytes, left: int) -> int:
    """Return how many bytes a message lacks of those that its Content-Length has; 0 if it has none,
    or one that is wrong, since not so many bytes are `left` in the file."""
    head, *body = _END_OF_HEADERS.split(message, maxsplit=1)
    length = _CONTENT_LENGTH.search(head)
    lacks = int(length[1]) - sum(map(len, body)) if length else 0
    return lacks if lacks <= left + _SLACK else 0


def _end_last_message(file: FileIO) -> None:
    """Write the empty line that must stand before the next message, if it is not there."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 4, 0))
    end = file.read(4).replace(b"\r", b"")
    if size and not end.endswith(b"\n\n"):
        file.write(b"\n" if end.endswith(b"\n") else b"\n\n")


def _touched(path: Path) -> Path:
    path.touch(mode=0o600, exist_ok=True)
    return path


AnyMailbox: TypeAlias = Maildir | Mbox


def folders_of(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the identity of an mbox, or of the folders of a Maildir, by whichever name it goes."""
    for place in [path / name for name in (*_FOLDERS, "tmp")] if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            status = place.stat()
            yield status.st_dev, status.st_ino


def open_mailbox(path: Path, *, change: bool) -> AnyMailbox:
    """Return the mailbox at a path, whichever of the two it is."""
    return Maildir(path) if path.is_dir() else Mbox(path, change=change)
