"""The files of a store and what readers see of them: the log, the segments, and how they change."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bloomery._native as _native
from bloomery import errors
from bloomery.segments.store import compaction, manifest, wal
from bloomery.segments.store.segment import Segment, segment_paths, write_segment
from bloomery.segments.store.wal import Entry, WriteAheadLog
from bloomery.storage.files import sync_folder

_ENTRY_BYTES = 100  # what Python takes for an entry of a dict, beside key and value
MISSING: Any = object()  # in the place of a value: the memtable has none


class View(NamedTuple):
    """What readers see; another takes its place whenever segments change."""

    memtable: dict[bytes, bytes | None]
    segments: tuple[Segment, ...]  # newest first
    filters: _native.Pack  # theirs, in the same order


class Tree:
    """A memtable with its log, and segments; one thread at a time changes them."""

    def __init__(
        self,
        folder: Path,
        *,
        fp_chance: float | None,
        memtable_bytes: int,
        compact_at: int,
        fsync: bool,
        verify: bool,
    ) -> None:
        self.folder = folder
        self._memtable_bytes, self._compact_at, self._fsync = memtable_bytes, compact_at, fsync
        self.lock = threading.RLock()
        self._closed = False
        self._swapping = False  # an interrupt may have left another manifest on the disk
        self._held = 0  # bytes in the memtable, about
        self._wanted = memtable_bytes  # at how many bytes to flush
        self.failure: OSError | None = None  # of the last flush or compaction that a put began
        self.manifest = manifest.load(folder) or self._create(fp_chance or 0.01)
        if fp_chance is not None:
            self.set_fp_chance(fp_chance)
        segments = tuple(Segment(folder, entry, verify=verify) for entry in self.manifest.segments)
        path = self._log_path(self.manifest.log)
        memtable: dict[bytes, bytes | None] = {}
        for key, value in wal.replay(path):
            self._hold(memtable, key, value)
        self._show(memtable, segments)
        self.log = WriteAheadLog(path, fsync=fsync)
        self._remove_leftovers()  # last: nothing goes before all that the manifest names is whole

    def _create(self, chance: float) -> manifest.Manifest:
        """Make an empty store; refuse if there are segments of one that lost its manifest."""
        lost = sorted(self.folder.glob("segment-*.sqlite"))
        logs = [log for log in self.folder.glob("wal-*.log") if log.stat().st_size > len(wal.MAGIC)]
        if lost or logs:
            raise errors.CorruptData(
                f"{self.folder}: the manifest is missing, and {(lost + logs)[0].name} is there: "
                "restore the store's folder from a copy"
            )
        self._log_path(1).unlink(missing_ok=True)
        WriteAheadLog.create(self._log_path(1), fsync=self._fsync).close()
        state = manifest.Manifest(fp_chance=chance, log=1, next=2)
        state.save(self.folder)
        return state

    def _log_path(self, number: int) -> Path:
        return self.folder / f"wal-{number:06}.log"

    def _remove_leftovers(self) -> None:
        """Remove what a crash left behind: files that the manifest does not name."""
        sync_folder(str(self.folder))  # an interrupt may have come before the manifest was safe
        named = {self._log_path(self.manifest.log)}
        for entry in self.manifest.segments:
            named.update(segment_paths(self.folder, entry.number))
        for pattern in ("segment-*", "wal-*", ".MANIFEST.*.tmp"):
            for path in set(self.folder.glob(pattern)) - named:
                path.unlink(missing_ok=True)

    def _show(self, memtable: dict[bytes, bytes | None], segments: tuple[Segment, ...]) -> None:
        filters = _native.Pack.join([segment.filter for segment in segments])
        self.view = View(memtable, segments, filters)

    def _hold(self, memtable: dict[bytes, bytes | None], key: bytes, value: bytes | None) -> None:
        old = memtable.get(key, MISSING)
        if old is MISSING:
            self._held += len(key) + _ENTRY_BYTES
        else:
            self._held -= len(old or b"")
        self._held += len(value or b"")
        memtable[key] = value

    def close(self) -> None:
        """Let go of the files; whoever waits to change them is refused."""
        self._closed = True
        with contextlib.suppress(OSError):
            self.log.sync()
        self.log.close()
        self.view = View({}, (), _native.Pack.join([]))

    def set_fp_chance(self, chance: float) -> None:
        """Change the chance for segments to come."""
        with self.lock:
            self._check()
            state = self.manifest
            if chance == state.fp_chance:
                return
            try:
                self._swapping = True
                new = state.with_segments(state.segments, fp_chance=chance)
                new.save(self.folder)
                self.manifest = new
                self._swapping = False
            except BaseException:
                self._take_back(state)
                raise

    # Writing.

    def _check(self) -> None:
        """Refuse to change files that are another's by now, or of which an interrupt left it open
        which of them count."""
        if self._closed:
            raise errors.InvalidParameter("the store is closed: open the folder again")
        if self._swapping:
            raise errors.InvalidParameter(
                f"{self.folder}: a flush or a merge was interrupted, and nothing is lost: close "
                "the store and open the folder again"
            )

    def _take_back(self, state: manifest.Manifest, *new_files: Path) -> bool:
        """Remove new files, if the manifest on the disk is that of before; whether it is. One that
        was replaced names them, and is for the next opening."""
        if manifest.load(self.folder) != state:
            return False
        self._swapping = False
        for path in new_files:
            with contextlib.suppress(OSError):
                path.unlink()
        return True

    def write(self, entries: Sequence[Entry]) -> None:
        """Log entries and hold them; after an OSError none of them counts."""
        with self.lock:
            self._check()
            if self.log.doubtful:
                self.flush()  # what is acknowledged becomes a segment, and the log a new one
            if self.failure is not None and self._held >= 4 * self._memtable_bytes:
                self.flush()  # raises for as long as there is no room
            self.log.append(entries)
            for key, value in entries:
                self._hold(self.view.memtable, key, value)
            if self._held >= self._wanted:
                self._flush_by_itself()

    def sync(self) -> None:
        """Bring what is logged to the disk; a log that is in doubt is flushed to a segment."""
        with self.lock:
            self._check()
            if self.log.doubtful:
                self.flush()
            else:
                self.log.sync()

    def _flush_by_itself(self) -> None:
        """Flush and compact. What was put is acknowledged by the log: a failure is kept for `stats`
        and tried again when there is a quarter more."""
        try:
            self.flush()
            while self._compact_at and self.merge_next_tier():
                pass
        except OSError as failure:
            self.failure = failure
            self._wanted = self._held + self._memtable_bytes // 4 + 1

    def flush(self) -> None:
        """Write the memtable to a new segment; after an OSError (a full disk) all is as before."""
        with self.lock:
            self._check()
            memtable, segments, _ = self.view
            if not memtable and not self.log.doubtful:
                return
            state = self.manifest
            entry = write_segment(
                self.folder, state.next, sorted(memtable.items()), state.fp_chance
            )
            log_number = state.next + 1
            log = None
            try:
                log = WriteAheadLog.create(self._log_path(log_number), fsync=self._fsync)
                entries = state.segments if entry is None else (entry, *state.segments)
                new = state.with_segments(entries, log=log_number, next=log_number + 1)
                fresh = () if entry is None else (Segment(self.folder, entry, verify=False),)
                self._swapping = True
                new.save(self.folder)
                old, self.log, self.manifest = self.log, log, new
                self._show({}, (*fresh, *segments))
                self._held, self._wanted, self.failure = 0, self._memtable_bytes, None
                self._swapping = False
            except BaseException:
                new_files = (*segment_paths(self.folder, state.next), self._log_path(log_number))
                if self._take_back(state, *new_files) and log is not None:
                    log.close()
                raise
            old.close()
            old.path.unlink(missing_ok=True)

    def merge_next_tier(self) -> bool:
        """Merge segments of about one size, if there are enough; whether there were."""
        sizes = [entry.nbytes for entry in self.manifest.segments]
        tier = compaction.next_tier(sizes, self._compact_at)
        if tier is not None:
            self.merge(tier)
        return tier is not None

    def merge(self, which: range) -> None:
        """Put one segment in the place of neighbours."""
        self._check()
        segments, state = self.view.segments, self.manifest
        merged = segments[which.start : which.stop]
        # What was deleted may be in an older segment still, and would come back.
        entries = compaction.merge(
            [segment.entries() for segment in merged],
            keep_deletions=which.stop < len(segments),
        )
        entry = write_segment(self.folder, state.next, entries, state.fp_chance)
        try:
            fresh = () if entry is None else (Segment(self.folder, entry, verify=False),)
            replaced = (*segments[: which.start], *fresh, *segments[which.stop :])
            listed = tuple(segment.entry for segment in replaced)
            new = state.with_segments(listed, next=state.next + 1)
            self._swapping = True
            new.save(self.folder)
            self.manifest = new
            self._show(self.view.memtable, replaced)
            self._swapping = False
        except BaseException:
            self._take_back(state, *segment_paths(self.folder, state.next))
            raise
        for segment in merged:
            segment.remove_files()
        sync_folder(str(self.folder))
