"""Files that rows are read from, several of one kind one after the other; and those of lines."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Literal

from bloomery.building.rows import Batch, LineBatch
from bloomery.errors import InvalidSource
from bloomery.storage.inputs import MAX_LINE, STDIN, InputFile, line_too_long, reader

_SAMPLE = 4 << 20
_CHUNK = 1 << 20
_WHOLE = re.compile(rb"[+-]?[0-9]{1,4000}")  # Python reads no longer one


class FileRows(ABC):
    """What all kinds of files share; a position is a file's number and where in it to go on."""

    options: dict[str, Any]  # how they are read

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        first = "standard input" if self.paths[0] == "-" else self.paths[0]
        self.name = first if len(self.paths) == 1 else f"{len(self.paths)} files"
        self.options = {}
        self._status = [self._stat(path) for path in self.paths]

    def _stat(self, path: str) -> os.stat_result:
        status = os.fstat(STDIN) if path == "-" else os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory; name the files in it", path)
        return status

    @property
    def identity(self) -> dict[str, Any]:
        """Paths, sizes and times of change: a file that changed is another."""
        files = [
            [os.path.abspath(path), status.st_size, status.st_mtime_ns]
            for path, status in zip(self.paths, self._status, strict=True)
        ]
        return {"files": files, **self.options}

    @property
    def unresumable(self) -> str:
        """A pipe is gone once it was read."""
        whole = all(stat.S_ISREG(status.st_mode) for status in self._status)
        return "" if whole and "-" not in self.paths else "a pipe cannot be read twice"

    def count(self) -> int | None:
        """Count by reading it all, which for a file takes a fraction of the time of adding."""
        if self.unresumable:
            return None
        return sum(self._count(path) for path in self.paths)

    @abstractmethod
    def _count(self, path: str) -> int: ...

    def estimate(self) -> int | None:
        """Line ends in the first megabytes of each, scaled up to its size."""
        if self.unresumable:
            return None
        total = 0.0
        for path, status in zip(self.paths, self._status, strict=True):
            lines, used = _sample(path)
            total += lines * max(1.0, status.st_size / max(1, used))
        return int(total) + 1

    def batches(self, after: Any = None) -> Generator[Batch, None, None]:
        """Read each file."""
        first, offset = after or (0, None)
        for number, path in enumerate(self.paths[first:], first):
            for batch in self._read(path, offset):
                yield type(batch)(batch.keys, batch.rows, batch.nulls, [number, batch.position])
            offset = None

    @abstractmethod
    def _read(self, path: str, start: Any) -> Iterator[Batch]: ...

    def close(self) -> None:  # noqa: B027  # `Rows` wants one
        """Do nothing: no file stays open."""


def _sample(path: str) -> tuple[int, int]:
    """Lines at the beginning of a file, and how many encoded bytes they take."""
    lines = taken = 0
    view = memoryview(bytearray(1 << 20))
    with InputFile(path) as source:
        while taken < _SAMPLE and (count := source.readinto(view)):
            lines += bytes(view[:count]).count(b"\n")
            taken += count
        return lines + 1, source.position


class LineRows(FileRows):
    """Each line is a key, its bytes without the line end, or the int that these write; it goes
    on from an offset in decoded bytes."""

    def __init__(self, paths: Sequence[str], *, type: Literal["str", "int"] = "str") -> None:
        super().__init__(paths)
        self._ints = type == "int"
        self.options = {"type": type} if self._ints else {}

    def _count(self, path: str) -> int:
        with InputFile(path) as source:
            return sum(_lines(chunk) for chunk in _chunks(source))

    def _read(self, path: str, start: int | None) -> Iterator[Batch]:
        with InputFile(path) as source:
            offset = start or 0
            source.skip(offset)
            for chunk in _chunks(source):
                offset += len(chunk)
                if self._ints:
                    keys = _ints(source.name, chunk)
                    yield Batch(keys, len(keys), 0, offset)
                else:
                    yield LineBatch(chunk, _lines(chunk), 0, offset)


def _ints(name: str, chunk: bytes) -> list[int]:
    lines = chunk.removesuffix(b"\n").split(b"\n")
    for line in lines:
        if not _WHOLE.fullmatch(line):
            raise InvalidSource(
                f"{name}: {os.fsdecode(line[:40])!r} is not a whole number: keys are of type int"
            )
    return [int(line) for line in lines]


def _lines(chunk: bytes) -> int:
    return chunk.count(b"\n") + (not chunk.endswith(b"\n"))


def _chunks(source: InputFile) -> Iterator[bytes]:
    """About a megabyte at a time, to the end of a line."""
    with reader(source) as file:
        while chunk := file.read(_CHUNK):
            if not chunk.endswith(b"\n"):
                chunk += _rest_of_line(file, source.name)
            yield chunk


def _rest_of_line(file: io.BufferedReader, name: str) -> bytes:
    rest = file.readline(MAX_LINE)
    if len(rest) == MAX_LINE:
        raise line_too_long(name)
    return rest
