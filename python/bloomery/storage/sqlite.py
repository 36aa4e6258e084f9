"""A small database in a file of SQLite: checked, open in one process, its errors named."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from bloomery import errors

_MAGIC = b"SQLite format 3\0"
_CACHE_KIB = 16_384
_WAL_PAGES = 16_384  # 64 MiB: a page that changes again and again is then copied to its place once


class Code(IntEnum):
    """SQLite's result codes (sqlite.org/rescode.html), those that decide something here."""

    ERROR = 1
    BUSY = 5
    LOCKED = 6
    READONLY = 8
    INTERRUPT = 9
    IOERR = 10
    CORRUPT = 11
    FULL = 13
    CANTOPEN = 14
    NOTADB = 26


# Python 3.10 has no codes of SQLite's errors: there its texts stand for them, the first that fits.
# What is missing goes first, since its name follows: "no such column: database is locked".
_TEXTS = {
    "no such": Code.ERROR,
    "unsupported file format": Code.ERROR,
    "has no column named": Code.ERROR,
    "is locked": Code.BUSY,
    "attempt to write a readonly database": Code.READONLY,
    "interrupted": Code.INTERRUPT,
    "disk I/O error": Code.IOERR,
    "disk image is malformed": Code.CORRUPT,
    "malformed database schema": Code.CORRUPT,
    "database or disk is full": Code.FULL,
    "unable to open database": Code.CANTOPEN,
    "is not a database": Code.NOTADB,
}
# What a whole file of ours has, and one that was changed may lack. Any other ERROR is a mistake in
# our SQL.
_MISSING = ("no such", "unsupported file format", "has no column named")
_IN_USE = "another process uses it: end that one, or give each its own file"
# The error number that fits, and what to do.
_PROBLEMS: dict[int | None, tuple[int, str]] = {
    Code.BUSY: (errno.EBUSY, _IN_USE),
    Code.LOCKED: (errno.EBUSY, _IN_USE),
    Code.FULL: (errno.ENOSPC, "make room on the disk; what was not written was not taken"),
    Code.IOERR: (
        errno.EIO,
        "check the disk, its quota and `ulimit -f`; what was not written was not taken",
    ),
    Code.READONLY: (errno.EACCES, "give this user the right to write the file and its folder"),
    Code.CANTOPEN: (errno.EACCES, "is the folder there, and may this user write to it?"),
}


def code_of(failure: BaseException) -> int | None:
    """The result code of an error of SQLite's, without its extension; None if it has none."""
    code: int | None = getattr(failure, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF
    text = str(failure)
    return next((code for words, code in _TEXTS.items() if words in text), None)


def is_damage(failure: BaseException) -> bool:
    """Whether an error of SQLite's says that the file is not as it was written."""
    code = code_of(failure)
    if code == Code.ERROR:
        return any(words in str(failure) for words in _MISSING)
    return code in (Code.CORRUPT, Code.NOTADB)


def connect(
    path: str | os.PathLike[str], application: int, what: str, schema: str, *, fsync: bool
) -> sqlite3.Connection:
    """Open the database of `what` for this process alone, and make it if it is not there.

    It is in WAL mode: a commit survives the end of the process, and with `fsync` a power cut too.
    `application` (four letters, as a number) tells such a file from any other of SQLite's.
    """
    place = Path(path)
    with failures_named(place):
        if place.exists() and place.stat().st_size:
            _check(place, application, what)
        else:
            os.close(os.open(place, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            place, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {application}")
            for statement in schema.split(";"):
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
    return connection


def _check(path: Path, application: int, what: str) -> None:
    """Read the header without SQLite, which might change what it opens."""
    with path.open("rb") as file:
        header = file.read(100)
    kind = int.from_bytes(header[68:72], "big")
    # 0: made, and ended before anything was written into it.
    if not header.startswith(_MAGIC) or kind not in (0, application):
        raise errors.InvalidParameter(f"{path} is there and is no {what}: give a path of its own")


@contextmanager
def failures_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise what SQLite raises as an OSError that names the file and the next step."""
    try:
        yield
    except sqlite3.Error as problem:
        number, step = _PROBLEMS.get(code_of(problem), (0, ""))
        if number:
            raise OSError(number, f"{problem}: {step}", os.fspath(path)) from problem
        raise errors.CorruptData(
            f"{os.fspath(path)}: {problem}: set the file aside, and restore it from a backup"
        ) from problem
