"""Saved filters of whatever kind: opened, written, and put together from parts as they come."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import bloomery._native as _native
from bloomery import errors
from bloomery.filters import bank, saved
from bloomery.filters.bank import FilterBank
from bloomery.filters.internals import open_filter
from bloomery.filters.saved import SavedFilter
from bloomery.storage import files, memory
from bloomery.storage.files import CHUNK_BYTES, HEADER_BYTES, check_sum


def open(
    path: str | os.PathLike[str],
    *,
    mmap: bool = False,
    writable: bool = False,
    verify: bool | None = None,
) -> SavedFilter | FilterBank:
    """Read a saved filter of any kind; the arguments are those of `BloomFilter.load`.

    `writable` is for the plain filter and for banks alone. Without `mmap`, the default, nothing
    that happens to the file later matters; a mapped file that another process makes shorter ends
    this process by the signal SIGBUS.
    """
    cls = FilterBank if holds_a_bank(path) else SavedFilter
    return cls.load(path, mmap=mmap, writable=writable, verify=verify)


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the kind of a saved filter; nothing but its header is read."""
    with files.naming(path), builtins.open(path, "rb") as file:
        return _native.read_header(file.read(HEADER_BYTES), None)[0]


def holds_a_bank(path: str | os.PathLike[str]) -> bool:
    """True if the file is a bank's; nothing more of it is checked."""
    if not os.path.isfile(path):
        return False  # nothing may be read from a pipe that others are to read again
    with builtins.open(path, "rb") as file:
        return is_bank(file.read(HEADER_BYTES))


def key_type(path: str | os.PathLike[str]) -> str | None:
    """Return what all keys of a saved filter are, if the file says so (docs/format.md)."""
    if not os.path.isfile(path):
        return None
    with files.naming(path), builtins.open(path, "rb") as file:
        return saved.key_type(file.read(HEADER_BYTES))


def save(filter: SavedFilter, path: str | os.PathLike[str], key_type: str | None = None) -> None:
    """Save a filter as its own `save` does, and say in the file what its keys are."""
    with files.replacing(path) as file:
        saved.write(filter, file, key_type)


def is_bank(data: bytes) -> bool:
    """True if bytes begin as a bank's file does."""
    try:
        return _native.read_header(data[:HEADER_BYTES], None)[0] == FilterBank.kind
    except errors.CorruptData:
        return False  # whoever loads it says what is wrong


def write(filter: SavedFilter | FilterBank, file: BinaryIO) -> None:
    """Write a filter of any kind to an empty file that can seek."""
    if isinstance(filter, FilterBank):
        bank.write(filter, file)
    else:
        saved.write(filter, file)


_TOUCHED_AHEAD = 16 << 20  # bytes: of a head alone, which may lie, nothing is asked of the kernel


class Loading:
    """The bytes of a saved filter, in order, until they are whole.

    Its memory is that of the filter to be: nothing is held twice.
    """

    def __init__(self) -> None:
        self._head = b""
        self._rest = b""  # behind the last whole word
        self._body: _native.Memory | None = None
        self._cls: type[SavedFilter] = SavedFilter
        self._nbytes = 0
        self._checksum = 0
        self._touched = 0
        self.received = 0

    def nbytes_of(self, data: bytes) -> int:
        """How many bytes of memory are gone through when the next part is taken, beside its own:
        all for the first, which brings them, and for the last, with which they are summed; and
        those that are asked of the kernel ahead, so that it need not make a page for each part."""
        if self._body is None:
            try:
                return saved.expect(data[:HEADER_BYTES])[1]
            except errors.BloomeryError:
                return 0  # `take` says what is wrong
        end = self.received + len(data) - HEADER_BYTES
        if end >= self._nbytes:
            return self._nbytes
        return _TOUCHED_AHEAD if end > self._touched else 0

    def take(self, offset: int, data: bytes) -> Any:
        """Take the next part, which begins at this offset; with the last one, return the filter.

        A part that is refused counts as not taken.
        """
        if offset != self.received:
            raise errors.CorruptData(f"a chunk at byte {offset}, expected {self.received}")
        if self._body is None:
            self._begin(data[:HEADER_BYTES])
            data = data[HEADER_BYTES:]
        left = HEADER_BYTES + self._nbytes - self.received
        if len(data) > left:
            raise errors.CorruptData(f"a chunk of {len(data)} bytes, {left} are missing")
        assert self._body is not None
        start = self.received - HEADER_BYTES - len(self._rest)
        words = self._rest + data if self._rest else data
        end = len(words) if len(data) == left else len(words) // 8 * 8
        if start + end > self._touched:
            ahead = start + end + _TOUCHED_AHEAD
            self._body.touch(self._touched, ahead - self._touched)
            self._touched = ahead
        self._body.write(start, words[:end])
        filter = self._filter() if len(data) == left else None
        self._rest = words[end:]
        self.received += len(data)
        return filter

    def _begin(self, head: bytes) -> None:
        self._cls, self._nbytes, self._checksum = saved.expect(head)
        memory.check(self._nbytes)
        self._body = _native.Memory(self._nbytes)
        self._head = head
        self.received = HEADER_BYTES

    def parts(self) -> Iterator[bytes]:
        """All bytes that have come, in parts."""
        yield self._head
        end = self.received - HEADER_BYTES - len(self._rest)
        for start in range(0, end, CHUNK_BYTES):
            assert self._body is not None
            yield self._body.read(start, min(CHUNK_BYTES, end - start))
        yield self._rest

    def _filter(self) -> SavedFilter:
        """Make the filter, if its checksum holds."""
        assert self._body is not None
        check_sum(self._checksum, self._body.checksum())
        return open_filter(self._cls, self._head, self._body)
