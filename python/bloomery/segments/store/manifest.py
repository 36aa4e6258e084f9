"""The manifest: which segments and which log make up a store, in one small file that is replaced
as a whole. What it does not name is a leftover of a crash."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bloomery.errors import CorruptData, UnsupportedVersion
from bloomery.storage import files

_NAME = "MANIFEST"
_FORMAT = 1

_Part = TypeVar("_Part", "SegmentEntry", "Manifest")


@dataclass(frozen=True)
class SegmentEntry:
    """A segment, as the manifest has it."""

    number: int
    keys: int  # deletions too
    deletions: int
    nbytes: int
    checksum: int  # of its file
    fp_chance: float
    filter_bytes: int
    filter_checksum: int  # a filter of another segment would say no to keys that are there


@dataclass(frozen=True)
class Manifest:
    """The state of a store, all but what is in its log."""

    fp_chance: float
    log: int  # the number of the write-ahead log
    next: int  # of the next segment or log
    segments: tuple[SegmentEntry, ...] = ()  # newest first

    def save(self, folder: Path) -> None:
        """Replace the manifest, on the disk before this returns; else nothing has changed."""
        body = json.dumps({"format": _FORMAT, **asdict(self)}).encode()
        with files.replacing(folder / _NAME) as file:
            file.write(b"%s\n%08x\n" % (body, zlib.crc32(body)))

    def with_segments(self, segments: tuple[SegmentEntry, ...], **changes: Any) -> Manifest:
        """Return the manifest of these segments, newest first."""
        return replace(self, segments=segments, **changes)


def load(folder: Path) -> Manifest | None:
    """Read a store's manifest; None if there is none."""
    path = folder / _NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(body):
        raise CorruptData(f"{path}: damaged, by its checksum: restore the store's folder")
    try:
        state = json.loads(body)
        version = state.pop("format")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise _no_manifest(path) from None
    if version != _FORMAT:
        raise UnsupportedVersion(f"{path}: of a newer bloomery, which can open it")
    try:
        segments = tuple(_checked(SegmentEntry(**segment)) for segment in state.pop("segments"))
        return _checked(Manifest(**state, segments=segments))
    except (KeyError, TypeError):
        raise _no_manifest(path) from None


def _no_manifest(path: Path) -> CorruptData:
    return CorruptData(f"{path}: no manifest of a store: restore the store's folder")


def _checked(part: _Part) -> _Part:
    """A manifest or an entry of one, if its values are of their types: numbers become names of
    files, and a text may lead out of the folder."""
    values: dict[str, Any] = vars(part)
    for name, value in values.items():
        kind = {"fp_chance": float, "segments": tuple}.get(name, int)
        if not (kind is tuple or value >= 0) or type(value) is not kind:
            raise TypeError(name)
    return part
