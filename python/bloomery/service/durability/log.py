"""The write-ahead log of a server: every change of a filter is in it before it is acknowledged.

It is a folder of SQLite databases, the segments; the one with the highest number is written to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from bloomery import errors, sizing
from bloomery.service.domain.operations import Record
from bloomery.service.durability.control import ControlWriter
from bloomery.service.durability.segment import (
    LogSegment,
    remove_segment,
    row_sum,
    segment_path,
    template,
)

Row: TypeAlias = tuple[float, int, int, bytes]  # the time of its turn, and a record
Fsync: TypeAlias = Literal["always", "everysec", "never"]

_INSERT = "INSERT INTO log VALUES(?,?,?,?,?,?)"
SEGMENT_BYTES = 256 << 20
_LOOK_EVERY = 256  # appends between two looks at the size
# With "everysec" SQLite itself syncs nothing: `sync` does. With NORMAL it would sync the first page
# of each segment's write-ahead file, in the thread that serves: 64 ms, once, beside a busy disk.
_SYNCHRONOUS = {"always": "FULL", "everysec": "OFF", "never": "OFF"}
# With "everysec" a power cut takes no more than this: the disk is asked each second, and if it does
# not follow, replies wait (Redis holds writes back after the same time).
LATE_SECONDS = 2.0


class Log:
    """The log, open for writing, in a new segment.

    `append` is for the thread that serves, `flush` for another one, each second, `fold` for one
    more. With fsync="always" an append returns when the disk has it. With "everysec" a killed
    process loses nothing, and a power cut what came after the last `flush`: whoever serves holds
    replies back while that `is_late`. With "never" the kernel chooses. `control` notes how far it
    was written and synced, before anything is acknowledged.
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
        if fsync not in _SYNCHRONOUS:
            names = ", ".join(_SYNCHRONOUS)
            raise errors.InvalidParameter(f"fsync is {sizing.show(fsync)}, must be one of {names}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.fsync = fsync
        self.seq = seq  # of the last row
        self.segment = segment
        # Operations that are in memory and not yet in the log, each with its time.
        self.pending: list[Row] = []
        self._control = control
        self._segment_bytes = segment_bytes
        self._appends = 0
        # Why an old segment could not be closed, if one could not. It is kept as it is.
        self.unfolded: str | None = None
        # When the oldest write was made that may not be on the disk: that which is being brought
        # there, and that which the next `flush` will bring.
        self._flushing: float | None = None
        self._unflushed: float | None = None
        self._closing: list[LogSegment] = []
        self._changing = threading.Lock()  # of the two: which segment is written to, which closed
        self._one_flush = threading.Lock()
        self._one_fold = threading.Lock()
        try:
            self._empty = template(self.folder)
        except (sqlite3.Error, OSError) as problem:
            raise errors.LogUnavailable(f"{self.folder}: {problem}: no log can be made") from None
        self._current = self._new_segment(segment)

    @property
    def path(self) -> Path:
        """The segment that is written to."""
        return self._current.path

    def append(self, records: Iterable[Record], at: float | None = None) -> None:
        """Write the records of a turn, as `write` does."""
        now = time.time() if at is None else at
        self.write([(now, *record) for record in records])

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows, all or none. LogUnavailable: nothing may be acknowledged; they wait in
        `pending`, and are written before anything else is.
        """
        self.pending += rows
        self._write()
        self._appends += 1
        if self._appends % _LOOK_EVERY == 0:
            self._cut_if_large()

    def retry(self) -> bool:
        """Write what waits; True once nothing does. A segment that cannot be written any more is
        left for a new one; so is one that could not be synced: what the kernel failed to bring to
        the disk it does not try again, but folding the segment copies all of it."""
        try:
            if self._current.doubtful:
                self.cut()
            try:
                self._write()
            except errors.LogUnavailable:
                self.cut()
                self._write()
            if any(segment.doubtful for segment in list(self._closing)):
                self.flush()
        except errors.LogUnavailable:
            return False
        return True

    def _write(self) -> None:
        if not self.pending:
            return
        seq = self.seq
        rows = []
        for at, filter, op, data in self.pending:
            seq += 1
            rows.append((seq, at, filter, op, data, row_sum(seq, at, filter, op, data)))
        connection = self._current.connection
        try:
            if len(rows) == 1:
                connection.execute(_INSERT, rows[0])  # its own transaction: a third of the time
            else:
                connection.execute("BEGIN")
                connection.executemany(_INSERT, rows)
                connection.execute("COMMIT")
        except sqlite3.Error as problem:
            if connection.in_transaction:
                connection.rollback()
            raise errors.LogUnavailable(
                f"{self.path}: {problem}: {len(rows)} operations wait until it can be written"
            ) from None
        self.seq = seq
        if self._control is not None:
            self._control.wrote(seq)
        self.pending.clear()
        if self._unflushed is None:
            self._unflushed = time.monotonic()

    def unsynced(self, now: float) -> float:
        """For how many seconds, at a time that `time.monotonic` gave, the oldest write has not been
        on the disk; 0.0: all are."""
        since = self._flushing or self._unflushed
        return 0.0 if since is None or self.fsync == "always" else max(0.0, now - since)

    def is_late(self, now: float) -> bool:
        """Would a power cut lose more than it may? Called in every turn."""
        since = self._flushing or self._unflushed
        return since is not None and now - since > LATE_SECONDS and self.fsync == "everysec"

    @property
    def flushing(self) -> bool:
        """Is something being brought to the disk?"""
        return self._one_flush.locked()

    def _cut_if_large(self) -> None:
        if os.fstat(self._current.wal).st_size >= self._segment_bytes:
            with contextlib.suppress(errors.LogUnavailable):  # this one still serves
                self.cut()

    def cut(self) -> int:
        """Start the next segment; its number. The old one is closed by `fold`, after a `flush`."""
        segment = self._new_segment(self.segment + 1)
        with self._changing:
            self._closing.append(self._current)
            self._current = segment
            self.segment += 1
        return self.segment

    def sync(self) -> None:
        """Bring to the disk what was appended before, and close old segments; in any thread."""
        self.flush()
        self.fold()

    def flush(self) -> None:
        """Bring to the disk what was appended before; in any thread."""
        with self._one_flush:
            # In this order: a row that is committed before is in one of these segments, and one
            # that comes later finds that nothing waits, and says when it came.
            self._flushing = self._flushing or self._unflushed
            self._unflushed = None
            with self._changing:
                seq, current = self.seq, self._current
                old = [segment for segment in self._closing if not segment.flushed]
            try:
                for segment in old:
                    self._flush(segment)
                    segment.flushed = True
                self._flush(current)
                if self._control is not None and self.fsync != "never":
                    self._control.synced(seq)
            except (sqlite3.Error, OSError) as problem:
                raise errors.LogUnavailable(
                    f"{current.path}: {problem}: what was written last may not survive a power cut"
                ) from None
            self._flushing = None

    def _flush(self, segment: LogSegment) -> None:
        if self.fsync == "never":
            return
        if not segment.doubtful:
            segment.sync()
        elif segment is self._current:
            raise OSError(errno.EIO, "it could not be synced before")
        else:
            segment.fold(durable=True)
            segment.doubtful = False

    def fold(self) -> None:
        """Close old segments that are on the disk; one that cannot be is tried again."""
        with self._one_fold:
            unfolded = None
            for segment in [one for one in list(self._closing) if one.flushed]:
                try:
                    segment.fold(self.fsync != "never")
                except (sqlite3.Error, OSError) as problem:
                    unfolded = f"{segment.path}: {problem}: it is left as it is, with its -wal file"
                    continue
                with self._changing:
                    self._closing.remove(segment)
                segment.close()
            self.unfolded = unfolded

    def close(self) -> None:
        """Bring everything to the disk and let go of the files. LogUnavailable says what was not
        written, or could not be closed."""
        problems = []
        for step in (self._write, self.flush):
            try:
                step()
            except errors.LogUnavailable as problem:
                problems.append(str(problem))
        with self._changing:
            self._closing.append(self._current)
        self._current.flushed = True
        self.fold()
        for segment in self._closing:
            segment.close()
        if self._control is not None:
            self._control.close()
        if self.pending:
            problems[0] = (
                f"{self.path}: it cannot be written: {len(self.pending)} operations are lost, "
                "which nobody was told were done; what was acknowledged is in it"
            )
        elif self.unfolded:
            problems.append(f"{self.unfolded}; nothing is lost, the next start reads it")
        if problems:
            raise errors.LogUnavailable(problems[0])

    @property
    def unclosed(self) -> bool:
        """Are there old segments to be closed?"""
        return any(segment.flushed for segment in list(self._closing))

    def _new_segment(self, number: int) -> LogSegment:
        path = segment_path(self.folder, number)
        if path.exists():
            raise errors.LogUnavailable(f"{path}: there is such a segment already")
        try:
            return LogSegment(path, self._empty, _SYNCHRONOUS[self.fsync])
        except (sqlite3.Error, OSError) as problem:
            remove_segment(path)
            raise errors.LogUnavailable(f"{path}: {problem}: no segment can be made") from None
