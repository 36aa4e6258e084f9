"""Snapshots: number 7 is the state at the start of segment 7 of the log, a folder of saved
filters and a manifest. The folder gets its name when it is whole and on the disk."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from bloomery import _native, errors
from bloomery.filters import bank
from bloomery.filters import saved as saved_filter
from bloomery.filters.files import Loading
from bloomery.filters.files import open as open_filter
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import name_of, text_of
from bloomery.service.domain.state import State
from bloomery.service.durability.folder import (
    log_folder,
    segment_path,
    segments,
    snapshots_folder,
)
from bloomery.storage import files

MANIFEST = "manifest.json"
_FORMAT = 1
# Written between two syncs: the log's own writes wait for no more than that.
_PACE_BYTES = 4 << 20
# Read or written at once: the kernel may give no other thread the core in the meantime. With steps
# of 1 MiB, and 64 MiB between two syncs, p99 of other clients' reads was 2.4 times as long during a
# snapshot as before it, on two cores.
_STEP_BYTES = 128 << 10
_KEPT = 2
DAMAGED = 3  # an exit code of the process that makes a snapshot


@dataclass(slots=True)
class ManifestEntry:
    """A filter of a snapshot, as its manifest has it."""

    id: int
    name: str
    created_at: float
    expires_at: float | None
    items: int
    settings: dict[str, Any]
    file: str
    nbytes: int
    checksum: int
    partial: bool = False  # it was still being loaded: the bytes that had come
    # The sum of the file's head: two filters of the same memory may differ there, since it has the
    # time and the generation of a rotating one. None: it was saved before this was kept.
    head: int | None = None

    @classmethod
    def of(cls, entry: Entry, path: Path, checksum: int) -> ManifestEntry:
        """Describe a filter whose file is written."""
        return cls(
            entry.id,
            text_of(entry.name),
            entry.created_at,
            entry.expires_at,
            entry.items,
            entry.settings,
            path.name,
            path.stat().st_size,
            checksum,
            entry.loading is not None,
            head_sum(path),
        )

    def entry(self) -> Entry:
        """Return the entry, without its filter."""
        return Entry(
            self.id,
            name_of(self.name),
            None,
            self.created_at,
            self.expires_at,
            self.items,
            self.settings,
        )


@dataclass(slots=True)
class SnapshotManifest:
    """The manifest of a snapshot: its filters, and where the log goes on."""

    number: int
    seq: int  # of the last row of the log that is in it
    next_id: int
    now: float
    entries: list[ManifestEntry] = field(default_factory=list)
    # By file, when it was last read whole, and when the second copy of it, in the snapshot that
    # this one was made from: as numbers of snapshots. Not there: nobody knows.
    verified: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, data: str | os.PathLike[str], number: int) -> SnapshotManifest:
        """Read a manifest; CorruptData if it is not as it was written."""
        path = folder_of(data, number) / MANIFEST
        try:
            manifest = cls.parse(path.read_bytes(), path)
        except FileNotFoundError:
            raise errors.CorruptData(f"{path}: missing") from None
        if manifest.number != number:
            raise errors.CorruptData(f"{path}: that of snapshot {manifest.number}")
        return manifest

    @classmethod
    def parse(cls, raw: bytes, path: Path) -> SnapshotManifest:
        """Read the bytes of a manifest, which are from `path`; CorruptData as `read`."""
        try:
            content = json.loads(raw)
            body = content["manifest"]
            if content["checksum"] != manifest_sum(body):
                raise errors.CorruptData(f"{path}: damaged: its checksum does not hold")
            if body["format"] != _FORMAT:
                raise errors.UnsupportedVersion(
                    f"{path}: version {body['format']}, and this bloomery knows {_FORMAT}: start "
                    "the newer bloomery that wrote it"
                )
            entries = [ManifestEntry(**one) for one in body["entries"]]
            for one in entries:
                known = one.partial or "kind" in one.settings
                if one.file != f"{int(one.id)}.bloomery" or not known:
                    raise errors.CorruptData(f"{path}: damaged: {one.file!a} is no file of it")
            known = body.get("verified", {})
            return cls(body["number"], body["seq"], body["next_id"], body["now"], entries, known)
        except (KeyError, TypeError, ValueError, RecursionError) as problem:
            if isinstance(problem, errors.BloomeryError):
                raise
            raise errors.CorruptData(f"{path}: damaged: not a manifest") from None

    def write(self, folder: Path) -> None:
        """Write the manifest, which makes the folder a snapshot."""
        body = {"format": _FORMAT, **asdict(self)}
        with (folder / MANIFEST).open("w", encoding="ascii") as file:
            json.dump({"manifest": body, "checksum": manifest_sum(body)}, file)
            file.flush()
            os.fsync(file.fileno())
        files.sync_folder(str(folder))

    def load(
        self,
        data: str | os.PathLike[str],
        saved: ManifestEntry,
        preloaded: Callable[[Path], Any] = lambda path: None,
    ) -> Entry:
        """Read an entry with its filter into memory; CorruptData if it is not as it was saved.
        `preloaded` returns the filter of a file that was read before, or None."""
        path = folder_of(data, self.number) / saved.file
        entry = saved.entry()
        try:
            check_file(path, saved)
            if saved.partial:
                entry.loading = Loading()
                with path.open("rb") as file:
                    for part in read_chunks(file):
                        entry.loading.take(entry.loading.received, part)
            else:
                entry.filter = preloaded(path)
                if entry.filter is None:
                    entry.filter = open_filter(path)
        except FileNotFoundError:
            raise errors.CorruptData(f"{path}: missing") from None
        return entry


def head_sum(path: Path) -> int:
    """The sum of the first bytes of a file."""
    with path.open("rb") as file:
        return zlib.crc32(file.read(files.HEADER_BYTES))


def check_file(path: Path, saved: ManifestEntry) -> None:
    """Raise CorruptData unless this is the file of that entry; its bits are checked when read."""
    nbytes = path.stat().st_size
    if nbytes != saved.nbytes:
        raise errors.CorruptData(f"{path}: {nbytes} bytes, expected {saved.nbytes}")
    with path.open("rb") as file:
        if saved.partial:
            checksum = 0
            for part in read_chunks(file):
                checksum = zlib.crc32(part, checksum)
        else:
            head = file.read(files.HEADER_BYTES)
            checksum = int.from_bytes(head[-8:], "little")
    if checksum != saved.checksum or (saved.head is not None and head_sum(path) != saved.head):
        raise errors.CorruptData(f"{path}: damaged, or the file of another snapshot")


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in the chunks that its checksum is made of, each read in short steps."""
    steps = iter(lambda: file.read(_STEP_BYTES), b"")
    while chunk := b"".join(itertools.islice(steps, files.CHUNK_BYTES // _STEP_BYTES)):
        yield chunk


def folder_of(data: str | os.PathLike[str], number: int) -> Path:
    """Where a snapshot is."""
    return snapshots_folder(data) / f"{number:08}"


def snapshot_numbers(data: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the snapshots there are, in order."""
    folders = snapshots_folder(data).glob("*")
    return sorted(int(path.name) for path in folders if path.name.isdecimal())


def manifest_sum(body: dict[str, Any]) -> int:
    return _native.checksum(json.dumps(body, sort_keys=True).encode())


class PacedFile:
    """A file that is brought to the disk as it is written, and not all of it at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = 0
        self.seek, self.truncate = file.seek, file.truncate

    def write(self, data: bytes) -> int:
        """Write in short steps, and wait for the disk now and then."""
        view = memoryview(data)
        for start in range(0, len(view), _STEP_BYTES):
            self._written += self._file.write(view[start : start + _STEP_BYTES])
            if self._written >= _PACE_BYTES:
                self._file.flush()
                os.fdatasync(self._file.fileno())
                self._written = 0
        return len(view)


def save(entry: Entry, folder: Path) -> ManifestEntry:
    """Write an entry's file into a folder."""
    path = folder / f"{entry.id}.bloomery"
    with path.open("wb") as raw:
        file = cast("BinaryIO", PacedFile(raw))
        if entry.loading is None and entry.filter.kind == "bank":
            bank.write(entry.filter, raw, _PACE_BYTES)
        elif entry.loading is not None:
            checksum = 0
            for part in entry.loading.parts():
                checksum = zlib.crc32(part, checksum)
                file.write(part)
        else:
            saved_filter.write(entry.filter, file)
        raw.flush()
        os.fsync(raw.fileno())
    if entry.loading is None:
        with path.open("rb") as raw:
            checksum = int.from_bytes(raw.read(files.HEADER_BYTES)[-8:], "little")
    return ManifestEntry.of(entry, path, checksum)


def write(data: str | os.PathLike[str], state: State, number: int, seq: int) -> None:
    """Write a state as a snapshot, from memory, for a server in which nothing changes meanwhile:
    neither by writes nor by the time."""
    with temporary(data, number) as folder:
        entries = [save(entry, folder) for entry in state.filters.values()]
        SnapshotManifest(number, seq, state.next_id, state.now, entries).write(folder)
        publish(data, folder, number)


@contextlib.contextmanager
def temporary(data: str | os.PathLike[str], number: int) -> Iterator[Path]:
    """A folder to write a snapshot into. What others left half done is removed."""
    above = snapshots_folder(data)
    above.mkdir(parents=True, exist_ok=True)
    for left in above.glob(".*.tmp"):
        shutil.rmtree(left)
    folder = above / f".{number:08}.tmp"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(data: str | os.PathLike[str], folder: Path, number: int) -> None:
    """Give a snapshot, whole and on the disk, its name."""
    target = folder_of(data, number)
    if target.exists():
        shutil.rmtree(target)  # a damaged one: a good one is not written twice
    folder.rename(target)
    files.sync_folder(str(target.parent))


def prune(data: str | os.PathLike[str], damaged: Set[int] = frozenset()) -> None:
    """Remove what no restart needs: snapshots but the last two that are not known to be damaged,
    and segments older than these.

    As long as there is one snapshot only, the other is the empty state before segment 1.
    """
    numbers = snapshot_numbers(data)
    good = [number for number in numbers if number not in damaged]
    if len(good) < _KEPT:
        return
    for number in numbers:
        if number < good[-_KEPT] or number in damaged:
            shutil.rmtree(folder_of(data, number))
    log = log_folder(data)
    for number in segments(log):
        if number < good[-_KEPT]:
            segment_path(log, number).unlink()


def command(data: str | os.PathLike[str], number: int) -> list[str]:
    """Return the command that makes a snapshot from the one before and the log, in a process of
    its own. It prints its progress as lines of JSON, and what it finds damaged (`problem`); if it
    fails, its exit code is not 0 and stderr says why, and all older ones are still there. DAMAGED:
    the files do not have it any more."""
    module = "bloomery.service.durability.snapshotter"
    return [sys.executable, "-m", module, os.fspath(data), str(number)]
