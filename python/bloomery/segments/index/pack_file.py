"""The file of an index's filters: saved filters end to end, appended to by one, mapped by many."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from bloomery.errors import CorruptData
from bloomery.storage.files import HEADER_BYTES

REBUILD = "build the index anew, with rebuild"


def filter_sum(data: bytes | mmap.mmap, place: int = 0) -> int:
    """The checksum of a saved filter's bits, as its header has it."""
    end = place + HEADER_BYTES
    return int.from_bytes(data[end - 8 : end], "little") >> 1  # SQLite's integers are signed


class PackFile:
    """The file of filters, to be appended to."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path = path
        self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115  # `close`
        if os.fstat(self._file.fileno()).st_size < nbytes:
            self._file.close()
            raise CorruptData(f"{path}: filters are missing at its end: {REBUILD}")
        self.cut(nbytes)

    def append(self, data: bytes) -> int:
        """Write a saved filter; where it is."""
        place = self.nbytes
        padding = -len(data) % 64
        self._file.write(data + bytes(padding))
        self.nbytes += len(data) + padding
        return place

    def cut(self, nbytes: int) -> None:
        """Take back all behind so many bytes."""
        self._file.flush()
        self._file.truncate(nbytes)
        self._file.seek(nbytes)
        self.nbytes = nbytes

    def sync(self) -> None:
        """Return once all is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def map_pack(path: Path, nbytes: int) -> mmap.mmap | None:
    """Map so many bytes of the file of filters; None if there are none."""
    if not nbytes:
        return None
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < nbytes:
                raise CorruptData(f"{path}: filters are missing at its end: {REBUILD}")
            return mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise CorruptData(f"{path}: the filters are missing: {REBUILD}") from None
