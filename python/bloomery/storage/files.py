"""Saved filters: a header of 128 bytes, then the bits as they are in memory (docs/format.md)."""

from __future__ import annotations

import contextlib
import errno
import mmap as memory_map
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from bloomery import _native, errors, sizing
from bloomery.filters import memory

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from bloomery.filters.bloom import BloomFilter

    F = TypeVar("F", bound=BloomFilter)

HEADER_BYTES = _native.HEADER_BYTES
CHUNK_BYTES = _native.CHUNK_BYTES
_CHECKSUM = slice(HEADER_BYTES - 8, HEADER_BYTES)


def save(filter: BloomFilter, path: str | os.PathLike[str]) -> None:
    """Write to a new file beside the old one, then put it in its place."""
    with replacing(path) as file:
        file.seek(HEADER_BYTES)
        checksum = 0
        body = memoryview(filter)
        for start in range(0, len(body), CHUNK_BYTES):
            # A copy: the sum must be of what is written, though other threads go on adding.
            chunk = bytes(body[start : start + CHUNK_BYTES])
            checksum = _native.checksum(chunk, checksum)
            file.write(chunk)
        file.seek(0)
        file.write(filter._header(checksum))


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file that takes the path's place when all went well; else nothing has changed."""
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Make the new name survive a power cut, where a folder can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load(
    kind: type[F],
    path: str | os.PathLike[str],
    *,
    mmap: bool = False,
    writable: bool = False,
    verify: bool | None = None,
) -> F:
    """Read or map a saved filter."""
    if writable and not mmap:
        raise errors.InvalidParameter("writable=True needs mmap=True: without it, load and save")
    with _named(path), open(path, "r+b" if writable else "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return _load_stream(kind, file)
        total = os.fstat(file.fileno()).st_size
        head = file.read(HEADER_BYTES)
        *parts, expected = _native.parse_header(head, total)
        if mmap:
            return _map(kind, file, parts, expected, writable, bool(verify))
        memory.check(total)
        made = kind._with(*parts)
        checksum, offset, chunk = 0, 0, memoryview(bytearray(CHUNK_BYTES))
        while count := file.readinto(chunk):  # type: ignore[attr-defined]
            checksum = _native.checksum(chunk[:count], checksum)
            made._write(offset, chunk[:count])
            offset += count
        _verify(expected, checksum, offset == total - HEADER_BYTES, verify)
        return _checked(made)


def _map(
    kind: type[F],
    file: BinaryIO,
    parts: Sequence[object],
    expected: int,
    writable: bool,
    verify: bool,
) -> F:
    access = memory_map.ACCESS_WRITE if writable else memory_map.ACCESS_READ
    mapped = memory_map.mmap(file.fileno(), 0, access=access)
    if verify:
        checksum = 0
        with memoryview(mapped) as view:
            for start in range(HEADER_BYTES, len(view), CHUNK_BYTES):
                checksum = _native.checksum(view[start : start + CHUNK_BYTES], checksum)
        _verify(expected, checksum, True, verify)
    made = _checked(kind._with(*parts, mapped, HEADER_BYTES))
    if writable:
        # From now on the bits change in place and no checksum of them can hold.
        mapped[_CHECKSUM] = _native.LIVE.to_bytes(8, "little")
    return made


def _load_stream(kind: type[F], file: BinaryIO) -> F:
    """Read from a pipe or device: no further than the header says, lest it never end."""
    head = file.read(HEADER_BYTES)
    num_bits = _native.parse_header(head, None)[3]
    nbytes = -(-num_bits // sizing.LINE_BITS) * sizing.LINE_BYTES
    memory.check(2 * nbytes)
    return from_bytes(kind, head + file.read(nbytes + 1))


def from_bytes(kind: type[F], data: Buffer) -> F:
    """Make a filter from the bytes of a saved one."""
    view = memoryview(data).cast("B")
    *parts, expected = _native.parse_header(bytes(view[:HEADER_BYTES]), len(view))
    memory.check(len(view))
    _verify(expected, _native.checksum(view[HEADER_BYTES:]), True, None)
    made = kind._with(*parts)
    made._write(0, view[HEADER_BYTES:])
    return _checked(made)


def _checked(made: F) -> F:
    if not made._padding_is_clear():
        raise errors.CorruptData("bits are set in the padding behind the last bit")
    return made


def _verify(expected: int, found: int, whole: bool, verify: bool | None) -> None:
    if not whole:
        raise errors.CorruptData("the file became shorter while it was read")
    if verify is not False and expected not in (_native.LIVE, found):
        raise errors.CorruptData(
            f"damaged bits: checksum {found:#018x}, expected {expected:#018x}: restore the file "
            "from a copy, or build the filter anew"
        )


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in every complaint about the bytes which file they are from."""
    try:
        yield
    except errors.CorruptData as problem:
        raise type(problem)(f"{os.fspath(path)}: {problem}") from None
