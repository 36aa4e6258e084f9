"""What was acknowledged while Redis was away, on this node's disk until Redis has it: with
`store-on-outage queue`. The other nodes do not know of it before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bloomery.service.domain.operations import Op
from bloomery.service.durability.log import Log
from bloomery.service.durability.log_reader import LogReader
from bloomery.service.durability.segment import remove_segment, segment_path, segments


class Outbox:
    """A log in the data folder, in which a filter is named by its uid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.problems: list[str] = []
        self._log: Log | None = None
        self._segment = max(segments(folder), default=0)
        self._seq = 0  # of the last row
        self.since = 0.0  # when the oldest came, as Unix time
        self.keys = sum(len(hashes) // 8 for some in self.waiting() for _, hashes in some)

    def put(self, adds: list[tuple[int, bytes]]) -> None:
        """Keep what was added; on the disk when this returns."""
        if self._log is None:
            self._segment += 1
            self._log = Log(self.folder, segment=self._segment, seq=self._seq, fsync="always")
        self._log.append([(uid, Op.ADD, hashes) for uid, hashes in adds], time.time())
        self.keys += sum(len(hashes) // 8 for _, hashes in adds)

    def waiting(self) -> Iterator[list[tuple[int, bytes]]]:
        """Return what waits, oldest first, some at a time. Nothing new goes to what is read."""
        self._close()
        found = segments(self.folder)
        if not found:
            return
        rows = LogReader(self.folder, found[0], 0)
        some: list[tuple[int, bytes]] = []
        self.since = time.time()
        for _, at, uid, _, hashes in rows:
            self.since = min(self.since, at)
            some.append((uid, hashes))
            if len(some) >= 1000:
                yield some
                some = []
        self.problems += rows.problems
        self._seq = rows.last
        if some:
            yield some

    def done(self) -> None:
        """Redis has all of it."""
        for number in segments(self.folder):
            remove_segment(segment_path(self.folder, number))
        self.keys = self._seq = 0

    def close(self) -> None:
        """Let go of the files; what waits stays there."""
        self._close()

    def _close(self) -> None:
        if self._log is not None:
            log, self._log = self._log, None
            self._seq = log.seq
            log.close()
