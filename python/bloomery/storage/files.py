"""Files of saved filters, as bytes: written whole or not at all, summed, and their errors named.

A file is a header of 128 bytes, then the filter's memory as it is (docs/format.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import bloomery._native as _native
from bloomery import errors

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER_BYTES = _native.HEADER_BYTES
CHUNK_BYTES = _native.CHUNK_BYTES


def is_head(data: bytes) -> bool:
    """True if bytes begin as a file of ours does; what follows may be wrong all the same."""
    return data[: len(_native.MAGIC)] == _native.MAGIC


def chunks(sections: Iterable[Buffer]) -> Iterator[bytes]:
    """The sections end to end, in the chunks in which they are summed. Each is a copy: the sum must
    be of what is written, though other threads go on adding."""
    rest = bytearray()
    for section in sections:
        view = memoryview(section)
        while view:
            count = CHUNK_BYTES - len(rest)
            rest += view[:count]
            view = view[count:]
            if len(rest) == CHUNK_BYTES:
                yield bytes(rest)
                rest.clear()
    if rest:
        yield bytes(rest)


def check_sum(expected: int, checksum: int) -> None:
    """Raise CorruptData unless the checksum is the one expected, or none could be."""
    if expected not in (_native.LIVE, checksum):
        raise errors.CorruptData(
            f"damaged bits: checksum {checksum:#018x}, expected {expected:#018x}: restore the file "
            "from a copy, or build the filter anew"
        )


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in every error about the bytes which file they are from."""
    try:
        yield
    except (errors.CorruptData, errors.IncompatibleFilters) as problem:
        raise type(problem)(f"{os.fspath(path)}: {problem}") from None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a new file that takes the path's place when all went well; else nothing has changed.
    Its permissions are those given, else those of the file before it; `name` is its path until
    then."""
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    initial = 0o666 if mode is None else mode
    try:
        with open(temporary, "wb", opener=lambda name, _: os.open(name, flags, initial)) as file:
            if mode is None:
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as failure:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(failure, OSError) and failure.filename == temporary:
            failure.filename = os.fspath(path)  # nobody has heard of the other
        raise
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Make the new name survive a power cut, where a folder can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
