"""The write-ahead log: what was put since the last flush, in a file that is only appended to.

    magic "BLMWAL1\\n"
    length u32 | CRC-32 of the entries u32 | CRC-32 of the eight bytes before u32 | entries
    …
    an entry: length of the key u32 | length of the value u32, 2^32 - 1 of a deletion | key | value

A process that was killed, or a machine without power, leaves a record that ends too early, or ends
in zeros where the file system made room first: it was never acknowledged, and is cut off. A record
that is wrong in any other way was damaged later, and what follows it may have been acknowledged: so
the log is refused. The sum of the length is there so that a damaged length is not taken for an end.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from bloomery.errors import CorruptData
from bloomery.storage import files

Entry: TypeAlias = tuple[bytes, bytes | None]  # None: deleted

MAGIC = b"BLMWAL1\n"
_LENGTHS = struct.Struct("<II")
_HEAD = struct.Struct("<III")
_DELETED = 0xFFFFFFFF
_sync = getattr(os, "fdatasync", os.fsync)  # macOS has the latter alone
_RECORD_BYTES = 4 << 20  # about: a longer batch becomes several records, written in one go


class WriteAheadLog:
    """A log that is open to be appended to."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self.path = path
        self._fsync = fsync
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self.nbytes = os.lseek(self._file, 0, os.SEEK_END)
        # A failure or an interrupt left it in doubt what the file holds: whoever writes begins a
        # new log first.
        self.doubtful = False

    @classmethod
    def create(cls, path: Path, *, fsync: bool) -> WriteAheadLog:
        """Make an empty log, on the disk before it is returned."""
        with open(path, "xb") as file:
            file.write(MAGIC)
            file.flush()
            os.fsync(file.fileno())
        files.sync_folder(str(path.parent))
        return cls(path, fsync=fsync)

    def append(self, entries: Iterable[Entry]) -> None:
        """Write entries behind all others; after an OSError none of them counts as written."""
        data = memoryview(b"".join(_records(entries)))
        end = self.nbytes + len(data)
        self.doubtful = True  # until all is there: an interrupt may come anywhere
        try:
            while data:
                data = data[os.write(self._file, data) :]
            if self._fsync:
                _sync(self._file)
        except BaseException as failure:
            self._take_back(synced=len(data) > 0)
            if not isinstance(failure, OSError):
                raise
            raise OSError(failure.errno, failure.strerror, str(self.path)) from None
        self.nbytes, self.doubtful = end, False

    def _take_back(self, *, synced: bool) -> None:
        """Cut off what was half written. If that fails, or a sync did, the log stays in doubt."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self.nbytes)
            os.lseek(self._file, self.nbytes, os.SEEK_SET)
            self.doubtful = not synced

    def sync(self) -> None:
        """Return once everything written is on the disk; after a failure the log is in doubt, since
        the system may say so once and then forget it."""
        before, self.doubtful = self.doubtful, True
        try:
            _sync(self._file)
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, str(self.path)) from None
        self.doubtful = before

    def close(self) -> None:
        """Close the file; what was written is the system's."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _records(entries: Iterable[Entry]) -> Iterator[bytes]:
    body = bytearray()
    for key, value in entries:
        body += _LENGTHS.pack(len(key), _DELETED if value is None else len(value))
        body += key
        body += value or b""
        if len(body) >= _RECORD_BYTES:
            yield from _record(body)
            body = bytearray()
    if body:
        yield from _record(body)


def _record(body: bytearray) -> Iterator[bytes]:
    lengths = _LENGTHS.pack(len(body), zlib.crc32(body))
    yield lengths + zlib.crc32(lengths).to_bytes(4, "little")
    yield bytes(body)


def replay(path: Path) -> Iterator[Entry]:
    """Read all entries in order, and cut off a record that was never finished."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorruptData(
            f"{path}: the write-ahead log is missing, and with it what was put last: restore the "
            "folder from a copy"
        ) from None
    if not data.startswith(MAGIC):
        raise CorruptData(f"{path}: it begins as no write-ahead log does: {_RESTORE}")
    at, written = len(MAGIC), len(data.rstrip(b"\0"))
    while at < len(data):
        body = _body(data, at)
        if body is None:
            if written > _end(data, at):
                raise CorruptData(f"{path}: damaged at byte {at}: {_RESTORE}")
            with open(path, "r+b") as file:
                file.truncate(at)
                file.flush()
                os.fsync(file.fileno())
            return
        yield from _entries(body, path, at)
        at += _HEAD.size + len(body)


_RESTORE = "restore the store's folder from a copy"


def _body(data: bytes, at: int) -> memoryview | None:
    """The entries of a record; None if it is not whole, whyever."""
    if len(data) - at < _HEAD.size:
        return None
    length, body_sum, head_sum = _HEAD.unpack_from(data, at)
    body = memoryview(data)[at + _HEAD.size : at + _HEAD.size + length]
    if zlib.crc32(data[at : at + _LENGTHS.size]) != head_sum or len(body) != length:
        return None
    return body if zlib.crc32(body) == body_sum else None


def _end(data: bytes, at: int) -> int:
    """Up to where a record that is not whole may have bytes and still be the last one, unfinished:
    its end, less the byte that it lacks at least."""
    if len(data) - at < _HEAD.size:
        return len(data)
    length, _, head_sum = _HEAD.unpack_from(data, at)
    if zlib.crc32(data[at : at + _LENGTHS.size]) != head_sum:
        return at + _HEAD.size - 1
    return at + _HEAD.size + int(length) - 1


def _entries(body: memoryview, path: Path, at: int) -> Iterator[Entry]:
    offset = 0
    while offset < len(body):
        with contextlib.suppress(struct.error):
            key_bytes, value_bytes = _LENGTHS.unpack_from(body, offset)
            key_at = offset + _LENGTHS.size
            value_at = key_at + key_bytes
            offset = value_at + (0 if value_bytes == _DELETED else value_bytes)
            if offset <= len(body):
                deleted = value_bytes == _DELETED
                value = None if deleted else bytes(body[value_at:offset])
                yield bytes(body[key_at:value_at]), value
                continue
        raise CorruptData(f"{path}: the record at byte {at} is no entries: {_RESTORE}")
