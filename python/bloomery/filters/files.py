"""A saved filter that comes in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bloomery import _native, errors
from bloomery.filters import memory
from bloomery.storage import files

__all__ = ["Loading"]


class Loading:
    """The bytes of a saved filter, in order, until they are whole.

    Its memory is that of the filter to be: nothing is held twice.
    """

    def __init__(self) -> None:
        self._head = b""
        self._rest = b""  # behind the last whole word
        self._body: _native.Memory | None = None
        self._cls: Any = None
        self._nbytes = 0
        self._checksum = 0
        self.received = 0

    def take(self, offset: int, data: bytes) -> Any:
        """Take the next part, which begins at this offset; with the last one, return the filter.

        A part that is refused counts as not taken.
        """
        if offset != self.received:
            raise errors.CorruptData(f"a chunk at byte {offset}, expected {self.received}")
        if self._body is None:
            self._begin(data[: files.HEADER_BYTES])
            data = data[files.HEADER_BYTES :]
        left = files.HEADER_BYTES + self._nbytes - self.received
        if len(data) > left:
            raise errors.CorruptData(f"a chunk of {len(data)} bytes, {left} are missing")
        assert self._body is not None
        start = self.received - files.HEADER_BYTES - len(self._rest)
        words = self._rest + data if self._rest else data
        end = len(words) if len(data) == left else len(words) // 8 * 8
        self._body.write(start, words[:end])
        made = self._filter() if len(data) == left else None
        self._rest = words[end:]
        self.received += len(data)
        return made

    def _begin(self, head: bytes) -> None:
        self._cls, self._nbytes, self._checksum = files.expect(head)
        memory.check(self._nbytes)
        self._body = _native.Memory(self._nbytes)
        self._head = head
        self.received = files.HEADER_BYTES

    def parts(self) -> Iterator[bytes]:
        """All bytes that have come, in parts."""
        yield self._head
        end = self.received - files.HEADER_BYTES - len(self._rest)
        for start in range(0, end, files.CHUNK_BYTES):
            assert self._body is not None
            yield self._body.read(start, min(files.CHUNK_BYTES, end - start))
        yield self._rest

    def _filter(self) -> Any:
        """Make the filter, if its checksum holds."""
        assert self._body is not None
        found = 0
        for start in range(0, self._nbytes, files.CHUNK_BYTES):
            found = _native.checksum(self._body.read(start, files.CHUNK_BYTES), found)
        files.verify(self._checksum, found)
        return self._cls._open(self._head, self._body)
