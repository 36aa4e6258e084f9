"""Saved filters: a header of 128 bytes, then the memory as it is (docs/format.md)."""

from __future__ import annotations

import contextlib
import errno
import mmap as memory_map
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from bloomery import _native, errors
from bloomery.filters import KINDS, SavedFilter, memory

if TYPE_CHECKING:
    from typing_extensions import Buffer

    F = TypeVar("F", bound=SavedFilter)

HEADER_BYTES = _native.HEADER_BYTES
CHUNK_BYTES = _native.CHUNK_BYTES
_CHECKSUM = slice(HEADER_BYTES - 8, HEADER_BYTES)


def save(filter: SavedFilter, path: str | os.PathLike[str]) -> None:
    """Write to a new file beside the old one, then put it in its place."""
    with replacing(path) as file:
        write(filter, file)


def write(filter: SavedFilter, file: BinaryIO) -> None:
    """Write to an empty file that can seek."""
    changes = filter._changes()
    file.seek(HEADER_BYTES)
    checksum = 0
    for chunk in _chunks(filter._sections()):
        checksum = _native.checksum(chunk, checksum)
        file.write(chunk)
    header = filter._header(checksum)
    file.seek(0)
    if filter._changes() == changes:
        file.write(header)
    else:
        # Half of one state and half of the next may be neither: a key that moved is in no half.
        file.truncate()
        write(filter.copy(), file)


def is_head(data: bytes) -> bool:
    """True if bytes begin as a file of ours does; what follows may be wrong all the same."""
    return data[: len(_native.MAGIC)] == _native.MAGIC


def head(filter: SavedFilter) -> bytes:
    """Return the first bytes of what `write` would write now: all but the memory."""
    checksum = 0
    for chunk in _chunks(filter._sections()):
        checksum = _native.checksum(chunk, checksum)
    return filter._header(checksum)


def part(filter: SavedFilter, start: int, most: int) -> bytes:
    """Return up to `most` bytes of the filter's memory as it is saved, from an offset on."""
    out = bytearray()
    for section in filter._sections():
        view = memoryview(section)
        if start < len(view):
            out += view[start : start + most - len(out)]
        start = max(0, start - len(view))
        if len(out) == most:
            break
    return bytes(out)


def _chunks(sections: Iterable[Buffer]) -> Iterator[bytes]:
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


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a new file that takes the path's place when all went well; else nothing has changed.
    Its permissions are those given, else those of the file before it."""
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(temporary, flags, 0o666 if mode is None else mode), "wb") as file:
            if mode is None:
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
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Make the new name survive a power cut, where a folder can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load(
    cls: type[F] | None,
    path: str | os.PathLike[str],
    *,
    mmap: bool = False,
    writable: bool = False,
    verify: bool | None = None,
) -> F:
    """Read or map a saved filter of this class, or of any if it is None."""
    if writable and not mmap:
        raise errors.InvalidParameter("writable=True needs mmap=True: without it, load and save")
    with _named(path), open(path, "r+b" if writable else "rb") as file:
        head = file.read(HEADER_BYTES)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return _load_stream(cls, file, head)
        total = os.fstat(file.fileno()).st_size
        cls, nbytes, expected = _expect(cls, head, total)
        if mmap:
            return _map(cls, file, head, expected, writable, bool(verify))
        memory.check(total)
        body = _native.Memory(nbytes)
        checksum, offset, chunk = 0, 0, memoryview(bytearray(CHUNK_BYTES))
        while count := file.readinto(chunk):  # type: ignore[attr-defined]
            checksum = _native.checksum(chunk[:count], checksum)
            body.write(offset, chunk[:count])
            offset += count
        _verify(expected, checksum, offset == nbytes, verify)
        return _open(cls, head, body)


def expect(head: bytes) -> tuple[type[SavedFilter], int, int]:
    """Return the class that a head asks for, the bytes behind it and their checksum."""
    return _expect(None, head, None)


def _expect(cls: type[F] | None, head: bytes, total: int | None) -> tuple[type[F], int, int]:
    """Return the class that a head asks for, the bytes behind it and their checksum."""
    kind, nbytes, expected = _native.read_header(head, total)
    right: Any = KINDS.get(kind)
    if right is None:
        raise errors.UnsupportedVersion(f"filter kind {kind}, for which there is no class")
    if cls is None:
        cls = right
    elif cls.kind != kind:
        raise errors.IncompatibleFilters(
            f"this is a {right.__name__}, not a {cls.__name__}: load it with "
            f"{right.__name__}, or with bloomery.open, which takes any kind"
        )
    if expected == _native.LIVE and kind != "bloom":
        raise errors.CorruptData(f"no checksum: a {kind} filter always has one")
    return cls, nbytes, expected


def _open(cls: type[F], head: bytes, body: _native.Memory | Buffer, offset: int = 0) -> F:
    return cast("F", cls._open(head, body, offset))  # in a union mypy does not see the class


def _map(
    cls: type[F], file: BinaryIO, head: bytes, expected: int, writable: bool, verify: bool
) -> F:
    if writable and cls.kind != "bloom":
        raise errors.InvalidParameter(
            f"writable is True, must be False for a {cls.__name__}: what it holds moves as keys "
            "come, so two processes that write would lose keys; load it without mmap and save it"
        )
    access = memory_map.ACCESS_WRITE if writable else memory_map.ACCESS_READ
    mapped = memory_map.mmap(file.fileno(), 0, access=access)
    if verify:
        checksum = 0
        with memoryview(mapped) as view:
            for start in range(HEADER_BYTES, len(view), CHUNK_BYTES):
                checksum = _native.checksum(view[start : start + CHUNK_BYTES], checksum)
        _verify(expected, checksum, True, verify)
    made = _open(cls, head, mapped, HEADER_BYTES)
    if writable:
        # From now on the bits change in place and no checksum of them can hold.
        mapped[_CHECKSUM] = _native.LIVE.to_bytes(8, "little")
    return made


def _load_stream(cls: type[F] | None, file: BinaryIO, head: bytes) -> F:
    """Read from a pipe or device: no further than the header says, lest it never end."""
    cls, nbytes, _ = _expect(cls, head, None)
    memory.check(2 * nbytes)
    return from_bytes(cls, head + file.read(nbytes + 1))


def from_bytes(cls: type[F] | None, data: Buffer) -> F:
    """Make a filter of this class, or of any if it is None, from the bytes of a saved one."""
    view = memoryview(data).cast("B")
    head = bytes(view[:HEADER_BYTES])
    cls, nbytes, expected = _expect(cls, head, len(view))
    memory.check(len(view))
    _verify(expected, _native.checksum(view[HEADER_BYTES:]), True, None)
    body = _native.Memory(nbytes)
    body.write(0, view[HEADER_BYTES:])
    return _open(cls, head, body)


def _verify(expected: int, found: int, whole: bool, check: bool | None) -> None:
    if not whole:
        raise errors.CorruptData("the file became shorter while it was read")
    if check is not False:
        verify(expected, found)


def verify(expected: int, found: int) -> None:
    """Raise CorruptData unless the checksum found is the one expected, or none could be."""
    if expected not in (_native.LIVE, found):
        raise errors.CorruptData(
            f"damaged bits: checksum {found:#018x}, expected {expected:#018x}: restore the file "
            "from a copy, or build the filter anew"
        )


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in every complaint about the bytes which file they are from."""
    try:
        yield
    except (errors.CorruptData, errors.IncompatibleFilters) as problem:
        raise type(problem)(f"{os.fspath(path)}: {problem}") from None
