"""The process that makes a snapshot: it loads the one before and replays the log since then.

    python -m bloomery.service.durability.snapshotter DATA NUMBER

Filters that changed are copied, and changed where the copy is mapped: the kernel can write such
memory out, so that the filters are not held twice. Of others there are two
files (`redundant_files.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

from bloomery import _native, errors
from bloomery.filters.internals import header, shares
from bloomery.filters.saved import expect
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.state import State
from bloomery.service.durability import snapshots
from bloomery.service.durability.folder import log_folder, snapshots_folder
from bloomery.service.durability.log_reader import LogReader
from bloomery.service.durability.redundant_files import RedundantFiles
from bloomery.service.durability.replay import DamagedSnapshot, replay
from bloomery.service.durability.snapshots import ManifestEntry, SnapshotManifest
from bloomery.storage import files

_PATIENCE = 30.0  # seconds
_PACE_BYTES = 64 << 20
MAP_FROM = 1 << 20  # bytes: smaller filters are changed in memory and written once


class LazyState(State):
    """The filters of a snapshot; each is read when something is done to it."""

    def __init__(self, data: Path, base: SnapshotManifest | None, folder: Path) -> None:
        super().__init__()
        self.data, self.base, self.folder = data, base, folder
        self.redundant = None if base is None else RedundantFiles(data, base, folder, _say_problem)
        self.untouched: dict[int, ManifestEntry] = {}
        self.maps: dict[int, mmap.mmap] = {}
        if base is not None and self.redundant is not None:
            self.now = base.now
            for saved in base.entries:
                if saved.partial:
                    self.redundant.repaired(saved)
                    self.put(base.load(data, saved))
                else:
                    self.untouched[saved.id] = saved
                    self.put(saved.entry())
            self.next_id = base.next_id

    def filter_of(self, entry: Entry) -> Any:
        """Return the filter, read now if it was not."""
        saved = self.untouched.pop(entry.id, None)
        if saved is not None:
            try:
                self._read(entry, saved)
            except errors.CorruptData as problem:  # the server did not refuse the operation
                raise DamagedSnapshot(str(problem)) from None
            self.set_clock(entry)
        return super().filter_of(entry)

    def _read(self, entry: Entry, saved: ManifestEntry) -> None:
        assert self.base is not None
        assert self.redundant is not None
        if saved.nbytes < MAP_FROM or saved.settings.get("kind") == "bank":
            self.redundant.repaired(saved)
            entry.filter = self.base.load(self.data, saved).filter
        else:
            self.redundant.copy(saved, self.folder / saved.file)
            self._map(entry, self.folder / saved.file)

    def set_filter(self, entry: Entry, filter: Any) -> None:
        """Give another filter to an entry, whose file is of no use then."""
        self.untouched.pop(entry.id, None)
        super().set_filter(entry, filter)

    def put(self, entry: Entry) -> None:
        """Take an entry in; a large filter in memory moves to a file."""
        filter = entry.filter
        new = filter is not None and entry.id not in self.maps and filter.kind != "bank"
        if new and filter.nbytes >= MAP_FROM:
            saved = snapshots.save(entry, self.folder)
            entry.filter = None
            self._map(entry, self.folder / saved.file)
        super().put(entry)

    def _map(self, entry: Entry, path: Path) -> None:
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        head = mapped[: files.HEADER_BYTES]
        cls, _, _ = expect(head)
        entry.filter = cls._open(head, mapped, files.HEADER_BYTES, writable=True)
        self.maps[entry.id] = mapped

    def save(self, entry: Entry) -> ManifestEntry:
        """Bring an entry's file to the disk."""
        saved = self.untouched.get(entry.id)
        if saved is not None:
            assert self.redundant is not None
            self.redundant.bring(saved)
            return ManifestEntry.of(entry, self.folder / saved.file, saved.checksum)
        mapped = self.maps.get(entry.id)
        if mapped is None or not shares(entry.filter, mapped, files.HEADER_BYTES):
            (self.folder / f"{entry.id}.bloomery").unlink(missing_ok=True)
            return snapshots.save(entry, self.folder)
        checksum = _checksum(mapped)
        mapped[: files.HEADER_BYTES] = header(entry.filter, checksum)
        for start in range(0, len(mapped), _PACE_BYTES):
            mapped.flush(start, min(_PACE_BYTES, len(mapped) - start))
        path = self.folder / f"{entry.id}.bloomery"
        with path.open("r+b") as file:
            os.fsync(file.fileno())
        return ManifestEntry.of(entry, path, checksum)


