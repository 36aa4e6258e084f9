"""Which files of a corpus are read and written, a chunk at a time.

The output of a file has its name below the folder that all inputs have in common, and is packed as
it is. It is written under another name, and put in its place when it is whole and on disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bloomery import extras
from bloomery.errors import InvalidParameter
from bloomery.storage.files import sync_folder
from bloomery.storage.inputs import MAX_LINE, InputFile, line_too_long

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst", ".ndjson")
CHUNK = 1 << 20
_PART = ".part"
# By zlib at 1 a corpus is a tenth larger than at 6, and written in a quarter of the time.
_LEVELS = {"gz": (1, 0, 9), "zst": (3, 1, 19)}  # default, least, most


class CorpusFile:
    """One input, and where its output goes."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name  # below the common folder
        self.size = path.stat().st_size

    def __str__(self) -> str:
        return str(self.path)


def find(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, list[CorpusFile]]:
    """Return the folder that all have in common, and the files in the order given; of a folder, all
    below it that are named as JSON lines are, sorted."""
    listed: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            below = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES))
            listed += [file for file in below if file.is_file()]
        elif path.exists():
            listed.append(path)
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    if not listed:
        raise InvalidParameter(
            f"no files in {', '.join(map(str, paths)) or 'an empty list'}: name some, or a folder "
            f"with files that end in {', '.join(SUFFIXES)}"
        )
    real = [os.path.realpath(path) for path in listed]
    for path, place in zip(listed, real, strict=True):
        if real.count(place) > 1:
            raise InvalidParameter(f"{path} is named twice: all of it would be duplicates")
    base = os.path.commonpath([os.path.dirname(place) for place in real])
    return base, [
        CorpusFile(path, os.path.relpath(place, base))
        for path, place in zip(listed, real, strict=True)
    ]


def check_level(level: int | None, files: Sequence[CorpusFile]) -> None:
    """Raise InvalidParameter unless the level of compression is one that all outputs can have."""
    for file in files:
        _, least, most = _LEVELS.get(_packing(file.name), (0, 0, 19))
        if level is not None and not least <= level <= most:
            raise InvalidParameter(
                f"level is {level}, must be from {least} to {most} for {file.name}"
            )


def _packing(name: str) -> str:
    return name.rpartition(".")[2]


class DocumentReader:
    """Chunks of whole lines, from one buffer."""

    def __init__(self, path: Path) -> None:
        self._source = InputFile(os.fspath(path))
        self._buffer = bytearray(CHUNK)
        self._held = 0
        self.final = False

    @property
    def position(self) -> int:
        """Bytes of the file that were read."""
        return self._source.position

    @property
    def ahead(self) -> int:
        """Bytes that are decoded already and were not read."""
        return self._source.ahead

    def fill(self) -> memoryview:
        """Read until the buffer is full or the file ends, and return what there is; `release` it
        before the next call."""
        if self._held == len(self._buffer):
            if self._held >= MAX_LINE:
                raise line_too_long(self._source.name, MAX_LINE)
            self._buffer.extend(bytes(self._held))
        with memoryview(self._buffer) as view:
            while self._held < len(view):
                count = self._source.readinto(view[self._held :])
                if not count:
                    self.final = True
                    break
                self._held += count
        return memoryview(self._buffer)[: self._held]

    def consumed(self, count: int) -> None:
        """Forget the first so many bytes."""
        rest = self._held - count
        if count and rest:
            self._buffer[:rest] = self._buffer[count : self._held]
        self._held = rest

    def close(self) -> None:
        self._source.close()


class Writer:
    """A file that is packed as its name says, and is in its place when it is whole."""

    def __init__(self, path: Path, level: int | None) -> None:
        self._path = path
        self._part = path.with_name(path.name + _PART)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._packer = _packer(path.name, level)
        self._file = self._part.open("wb")

    def write(self, data: bytes) -> None:
        if not data:
            return
        with _named(self._path):
            self._file.write(self._packer.compress(data) if self._packer else data)

    def finish(self) -> None:
        """Put it in its place, on disk."""
        with _named(self._path):
            if self._packer:
                self._file.write(self._packer.flush())
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._part, self._path)
            sync_folder(os.fspath(self._path.parent))

    def abort(self) -> None:
        """Leave nothing of it."""
        self._file.close()
        with contextlib.suppress(OSError):
            self._part.unlink()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise OSError(failure.errno, failure.strerror, os.fspath(path)) from None


def _packer(name: str, level: int | None) -> Any:
    packing = _packing(name)
    if packing not in _LEVELS:
        return None
    level = _LEVELS[packing][0] if level is None else level
    if packing == "gz":
        import zlib

        return zlib.compressobj(level, zlib.DEFLATED, 31)
    with extras.needed("zstandard", f"{name} is to be zstd-compressed, and that"):
        import zstandard
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
