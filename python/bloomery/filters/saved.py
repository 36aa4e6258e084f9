"""What every filter but the plain one can do as bytes and files."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, ClassVar

from bloomery.filters import memory

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from bloomery import _native

__all__ = ["Saved"]


class Saved:
    """A filter whose native half gives its header and its memory."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # filters change and compare by their memory

    kind: ClassVar[str]  # as the header names it

    if TYPE_CHECKING:  # the native half's

        @property
        def nbytes(self) -> int: ...
        @property
        def read_only(self) -> bool: ...
        def _header(self, checksum: int) -> bytes: ...
        def _sections(self) -> list[_native.Section]: ...
        def _changes(self) -> int: ...
        def _snapshot(self) -> tuple[bytes, _native.Memory]: ...
        def info(self) -> dict[str, Any]: ...

    @classmethod
    def _open(
        cls,
        head: bytes,
        body: _native.Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
    ) -> Self:
        """Make one from its head and, if it was saved, its memory."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """True if both are the same in every byte, so that they give the same answers."""
        if not isinstance(other, Saved):
            return NotImplemented
        if self is other:
            return True
        if self._header(0) != other._header(0):
            return False
        mine, theirs = self._sections(), other._sections()
        return all(memoryview(a) == memoryview(b) for a, b in zip(mine, theirs, strict=True))

    def copy(self) -> Self:
        """Return a filter with the same keys, in memory of its own."""
        memory.check(self.nbytes)
        return self._open(*self._snapshot())

    def __copy__(self) -> Self:
        """Return a copy."""
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy."""
        return self.copy()

    def to_bytes(self) -> bytes:
        """Return the filter as bytes, checksummed; what `save` would write."""
        from bloomery.storage import files

        memory.check(self.nbytes)
        file = io.BytesIO()
        files.write(self, file)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: Buffer) -> Self:
        """Make the filter that `to_bytes` gave; CorruptData if the bytes are not that."""
        from bloomery.storage import files

        return files.from_bytes(cls, data)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the bytes."""
        return type(self).from_bytes, (self.to_bytes(),)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the filter to a file: checksummed, and all of it or nothing.

        If other threads change it while it is written, a copy is made and written instead.
        """
        from bloomery.storage import files

        files.save(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        writable: bool = False,
        verify: bool | None = None,
    ) -> Self:
        """Read a saved filter.

        With `mmap` the file itself is the memory: it opens at once, processes that map the same
        file share it, and it is read-only. `verify` compares the checksum, which reads all of the
        file (the default without mmap). `writable` is for `BloomFilter` alone.

        Without `mmap`, the default, nothing that happens to the file later matters. A mapped file
        that another process makes shorter ends this process by the signal SIGBUS as soon as it
        touches what is gone: no exception can be raised for that.
        """
        from bloomery.storage import files

        return files.load(cls, path, mmap=mmap, writable=writable, verify=verify)
