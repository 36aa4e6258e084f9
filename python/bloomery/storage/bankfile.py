"""A bank's own file: made in one step, opened by one process that writes or by many that read."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from bloomery import _native, errors
from bloomery.filters import memory
from bloomery.storage import files

if TYPE_CHECKING:
    from bloomery.filters.bank import FilterBank

    B = TypeVar("B", bound=FilterBank)

# What the kernel calls this start of the machine: on Linux, and on macOS.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SYSCTL = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")


@lru_cache(maxsize=1)
def boot() -> int:
    """Return a number that is another after each start of the machine; 0 where none is known.

    There a bank that was not closed is taken back to its last flush, as after a power cut.
    """
    try:
        found = _BOOT_ID.read_text()
    except OSError:
        import subprocess

        try:
            found = subprocess.run(_SYSCTL, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return 0
    try:
        return int(found.strip().replace("-", ""), 16) % (1 << 64)
    except ValueError:
        return 0


def create(cls: type[B], header: bytes, path: str | os.PathLike[str]) -> B:
    """Make a bank in a new file, which appears under its name when it is whole."""
    target = os.fspath(path)
    folder, name = os.path.split(os.path.abspath(target))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "it exists: use FilterBank.open", target)
    with open(temporary, "xb"):  # its errors name the file as Python does
        pass
    try:
        os.unlink(temporary)
        with _named(path):
            made = cls._with(header, temporary, "new", boot())
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:  # no hard links here: then a second maker may win between look and rename
            os.rename(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    files.sync_folder(folder)
    return made


def open_bank(cls: type[B], path: str | os.PathLike[str], mode: str, verify: bool) -> B:
    """Open the bank in a file, to be read ("r") or to be written too ("r+")."""
    if mode not in ("r", "r+"):
        raise errors.InvalidParameter(f"mode is {mode!r}, must be 'r' or 'r+'")
    with open(path, "rb" if mode == "r" else "r+b") as file:
        check_kind(file.read(_native.HEADER_BYTES), path)
    with _named(path):
        made = cls._with(None, path, mode, boot())
        if verify:
            made._verify()
    return made


def load(cls: type[B], path: str | os.PathLike[str], verify: bool | None) -> B:
    """Read a bank into memory."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        head = file.read(_native.HEADER_BYTES)
        check_kind(head, path)
        if not stat.S_ISREG(status.st_mode):
            return cls.from_bytes(head + file.read())
    memory.check(status.st_size)
    with _named(path):
        made = cls._with(None, path, "load", boot())
        if verify:
            made._verify()
    return made


def save(bank: FilterBank, path: str | os.PathLike[str]) -> None:
    """Write a copy to a new file beside the old one, then put it in its place."""
    if bank.path is not None and os.path.exists(path) and os.path.samefile(bank.path, path):
        raise errors.InvalidParameter("the bank lives in that file: flush() is what saves it")
    with files.replacing(path) as file:
        write(bank, file)


def write(bank: FilterBank, file: BinaryIO, pace: int = 0) -> None:
    """Write to an empty file that can seek; with a `pace`, wait for the disk every so often."""
    if os.name != "posix":
        file.write(bank.to_bytes())
        return
    file.seek(_native.HEADER_BYTES)
    file.flush()
    head = bank._save(file.fileno(), pace)
    file.seek(0)
    file.write(head)


def check_kind(head: bytes, path: str | os.PathLike[str]) -> None:
    """Raise unless a head is a bank's."""
    with _named(path):
        kind = _native.read_header(head, None)[0]
        if kind != "bank":
            raise errors.IncompatibleFilters(
                f"this is a {kind} filter, not a bank: bloomery.open takes any kind"
            )


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in every complaint which file it is about."""
    name = os.fspath(path)
    try:
        yield
    except (errors.CorruptData, errors.IncompatibleFilters) as problem:
        raise type(problem)(f"{name}: {problem}") from None
    except OSError as problem:
        code = problem.errno or errno.EWOULDBLOCK
        raise OSError(code, problem.strerror or str(problem), name) from None
