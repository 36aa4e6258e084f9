"""All filters as a stream of bytes, for a snapshot, and back.

    length | JSON of the whole: now, ledger | for each filter: length | JSON | parts | 0

Lengths are 4 little-endian bytes; a filter's parts, each behind its length, are its saved file.
Whoever stores the stream has checksums of it (`chunks`); a filter's file has its own too.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.filters import bank, saved
from bloomery.filters.files import Loading
from bloomery.filters.files import open as open_filter
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import name_of, text_of
from bloomery.service.domain.state import State

_LENGTH = struct.Struct("<I")
_PART = 4 << 20
_MOST_JSON = 16 << 20


def dump(state: State, ledger: bytes) -> Iterator[bytes]:
    """Return the stream in pieces; nothing may change meanwhile."""
    whole = {"now": state.now, "ledger": ledger.decode(), "filters": len(state.filters)}
    yield _framed(json.dumps(whole).encode())
    for entry in state.filters.values():
        is_bank = entry.loading is None and entry.filter.kind == "bank"
        about = {
            "id": entry.id,
            "name": text_of(entry.name),
            "created_at": entry.created_at,
            "expires_at": entry.expires_at,
            "items": state.count(entry),
            "settings": entry.settings,
            "form": "partial" if entry.loading else "bank" if is_bank else "file",
        }
        yield _framed(json.dumps(about).encode())
        for part in _parts(entry, is_bank):
            if part:
                yield _framed(part)
        yield _LENGTH.pack(0)


def _parts(entry: Entry, is_bank: bool) -> Iterator[bytes]:
    if entry.loading is not None:
        yield from entry.loading.parts()
    elif is_bank:
        with tempfile.TemporaryFile() as file:
            bank.write(entry.filter, file)
            file.seek(0)
            while part := file.read(_PART):
                yield part
    else:
        yield saved.head(entry.filter)
        offset = 0
        while part := saved.part(entry.filter, offset, _PART):
            yield part
            offset += len(part)


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


class _DumpReader:
    """Frames of a stream that comes in pieces of any size."""

    def __init__(self, pieces: Iterator[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._buffer = memoryview(b"")

    def take(self, count: int) -> bytes:
        """The next so many bytes; CorruptData if there are fewer."""
        parts = []
        while count:
            if not self._buffer:
                piece = next(self._pieces, None)
                if piece is None:
                    raise errors.CorruptData("a snapshot is cut off")
                self._buffer = memoryview(piece)
            parts.append(self._buffer[:count])
            self._buffer = self._buffer[count:]
            count -= len(parts[-1])
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def frame(self, most: int) -> bytes:
        """The next frame; CorruptData if it is longer than that."""
        (length,) = _LENGTH.unpack(self.take(_LENGTH.size))
        if length > most:
            raise errors.CorruptData(f"a snapshot has a part of {length} bytes, at most {most}")
        return self.take(length)

    def fields(self) -> dict[str, Any]:
        """The next frame as a JSON object."""
        data = self.frame(_MOST_JSON)
        try:
            fields = json.loads(data)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise errors.CorruptData("a snapshot has no JSON object where one is expected")
        return fields

    def parts(self) -> Iterator[bytes]:
        """The parts of a filter."""
        while part := self.frame(2 * _PART):
            yield part


def load(pieces: Iterator[bytes | memoryview]) -> tuple[list[Entry], float, bytes]:
    """Return the filters of a stream, the time, and the ledger; CorruptData if it is none."""
    reader = _DumpReader(pieces)
    try:
        whole = reader.fields()
        entries = [_entry(reader) for _ in range(int(whole["filters"]))]
        return entries, float(whole["now"]), str(whole["ledger"]).encode()
    except (KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, errors.BloomeryError):
            raise
        raise errors.CorruptData("a snapshot lacks what each has") from problem


def read_ledger(pieces: Iterator[bytes | memoryview]) -> bytes:
    """Return the ledger of a stream, whose filters are not read; CorruptData if it is none."""
    try:
        return str(_DumpReader(pieces).fields()["ledger"]).encode()
    except KeyError:
        raise errors.CorruptData("a snapshot has no ledger") from None


def _entry(reader: _DumpReader) -> Entry:
    about = reader.fields()
    entry = Entry(
        int(about["id"]),
        name_of(about["name"]),
        None,
        float(about["created_at"]),
        about["expires_at"],
        int(about["items"]),
        dict(about["settings"]),
    )
    if about["form"] == "bank":
        entry.filter = _bank(reader)
        return entry
    loading = Loading()
    for part in reader.parts():
        entry.filter = loading.take(loading.received, part)
    if about["form"] == "partial":
        entry.loading = loading
    elif entry.filter is None:
        raise errors.CorruptData(f"a snapshot has only {loading.received} bytes of a filter")
    return entry


def _bank(reader: _DumpReader) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bank")
        with path.open("wb") as file:
            for part in reader.parts():
                file.write(part)
        return open_filter(path)
