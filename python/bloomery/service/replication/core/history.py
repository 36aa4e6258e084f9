"""The last entries that this node applied: to see whether a stream continues them, and to put back
what a stream has lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed
from bloomery.service.replication.core.ledger import Ledger

_MOST_BYTES = 64 << 20


class History:
    """Where this node is in the log, and the entries before that, as many as are kept."""

    def __init__(
        self, last: Placed | None, most: int, wrote: Mapping[bytes, int] | None = None
    ) -> None:
        """`last`: the entry that a loaded snapshot ends with; None: nothing was applied yet. No
        more than `most` entries are kept, and no more than 64 MiB of payloads. `wrote`: the last
        WRITE of each node that the snapshot has."""
        self.at: Mark | None = None
        # The last WRITE of each node that is not kept: what a log lacks of those cannot be added.
        self._before = dict(wrote or {})
        self._most = most
        self._bytes = 0
        self._recent: deque[Placed] = deque()
        if last is not None:
            self.append(last)

    def append(self, placed: Placed) -> None:
        """Note an entry that is applied."""
        self.at = placed.mark
        self._recent.append(placed)
        self._bytes += len(placed.entry.payload)
        recent = self._recent
        while len(recent) > self._most or (self._bytes > _MOST_BYTES and len(recent) > 1):
            entry = recent.popleft().entry
            self._bytes -= len(entry.payload)
            if entry.kind is Kind.WRITE:
                self._before[entry.node] = max(entry.op, self._before.get(entry.node, 0))

    @property
    def last(self) -> Placed | None:
        """The last entry; None: nothing was applied yet."""
        return self._recent[-1] if self._recent else None

    def news(self, entries: Sequence[Placed]) -> Sequence[Placed] | None:
        """Return the entries behind this node's place; None if that is not among them: then they do
        not continue what was applied here."""
        for index, placed in enumerate(entries):
            if placed.mark == self.at:
                return entries[index + 1 :]
        return None

    def missing(self, end: Mark) -> tuple[Placed, ...] | None:
        """Return the entries that a stream lacks which ends with this mark; None if that is none of
        those that are kept: then the stream is no beginning of what was applied here."""
        entries: list[Placed] = []
        for placed in reversed(self._recent):
            if placed.mark == end:
                return tuple(reversed(entries))
            entries.append(placed)
        return None

    def lost(self, theirs: Ledger) -> tuple[list[LogEntry], bool]:
        """Return the writes that a log of this ledger lacks, as far as they are kept, and whether
        those are all that it lacks."""
        wrote = theirs.wrote
        entries = [
            entry
            for _, entry in self._recent
            if entry.kind is Kind.WRITE and entry.op > wrote.get(entry.node, 0)
        ]
        return entries, all(op <= wrote.get(node, 0) for node, op in self._before.items())
