"""A node's log is Redis: nobody is told of an add before Redis has it, or the disk while Redis is
away (`store-on-outage queue`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.replication.sender import Sender
from bloomery.service.replication.shared import Filters

if TYPE_CHECKING:
    from bloomery.service.durability.log import Fsync, Row
    from bloomery.service.replication.outbox import Outbox

_DAY = 86_400.0
_QUEUED = b"queued\0\0"  # writes what waited on a disk: every node takes it in


class StoreLog:
    """What `durability.log.Log` is to a server with a disk: the same calls."""

    # A thread writes: the loop must not wait for a round trip.
    fsync: Fsync = "always"
    seq = 0  # no snapshot is ever due
    segment = 0
    path = Path("redis")

    def __init__(
        self,
        sender: Sender,
        filters: Filters,
        *,
        outbox: Outbox | None,
        is_down: Callable[[], bool],
    ) -> None:
        """`is_down`: is it known that Redis does not answer?"""
        self.sender, self.filters, self.outbox, self.is_down = sender, filters, outbox, is_down
        self.pending: list[tuple[int, bytes]] = []  # filters (uid) and hashes
        self._dropped = False  # was something added to a filter that others have dropped?
        self._kept: tuple[int, set[int]] = (0, set())  # keys on the disk, for unknown filters

    def write(self, rows: Iterable[Row]) -> None:
        """Write what a turn added; LogUnavailable: it waits, and nobody may be told yet.
        StoreUnavailable: some was for a filter that others have dropped, the rest is written."""
        self._dropped = False
        self.pending += self._adds(rows)
        self._write()
        if self._dropped:
            raise errors.StoreUnavailable("a filter was dropped by another node: try again")

    def retry(self) -> bool:
        """Write what waits; True once nothing does."""
        try:
            self._write()
            if self.outbox is not None:
                self.drain()
        except errors.LogUnavailable:
            return False
        return True

    def _adds(self, rows: Iterable[Row]) -> list[tuple[int, bytes]]:
        # What makes, changes or drops a filter was done before it was done here (control.py).
        found = []
        for _, id, op, data in rows:
            shared = self.filters.by_id.get(id)
            if op == Op.ADD and shared is not None:
                found.append((shared.listed.uid, data))
            elif op == Op.ADD and id in self.filters.dropped:
                self._dropped = True
        return found

    def _write(self) -> None:
        if not self.pending:
            return
        try:
            if self.outbox is not None and self.is_down():
                raise errors.StoreUnavailable("Redis does not answer")  # or each would wait for it
            gone = self.sender.send(self.pending)[1]
        except (errors.StoreUnavailable, errors.StoreRefused, errors.UnknownFilter) as problem:
            if self.outbox is not None and isinstance(problem, errors.StoreUnavailable):
                self.outbox.put(self.pending)
                self.pending = []
                return
            raise errors.LogUnavailable(f"{problem}; what was added waits") from None
        self.pending = []
        if gone:  # nothing waits, so others may go on writing
            raise errors.StoreUnavailable(gone)

    def drain(self) -> None:
        """Write what waited in the outbox while Redis was away. What is for a filter that nobody
        knows stays for a day: a Redis that came back without it is given it by other nodes."""
        assert self.outbox is not None
        if not self.may_drain:
            return
        unknown: set[int] = set()
        for some in self.outbox.waiting():
            try:
                # As of another: this node may have been started since, and its copy lacks them too.
                if gone := self.sender.send(some, _QUEUED)[1]:
                    raise errors.UnknownFilter(gone)  # or lost, and restored soon
            except (errors.StoreUnavailable, errors.StoreRefused, errors.UnknownFilter) as problem:
                raise errors.LogUnavailable(f"{problem}; what was queued waits") from None
            for uid, _ in some:
                if uid not in self.filters.by_uid and uid not in self.filters.past:
                    unknown.add(uid)
        if unknown and time.time() - self.outbox.since < _DAY:
            self._kept = (self.outbox.keys, unknown)
        else:
            self.outbox.done()

    @property
    def may_drain(self) -> bool:
        """Is there something on the disk that can be sent, as far as is known?"""
        if self.outbox is None or not self.outbox.keys:
            return False
        keys, unknown = self._kept
        return self.outbox.keys != keys or not unknown.isdisjoint(self.filters.by_uid)

    def add(self, uid: int, hashes: bytes) -> bytes:
        """Add to one filter; 1 for each key that Redis did not have."""
        try:
            answers, gone = self.sender.send([(uid, hashes)])
        except errors.UnknownFilter as problem:
            raise errors.StoreUnavailable(f"{problem}; it is being restored") from None
        if gone or 8 * len(answers) != len(hashes):
            raise errors.StoreUnavailable(gone or "the filter was dropped meanwhile")
        return answers

    # What a log on a disk has to do beside.

    flushing = unclosed = False
    unfolded: str | None = None

    def sync(self) -> None:
        """Nothing: Redis has it."""

    flush = fold = sync

    def unsynced(self, now: float) -> float:
        """Nothing waits for a disk."""
        return 0.0

    def is_late(self, now: float) -> bool:
        """Nothing waits for a disk."""
        return False

    def cut(self) -> int:
        """Nothing: there are no segments."""
        return self.segment

    def close(self) -> None:
        """Write what waits, if that can be."""
        if self.pending:
            self._write()