def _checksum(mapped: mmap.mmap) -> int:
    checksum = 0
    with memoryview(mapped) as view:
        for start in range(files.HEADER_BYTES, len(view), files.CHUNK_BYTES):
            checksum = _native.checksum(view[start : start + files.CHUNK_BYTES], checksum)
    return checksum


def take(data: str | os.PathLike[str], number: int) -> None:
    """Make a snapshot, unless there is a good one. The newest older one that is not damaged, and
    the log since then, is what it is made of."""
    path = Path(data)
    with contextlib.suppress(errors.CorruptData):
        SnapshotManifest.read(path, number)
        _say(done=number)
        return
    older = [n for n in reversed(snapshots.snapshot_numbers(path)) if n < number]
    damaged: set[int] = set()
    for base in [*older, 0]:
        try:
            rows = _take(path, number, base)
        except errors.CorruptData as problem:
            if base == 0:
                raise
            damaged.add(base)
            _say_problem(str(problem))
        else:
            snapshots.prune(path, damaged)
            _say(done=number, rows=rows)
            return


def _take(data: Path, number: int, base: int) -> int:
    """Make it from one snapshot and the log; return how many rows were replayed."""
    with snapshots.temporary(data, number) as folder:
        before = SnapshotManifest.read(data, base) if base else None
        state = LazyState(data, before, folder)
        seq = before.seq if before else 0
        rows = LogReader(log_folder(data), base or 1, seq, number)
        _say(base=base, segments=len(rows.segments), filters=len(state.filters))
        problems: list[str] = []
        replay(state, rows, problems, lambda: _keep_on(rows=rows.rows))
        problems = [*rows.problems, *problems]
        if problems:
            raise errors.CorruptData("; ".join(problems[:5]))
        if state.redundant is not None:
            state.redundant.choose(state.untouched.values())
        entries = []
        for entry in state.filters.values():
            entries.append(state.save(entry))
            _keep_on(saved=len(entries))
        kept = {saved.file for saved in entries}
        for left in folder.iterdir():
            if left.name not in kept:
                left.unlink()  # of a filter that was dropped
        verified = {} if state.redundant is None else state.redundant.verified
        manifest = SnapshotManifest(number, rows.last, state.next_id, state.now, entries, verified)
        manifest.write(folder)
        snapshots.publish(data, folder, number)
    return rows.rows


_parent = os.getppid()
_said = 0.0


def _keep_on(**progress: int) -> None:
    """Say how far it is, now and then; stop if the server is gone: the next one starts its own."""
    global _said
    if os.getppid() != _parent:
        sys.exit("the server is gone")
    if time.monotonic() - _said > 0.2:
        _said = time.monotonic()
        _say(**progress)


def _say(**progress: object) -> None:
    print(json.dumps(progress), flush=True)


def _say_problem(text: str) -> None:
    _say(problem=text)


def wait_for_lock(lock: IO[str], folder: Path) -> None:
    """Take the lock. That of a server that was killed ends by itself, if not at once."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise errors.FolderInUse(f"{folder}: another snapshot is being made") from None
        _keep_on()
        time.sleep(0.05)


def main(arguments: list[str]) -> int:
    """Make the snapshot that the arguments name; 0 if it is there."""
    try:
        data, number = arguments[0], int(arguments[1])
    except (IndexError, ValueError):
        print(
            "usage: python -m bloomery.service.durability.snapshotter DATA NUMBER",
            file=sys.stderr,
        )
        return 1
    folder = snapshots_folder(data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            wait_for_lock(lock, folder)
            take(data, number)
    except (errors.BloomeryError, OSError) as problem:
        print(f"no snapshot {number}: {problem}".replace("\n", " "), file=sys.stderr)
        return snapshots.DAMAGED if isinstance(problem, errors.CorruptData) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
