"""Lines of text as rows: plain, gzip or zstd, from files or standard input."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator

from bloomery.building.files import FileRows
from bloomery.building.rows import Batch, Lines
from bloomery.storage.inputs import Source, reader

__all__ = ["LineRows"]

_CHUNK = 1 << 20
_MAX_LINE = 256 << 20


class LineRows(FileRows):
    """Each line is a key, its bytes without the line end; a place is an offset in decoded bytes."""

    def _count(self, path: str) -> int:
        with Source(path) as source:
            return sum(_lines(chunk) for chunk in _chunks(source))

    def _read(self, path: str, place: int | None) -> Iterator[Batch]:
        with Source(path) as source:
            offset = place or 0
            source.skip(offset)
            for chunk in _chunks(source):
                offset += len(chunk)
                yield Lines(chunk, _lines(chunk), 0, offset)


def _lines(chunk: bytes) -> int:
    return chunk.count(b"\n") + (not chunk.endswith(b"\n"))


def _chunks(source: Source) -> Iterator[bytes]:
    """About a megabyte at a time, to the end of a line."""
    with reader(source) as file:
        while chunk := file.read(_CHUNK):
            if not chunk.endswith(b"\n"):
                chunk += _rest_of_line(file, source.name)
            yield chunk


def _rest_of_line(file: io.BufferedReader, name: str) -> bytes:
    rest = file.readline(_MAX_LINE)
    if len(rest) == _MAX_LINE:
        why = f"a line is longer than {_MAX_LINE >> 20} MiB; is it text?"
        raise OSError(errno.EFBIG, why, name)
    return rest
