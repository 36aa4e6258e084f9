"""A bank's own file: made in one step, and what its first bytes and its errors say."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from functools import lru_cache

import bloomery._native as _native
from bloomery import errors
from bloomery.storage import files

# What the kernel calls this start of the machine: on Linux, and on macOS.
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SYSCTL = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")


@lru_cache(maxsize=1)
def boot() -> int:
    """Return a number that is another after each start of the machine; 0 where none is known.

    There a bank that was not closed is taken back to its last flush, as after a power cut.
    """
    try:
        with open(_BOOT_ID) as file:
            text = file.read()
    except OSError:
        import subprocess

        try:
            text = subprocess.run(_SYSCTL, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return 0
    try:
        return int(text.strip().replace("-", ""), 16) % (1 << 64)
    except ValueError:
        return 0


@contextlib.contextmanager
def creating(path: str | os.PathLike[str]) -> Iterator[str]:
    """Give a name to make a new file under, which gets its own name when it is whole."""
    target = os.fspath(path)
    folder, name = os.path.split(os.path.abspath(target))
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "it exists: use FilterBank.open", target)
    with open(temporary, "xb"):  # its errors name the file as Python does
        pass
    try:
        os.unlink(temporary)
        with naming(path):
            yield temporary
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


def check_kind(head: bytes, path: str | os.PathLike[str]) -> None:
    """Raise unless a head is a bank's."""
    with naming(path):
        kind = _native.read_header(head, None)[0]
        if kind != "bank":
            raise errors.IncompatibleFilters(
                f"this is a {kind} filter, not a bank: bloomery.open takes any kind"
            )


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in every error of the bytes and of the system which file it is about."""
    try:
        with files.naming(path):
            yield
    except OSError as problem:
        code = problem.errno or errno.EWOULDBLOCK
        raise OSError(code, problem.strerror or str(problem), os.fspath(path)) from None
