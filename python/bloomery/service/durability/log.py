"""The write-ahead log of a server: every change of a filter is in it before it is acknowledged.

It is a folder of segment files; the one with the highest number is written to. Native code writes
them (`crates/server/src/log`), and `docs/format.md` describes their bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from bloomery import _native, errors
from bloomery.service.domain.operations import Record
from bloomery.service.durability.control import WRITTEN, ControlWriter
from bloomery.service.durability.folder import segment_path

Row: TypeAlias = tuple[float, int, int, bytes]  # the time of its turn, and a record
Fsync: TypeAlias = Literal["always", "everysec", "never"]

SEGMENT_BYTES = 256 << 20
# With "everysec" a power cut loses at most this: a flush runs each second, and if the disk is
# slower than that, replies wait (Redis holds writes back after the same time).
LATE_SECONDS = 2.0


class Log:
    """The log, open for writing, in a new segment.

    Any thread may call any method. With fsync="always" a write returns when it is on the disk. With
    "everysec" a killed process loses nothing, and a power cut loses what was written after the last
    `flush`: the server holds replies back while the log `is_late`. With "never" the kernel chooses.
    `control` notes how far the log was written and synced, before anything is acknowledged.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        segment: int = 1,
        seq: int = 0,
        fsync: Fsync = "everysec",
        segment_bytes: int = SEGMENT_BYTES,
        control: ControlWriter | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.fsync = fsync
        self._control = control
        written = None if control is None else (control.path, WRITTEN)
        self._writer = _native.LogWriter(self.folder, segment, seq, fsync, segment_bytes, written)

    @property
    def for_workers(self) -> tuple[_native.LogWriter, float]:
        """The native log, and the monotonic time: workers write short batches."""
        return self._writer, time.monotonic()

    @property
    def seq(self) -> int:
        """The number of the last row."""
        return self._writer.seq

    @property
    def segment(self) -> int:
        """The number of the segment that is written to."""
        return self._writer.segment

    @property
    def path(self) -> Path:
        """The segment that is written to."""
        return segment_path(self.folder, self.segment)

    def append(self, records: Iterable[Record], at: float | None = None) -> None:
        """Write the records of a turn, as `write` does."""
        now = time.time() if at is None else at
        self.write([(now, *record) for record in records])

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows, all or none. LogUnavailable: nothing was written, and no start will ever read
        any of them."""
        rows = rows if isinstance(rows, list) else list(rows)
        self._writer.write(rows, time.monotonic())

    def retry(self) -> bool:
        """Return whether the log can be written again after an error. A segment that cannot be
        written or synced is left for a new one. Its rows are first written to another file if the
        kernel failed to bring them to the disk, since it does not try again."""
        try:
            self._writer.retry()
        except errors.LogUnavailable:
            return False
        return True

    def unsynced(self, now: float) -> float:
        """Return for how many seconds, at a time of `time.monotonic`, the oldest write has not been
        on the disk; 0.0 if all are."""
        since = self._writer.oldest_unsynced
        return 0.0 if since is None or self.fsync == "always" else max(0.0, now - since)

    def is_late(self, now: float) -> bool:
        """Return whether a power cut would lose more than it may. Called in every turn."""
        return self.fsync == "everysec" and self.unsynced(now) > LATE_SECONDS

    @property
    def flushing(self) -> bool:
        """Whether a flush is running."""
        return self._writer.flushing

    def cut(self) -> int:
        """Start the next segment and return its number. A `flush` closes the old one."""
        return self._writer.cut()

    def flush(self) -> None:
        """Bring to the disk what was written before."""
        self._note_synced(self._writer.flush())

    def sync(self) -> None:
        """Do the same, for callers that need old segments on the disk."""
        self.flush()

    def _note_synced(self, seq: int) -> None:
        if self._control is not None and self.fsync != "never":
            try:
                self._control.synced(seq)
            except OSError as problem:
                raise errors.LogUnavailable(
                    f"{self.folder}: {problem}: the last writes may not survive a power cut"
                ) from None

    def close(self) -> None:
        """Bring everything to the disk and close the files, also if that fails."""
        try:
            self._note_synced(self._writer.close())
        finally:
            if self._control is not None:
                self._control.close()
