"""Redundancy of snapshots: every filter is in two files, one in each of the last two snapshots,
and never two names of one file.

    snapshot 7    a7 ──linked──> 9        a filter that does not change has two files, which take
    snapshot 8    b8 ──linked──> 10       turns: nothing is written, and each is in every second
                                          snapshot

They are scrubbed: both are read whole by turns, and one that is damaged is written anew from the
other.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, cast

from bloomery import _native, errors
from bloomery.service.durability import snapshots
from bloomery.service.durability.snapshots import ManifestEntry, SnapshotManifest
from bloomery.storage import files

# Files up to SMALL are read whole for every snapshot; of the larger ones those that were not for
# the longest time, as long as they are not more than this together (but at least one).
SMALL = 1 << 20
BUDGET = 256 << 20


def verify(path: Path, saved: ManifestEntry) -> None:
    """Read a file whole; CorruptData unless it is as it was saved."""
    _read(path, saved, None)


def copy(source: Path, saved: ManifestEntry, target: Path) -> None:
    """Copy a file and verify what was read. The bytes go through us: a copy that the kernel makes
    may share the source's blocks on the disk, and then it is no second one."""
    with target.open("wb") as raw:
        _read(source, saved, cast("BinaryIO", snapshots.PacedFile(raw)))
        raw.flush()
        os.fsync(raw.fileno())


def _read(path: Path, saved: ManifestEntry, target: BinaryIO | None) -> None:
    try:
        snapshots.check_file(path, saved)
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):  # from the disk, not what the kernel remembers of it
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            read(file, saved, target, path)
    except FileNotFoundError:
        raise errors.CorruptData(f"{path}: missing") from None


def read(file: BinaryIO, saved: ManifestEntry, target: BinaryIO | None, path: Path) -> None:
    """Read a filter's file whole, and write it to `target` if there is one. CorruptData, which
    names `path`, unless it is as it was saved."""
    head = b"" if saved.partial else file.read(files.HEADER_BYTES)
    update = zlib.crc32 if saved.partial else _native.checksum
    checksum, nbytes = 0, len(head)
    if target is not None:
        target.write(head)
    for part in snapshots.read_chunks(file):
        checksum = update(part, checksum)
        nbytes += len(part)
        if target is not None:
            target.write(part)
    if head:
        try:
            _native.read_header(head, None)  # it has a checksum of its own
        except errors.CorruptData as problem:
            raise errors.CorruptData(f"{path}: {problem}") from None
    if nbytes != saved.nbytes or checksum != saved.checksum:
        raise errors.CorruptData(f"{path}: damaged: its checksum does not hold")


class RedundantFiles:
    """The files of the snapshot that a new one is made from (`base`), and those of the one before
    it that are of the same bytes. Methods raise CorruptData if neither can be used."""

    def __init__(
        self, data: Path, base: SnapshotManifest, folder: Path, say: Callable[[str], None]
    ) -> None:
        """`folder` is where the new snapshot is made; `say` is called with what is damaged."""
        self.data, self.base, self.folder, self.say = data, base, folder, say
        self.verified: dict[str, list[int]] = {}  # of the new snapshot (see SnapshotManifest)
        self._spare = self._before()
        self._due: set[Path] = set()

    def _before(self) -> dict[str, Path]:
        """By name, the files of the snapshot before the base that are second copies."""
        for number in reversed(snapshots.snapshot_numbers(self.data)):
            if number < self.base.number:
                with contextlib.suppress(errors.CorruptData):
                    before = SnapshotManifest.read(self.data, number)
                    return self._same(before)
        return {}

    def _same(self, before: SnapshotManifest) -> dict[str, Path]:
        def content(entry: ManifestEntry) -> tuple[object, ...]:
            return entry.file, entry.nbytes, entry.checksum, entry.head, entry.partial

        folder, copies = snapshots.folder_of(self.data, before.number), {}
        known = {content(entry) for entry in before.entries if entry.head is not None}
        for entry in self.base.entries:
            if content(entry) in known:
                own, spare = self._own(entry), folder / entry.file
                if not (own.exists() and spare.exists() and own.samefile(spare)):
                    copies[entry.file] = spare
        return copies

    def _own(self, saved: ManifestEntry) -> Path:
        return snapshots.folder_of(self.data, self.base.number) / saved.file

    def _times(self, saved: ManifestEntry) -> tuple[int, int]:
        """When the base's file and the spare one were last read whole; 0: nobody knows."""
        match self.base.verified.get(saved.file):
            case [int(own), int(spare)]:
                return own, spare
        return 0, 0

    def choose(self, unchanged: Iterable[ManifestEntry]) -> None:
        """Choose which of these are verified now: the small, those that have another size or head
        than they should, and those that were not for longest. Those without a second copy are read
        in any case, to make it."""
        large: list[tuple[int, int, Path]] = []
        for one in unchanged:
            spare = self._spare.get(one.file)
            if spare is None:
                continue
            for path, when in zip((self._own(one), spare), self._times(one), strict=True):
                if one.nbytes <= SMALL or not _seems_whole(path, one):
                    self._due.add(path)
                else:
                    large.append((when, one.nbytes, path))
        left = BUDGET
        for _, nbytes, path in sorted(large):
            if left > 0:
                self._due.add(path)
            left -= nbytes

    def bring(self, saved: ManifestEntry) -> None:
        """Bring the file of a filter that did not change into the new snapshot."""
        own, spare, target = self._own(saved), self._spare.get(saved.file), self.folder / saved.file
        now, times = self.base.number, self._times(saved)
        if spare is not None and spare in self._due and not self._is_whole(spare, saved):
            spare = None
        if spare is None:
            self.copy(saved, target)
            times = (now, now)
        else:
            if own in self._due and not self._is_whole(own, saved):
                self._mend(own, spare, saved)
            link(spare, saved, target)
            times = (now if spare in self._due else times[1], now if own in self._due else times[0])
        self.verified[saved.file] = list(times)

    def copy(self, saved: ManifestEntry, target: Path) -> None:
        """Copy the file, from whichever is whole; the other is mended."""
        own, spare = self._own(saved), self._spare.get(saved.file)
        try:
            copy(own, saved, target)
        except errors.CorruptData as problem:
            if spare is None:
                raise
            self.say(str(problem))
            copy(spare, saved, target)
            self._mend(own, spare, saved)

    def repaired(self, saved: ManifestEntry) -> Path:
        """The base's own file, verified, or mended if it was not whole."""
        own, spare = self._own(saved), self._spare.get(saved.file)
        try:
            verify(own, saved)
        except errors.CorruptData as problem:
            if spare is None:
                raise
            self.say(str(problem))
            self._mend(own, spare, saved)
        return own

    def _is_whole(self, path: Path, saved: ManifestEntry) -> bool:
        try:
            verify(path, saved)
        except errors.CorruptData as problem:
            self.say(str(problem))
            return False
        return True

    def _mend(self, path: Path, good: Path, saved: ManifestEntry) -> None:
        """Write a damaged file anew. It gets its name when it is whole and on the disk."""
        temporary = self.folder / f".{saved.file}.tmp"
        copy(good, saved, temporary)
        temporary.replace(path)
        files.sync_folder(str(path.parent))


def _seems_whole(path: Path, saved: ManifestEntry) -> bool:
    try:
        snapshots.check_file(path, saved)
    except (errors.CorruptData, FileNotFoundError):
        return False
    return True


def link(source: Path, saved: ManifestEntry, target: Path) -> None:
    """Give a file another name, or make a copy of it where there are no hard links."""
    try:
        os.link(source, target)
    except OSError:  # no hard links here
        copy(source, saved, target)
