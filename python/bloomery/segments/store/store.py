"""Keys and values as an LSM tree keeps them: a memtable and its log, segments and their filters."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.segments.filters import check_fp_chance
from bloomery.segments.store import compaction
from bloomery.segments.store.entries import as_bytes, as_key, as_value
from bloomery.segments.store.explanation import Explanation, Outcome, Step
from bloomery.segments.store.segment import Segment
from bloomery.segments.store.tree import MISSING, Tree, View
from bloomery.segments.store.wal import Entry
from bloomery.storage.locking import lock_folder

if TYPE_CHECKING:
    from typing_extensions import Self

_BATCH = 10_000


@dataclass
class _Counts:
    gets: int = 0
    skipped: int = 0
    read: int = 0
    in_vain: int = 0


class SegmentStore:
    """Keys and values in a folder, where a filter in front of each segment spares most reads.

    >>> store = SegmentStore("events", fp_chance=0.01)
    >>> store.put("user:42", "Ada")
    >>> store.get("user:42")
    b'Ada'
    >>> store.close()

    Keys and values are bytes; a str is its UTF-8. `put` returns once the entry is in the
    write-ahead log, and on the disk unless `fsync=False`: then a killed process loses nothing, and
    a power cut what was put since the last `sync` or `flush`. Entries are kept in memory up to
    `memtable_bytes`, then flushed to a new segment; `compact_at` segments of about one size are
    merged into one (0: only by `compact`).

    `fp_chance` is how often the filter of a segment may say maybe to a key that is not in it, for
    segments that are written from now on. Any thread may read; one process has the folder, and in
    a child that it forks every use is an error.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fp_chance: float | str | None = None,
        memtable_bytes: int = 64 << 20,
        compact_at: int = 4,
        fsync: bool = True,
        verify: bool = True,
    ) -> None:
        """Open the store in a folder, or make one there.

        Without an `fp_chance` it is that of the last time, of a new store 0.01. `verify` reads all
        segments for their checksums.
        """
        if memtable_bytes < 1 or (compact_at != 0 and compact_at < 2):
            raise errors.InvalidParameter(
                f"memtable_bytes is {memtable_bytes}, must be 1 or more; compact_at is "
                f"{compact_at}, must be 0 (never), or 2 or more"
            )
        chance = None if fp_chance is None else check_fp_chance(fp_chance)
        self.path = Path(path).absolute()  # the same folder wherever the process goes
        self._counts = _Counts()
        self._closed, self._process = False, os.getpid()
        self._folder_lock = lock_folder(self.path, "store")
        try:
            self._tree = Tree(
                self.path,
                fp_chance=chance,
                memtable_bytes=memtable_bytes,
                compact_at=compact_at,
                fsync=fsync,
                verify=verify,
            )
        except BaseException:
            self._folder_lock.close()
            raise

    # Writing.

    def put(self, key: bytes | str, value: bytes | str) -> None:
        """Set the value of a key; after an error it is as before."""
        self._write([(as_key(key), as_value(value))])

    def put_many(
        self, items: Mapping[Any, bytes | str] | Iterable[tuple[bytes | str, bytes | str]]
    ) -> None:
        """Set many values, with one wait for the disk for every 10,000 of them.

        After an error those before the one that failed are set, and maybe some of the next 10,000.
        """
        pairs: Iterator[tuple[Any, Any]] = iter(
            items.items() if isinstance(items, Mapping) else items
        )
        while batch := [(as_key(key), as_value(value)) for key, value in islice(pairs, _BATCH)]:
            self._write(batch)

    def delete(self, key: bytes | str) -> None:
        """Forget a key, whether or not it is there."""
        self._write([(as_key(key), None)])

    def _write(self, entries: Sequence[Entry]) -> None:
        self._writable().write(entries)

    def sync(self) -> None:
        """Return once everything put is on the disk, where no power cut takes it back.

        After an OSError the next one, or the next `put`, writes it all anew, to a segment.
        """
        self._writable().sync()

    def flush(self) -> None:
        """Write the memtable to a new segment; after an OSError (a full disk) all is as before."""
        self._writable().flush()

    def compact(self) -> None:
        """Merge all segments into one, and drop what was deleted or replaced."""
        tree = self._writable()
        with tree.lock:
            tree.flush()
            count = len(tree.view.segments)
            if count > 1 or any(entry.deletions for entry in tree.manifest.segments):
                tree.merge(range(count))

    @property
    def fp_chance(self) -> float:
        """How often the filter of a new segment may say maybe to a key that is not in it. Setting
        it leaves segments that are there as they are, until they are merged."""
        return self._owned().manifest.fp_chance

    @fp_chance.setter
    def fp_chance(self, value: float | str) -> None:
        self._writable().set_fp_chance(check_fp_chance(value))

    # Reading.

    def get(self, key: bytes | str, default: bytes | None = None) -> bytes | None:
        """Return the value of a key, or the default."""
        key = as_key(key)
        memtable, segments, filters = self._readable()
        value: Any = memtable.get(key, MISSING)
        if value is MISSING:
            value = self._from_segments(key, segments, filters.maybes(key))
        return default if value is None else value

    def get_many(self, keys: Iterable[bytes | str]) -> list[bytes | None]:
        """Return the value of each key, None where there is none."""
        asked = [as_key(key) for key in keys]
        memtable, segments, filters = self._readable()
        values: list[Any] = [memtable.get(key, MISSING) for key in asked]
        left = [number for number, value in enumerate(values) if value is MISSING]
        maybes = filters.maybes_many([asked[number] for number in left])
        for number, which in zip(left, maybes, strict=True):
            values[number] = self._from_segments(asked[number], segments, which)
        return values

    def _from_segments(
        self, key: bytes, segments: tuple[Segment, ...], maybes: list[int]
    ) -> bytes | None:
        """The newest value among the segments that may have one."""
        counts = self._counts
        counts.gets += 1
        asked = len(segments)
        value: bytes | None = None
        read = 0
        for number in maybes:
            read += 1
            row = segments[number].get(key)
            if row is not None:
                (value,) = row
                asked = number + 1
                break
            counts.in_vain += 1
        counts.read += read
        counts.skipped += asked - read
        return value

    def __contains__(self, key: bytes | str) -> bool:
        """True if the key has a value; this is no maybe."""
        return self.get(key) is not None

    def scan(
        self, start: bytes | str = b"", stop: bytes | str | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in the order of the keys' bytes, from one key up to another.

        It shows the store as it is when the first is asked for, whatever is put meanwhile.
        """
        first, end = as_bytes(start, "start"), None if stop is None else as_bytes(stop, "stop")
        with self._writable().lock:
            memtable, segments, _ = self._readable()
            fresh = sorted(
                (key, value)
                for key, value in memtable.items()
                if key >= first and (end is None or key < end)
            )
            streams = [fresh, *(segment.entries(first, end) for segment in segments)]
            merged = compaction.merge(streams, keep_deletions=False)
            # The first opens all files: from then on it does not matter if they are removed.
            head = list(islice(merged, 1))
        for key, value in chain(head, merged):
            assert value is not None
            yield key, value

    def explain(self, key: bytes | str) -> Explanation:
        """Read a key, and say which segments its filters skipped and which were read, or in vain.

        It does what `get` does, and counts as nothing in `stats`.
        """
        key = as_key(key)
        memtable, segments, filters = self._readable()
        value: Any = memtable.get(key, MISSING)
        done = value is not MISSING
        first: Outcome = "not there"
        if done:
            first = "deleted" if value is None else "found"
        steps = [Step("memtable", len(memtable), None, first)]
        maybes = set(filters.maybes(key))
        for number, segment in enumerate(segments):
            outcome: Outcome = "not asked"
            if not done and number not in maybes:
                outcome = "skipped"
            elif not done:
                row = segment.get(key)
                done = row is not None
                outcome = (
                    "read in vain" if row is None else "deleted" if row[0] is None else "found"
                )
            steps.append(Step(segment.name, segment.entry.keys, segment.entry.fp_chance, outcome))
        return Explanation(key, tuple(steps))

    def stats(self) -> dict[str, Any]:
        """What the store holds, what its filters take, and what they have spared so far.

        `false_positive_rate` is the share of segments without the key whose filter said maybe; None
        before the first question.
        """
        memtable, segments, _ = self._readable()
        entries, counts = [segment.entry for segment in segments], self._counts
        without_key = counts.skipped + counts.in_vain
        return {
            "segments": len(segments),
            "keys_in_segments": sum(entry.keys for entry in entries),
            "deletions": sum(entry.deletions for entry in entries),
            "segment_bytes": sum(entry.nbytes for entry in entries),
            "filter_bytes": sum(entry.filter_bytes for entry in entries),
            "fp_chance": self.fp_chance,
            "fp_chances": sorted({entry.fp_chance for entry in entries}),
            "memtable_keys": len(memtable),
            "log_bytes": self._tree.log.nbytes,
            "gets": counts.gets,
            "segments_skipped": counts.skipped,
            "segments_read": counts.read,
            "segments_read_in_vain": counts.in_vain,
            "false_positive_rate": counts.in_vain / without_key if without_key else None,
            "failure": str(self._tree.failure) if self._tree.failure else None,
        }

    # The end.

    def _owned(self) -> Tree:
        if self._process != os.getpid():
            raise errors.InvalidParameter(
                f"{self.path}: the store was opened before a fork, by process {self._process}: use "
                "it there, or close it there and open the folder here"
            )
        return self._tree

    def _writable(self) -> Tree:
        tree = self._owned()
        if self._closed:
            raise errors.InvalidParameter("the store is closed: open the folder again")
        return tree

    def _readable(self) -> View:
        view = self._tree.view
        self._writable()  # after it: a store that is closed meanwhile shows nothing
        return view

    def close(self) -> None:
        """Let go of the folder. What is in the memtable stays in the log, and is there again when
        the store is opened. In a child of a fork the parent goes on having it."""
        if self._process != os.getpid():  # without the lock, which a thread had at the fork, maybe
            self._closed = True
            self._tree.log.close()
            self._folder_lock.close()
            return
        with self._tree.lock:
            if not self._closed:
                self._closed = True
                self._tree.close()
                fcntl.flock(self._folder_lock, fcntl.LOCK_UN)  # though a forked child lives on
                self._folder_lock.close()

    def __enter__(self) -> Self:
        """Return the store, which is closed at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    def __repr__(self) -> str:
        """Show where it is and how much it holds."""
        if self._closed:
            return f"<SegmentStore({str(self.path)!r}): closed>"
        segments = self._tree.manifest.segments
        keys = sum(entry.keys for entry in segments)
        return f"<SegmentStore({str(self.path)!r}): {len(segments)} segments, {keys:,} keys>"
