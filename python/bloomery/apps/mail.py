"""Mailboxes without duplicates: Maildir folders and mbox files, by Message-ID or by content.

The first copy of a message stays, in the order of the mailboxes and of what is in them. A message
is only ever taken out after another copy of it was seen in this run, by an exact set: no wrong
*maybe* loses mail. By Message-ID, a copy that says more than the first one stays: the first may be
cut off. Interrupted at any point, the same command again does the rest.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bloomery.apps.diskset import DiskSet
from bloomery.apps.mailboxes import AnyMailbox, folders_of, open_mailbox
from bloomery.errors import InvalidParameter
from bloomery.storage.sqlite import connect, failures_named

if TYPE_CHECKING:
    from typing_extensions import Self

By: TypeAlias = Literal["id", "content"]
_COMMIT_EVERY = 1000
# Headers that say what a message is, and not which way it came.
_CONTENT_HEADERS = ("From", "To", "Cc", "Date", "Subject", "Content-Type")


@dataclass
class MailReport:
    """What was found in mailboxes, and what was done about it."""

    messages: int = 0
    duplicates: int = 0
    duplicate_bytes: int = 0
    without_id: int = 0
    longer: int = 0  # copies by Message-ID that stay, since the first one has less text
    unreadable: int = 0  # or not certainly a message of its own: they stay
    deleted: int = 0
    moved: int = 0
    duplicates_in: dict[str, int] = field(default_factory=dict)  # by mailbox, as it was named


def message_key(data: bytes, by: By = "id") -> tuple[str, bytes]:
    """Return by what a message is known: its Message-ID, or a digest of what it says.

    The digest is of the headers that the author wrote and of the body, without differences in line
    ends and in space at the end of lines. What is no header is taken as it is: no mail is refused.
    """
    message = _parsed(data)
    if by == "id" and (ident := _identifier(message)):
        return "id", ident
    digest = blake2b(digest_size=32)
    for name in _CONTENT_HEADERS:
        # Raw: decoding a header that is no header raises, in some versions of Python.
        raw = " ".join(value for key, value in message.raw_items() if key.lower() == name.lower())
        text = " ".join(raw.split()).encode("utf-8", "surrogateescape")
        digest.update(b"%d %b" % (len(text), text))
    digest.update(_body(message))
    return "content", digest.digest()


def _parsed(data: bytes) -> Message:
    """Return a message with its headers parsed, and all that stands behind them as it is."""
    return BytesParser().parsebytes(data, headersonly=True)


def _body(message: Message) -> bytes:
    """Return the text of a message of which the headers alone were parsed, the same by all ways."""
    body = str(message.get_payload()).encode("utf-8", "surrogateescape")
    lines = map(bytes.rstrip, body.rstrip().splitlines())
    # An mbox has a > before each From.
    return b"".join((line[1:] if line.startswith(b">From ") else line) + b"\n" for line in lines)


def _identifier(message: Message) -> bytes:
    """Return the first Message-ID, without space around and inside it."""
    for name, value in message.raw_items():
        ident = "".join(str(value).split())
        if name.lower() == "message-id" and ident.strip("<>@"):
            return ident.encode("utf-8", "surrogateescape")
    return b""


def deduplicate_mail(
    paths: Sequence[str | os.PathLike[str]],
    *,
    by: By = "id",
    delete: bool = False,
    move: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MailReport:
    """Find messages that are in these mailboxes more than once; delete or move all but the first.

    Without `delete` and `move` nothing is changed. `progress` is told how many messages were looked
    at, and how many of them are duplicates.
    """
    if by not in ("id", "content"):
        raise InvalidParameter(f"by is {by!r}, must be 'id' or 'content'")
    if delete and move is not None:
        raise InvalidParameter("delete and move are both given, must be one of them or none")
    places = _checked(paths, move)
    change = delete or move is not None
    report = MailReport()
    with tempfile.TemporaryDirectory(prefix="bloomery-mail-") as folder:
        path = Path(folder, "seen.sqlite")
        with (
            DiskSet(path, fsync=False, commit_every=_COMMIT_EVERY) as seen,
            _Lengths(Path(folder, "lengths.sqlite")) as lengths,
        ):
            for name, place in zip(paths, places, strict=True):
                with open_mailbox(place, change=change) as box:
                    duplicates = _scan(box, seen, lengths, by, report, progress)
                    if duplicates:
                        report.duplicates_in[os.fspath(name)] = len(duplicates)
                    if duplicates and delete:
                        box.remove(duplicates)
                        report.deleted += len(duplicates)
                    elif duplicates and move is not None:
                        box.move(duplicates, Path(move))
                        report.moved += len(duplicates)
    return report


class _Lengths:
    """How long the text of the longest message that stays is, by Message-ID; on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        schema = "CREATE TABLE lengths (ident BLOB PRIMARY KEY, length INTEGER) WITHOUT ROWID"
        self._connection = connect(path, 0, "table of lengths", schema, fsync=False)
        self._connection.execute("BEGIN")  # to the end: nobody reads it after this run

    def is_longest(self, ident: bytes, length: int) -> bool:
        """Return whether the text is longer than all before, and if so remember it."""
        with failures_named(self._path):
            changed = self._connection.execute(
                "INSERT INTO lengths VALUES (?, ?) ON CONFLICT (ident) "
                "DO UPDATE SET length = excluded.length WHERE excluded.length > length",
                (ident, length),
            )
            return changed.rowcount > 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _scan(
    box: AnyMailbox,
    seen: DiskSet,
    lengths: _Lengths,
    by: By,
    report: MailReport,
    progress: Callable[[int, int], None] | None,
) -> list[Any]:
    """Return which messages of a mailbox are copies of one that stays."""
    duplicates = []
    for name, data in box.messages():
        if data is None:
            report.unreadable += 1  # it stays
            continue
        report.messages += 1
        kind, ident = message_key(data, by)
        report.without_id += by == "id" and kind == "content"
        new = seen.add((kind, ident))
        if kind == "id" and lengths.is_longest(ident, len(_body(_parsed(data)))):
            report.longer += not new
        elif not new:
            duplicates.append(name)
            report.duplicates += 1
            report.duplicate_bytes += len(data)
        if progress is not None:
            progress(report.messages, report.duplicates)
    return duplicates


def _checked(
    paths: Sequence[str | os.PathLike[str]], move: str | os.PathLike[str] | None
) -> list[Path]:
    """Return where the mailboxes are; each is there and named once: none is a copy of itself."""
    places: list[Path] = []
    folders: set[tuple[int, int]] = set()
    for path in paths:
        place = Path(path).resolve()
        if not place.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        for folder in folders_of(place):
            if folder in folders:
                raise InvalidParameter(
                    f"{path} is named twice, or has a folder that another name leads to as well: "
                    "all of it would be duplicates; name each mailbox once"
                )
            folders.add(folder)
        places.append(place)
    if move is not None:
        target = Path(move)
        if target.exists() and not folders.isdisjoint(folders_of(target)):
            raise InvalidParameter(f"{move} is one of the mailboxes, must be another one")
        for place in places:
            if place.is_dir() != (target.is_dir() if target.exists() else places[0].is_dir()):
                kind = "a Maildir" if place.is_dir() else "an mbox"
                raise InvalidParameter(f"{place} is {kind}: move its duplicates to another one")
    return places
