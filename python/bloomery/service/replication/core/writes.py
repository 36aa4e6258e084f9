"""Writes of this node: those that wait for the log, and those that were acknowledged not long ago.

One is sent at a time, in order; what comes meanwhile is the next turn. Numbers of operations are
given when one is first sent. An acknowledged write is kept for a while: a node that has to load a
history without it repeats it (`History` says when that is).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bloomery.service.replication.core.entries import NO_LEASE, Kind, LogEntry, Position

_MOST_RETAINED = 256 << 20  # bytes; of 32 million keys


@dataclass(slots=True)
class PendingWrite:
    """An operation that is to be in the log."""

    kind: Kind
    payload: bytes = b""
    arrived: float = 0.0
    request: int | None = None  # of a client, who is told
    deadline: float = float("inf")  # when the client is told that nobody knows
    needs: int = 1
    fence: Position = NO_LEASE
    op: int = 0  # 0: it was not sent yet
    unanswered: int = 0  # attempts that may be in the log, or come there yet
    applied: set[int] = field(default_factory=set)  # attempts that are in the log, as read here
    # Attempts that Redis, and the replicas that it waits for, said they have; and when it was sent.
    confirmed: dict[int, float] = field(default_factory=dict)
    outcome: tuple[Any] | None = None  # what it did, when it was first applied here
    # Writes that would change nothing: it is where this one is in the log that decides it.
    riders: list[PendingWrite] = field(default_factory=list)


class Retained(NamedTuple):
    """A write that was acknowledged. `op` is 0 if it changed nothing and is not in the log."""

    op: int
    payload: bytes
    acknowledged: float


class WriteQueue:
    """Operations that wait for the log, in order."""

    def __init__(self, retain_seconds: float) -> None:
        self._retain_seconds = retain_seconds
        self._last_op = 0
        self.queue: deque[PendingWrite] = deque()
        self.unchanged: list[PendingWrite] = []  # would change nothing; they ride with the next
        self.retained: deque[Retained] = deque()
        self._retained_bytes = 0
        # Lost entries of other nodes, to append again, by node and operation.
        self.rescued: dict[tuple[bytes, int], LogEntry] = {}

    def number(self, write: PendingWrite) -> None:
        """Give it its number and its riders, unless it has one: it is sent for the first time."""
        if not write.op:
            self._last_op += 1
            write.op = self._last_op
            write.riders, self.unchanged = self.unchanged, []

    def find(self, op: int) -> PendingWrite | None:
        """Return the write of a number, if it still waits."""
        return next((write for write in self.queue if write.op == op), None)

    def retain(self, op: int, payload: bytes, now: float) -> None:
        """Keep what was acknowledged, and no longer what was so too long ago."""
        self.retained.append(Retained(op, payload, now))
        self._retained_bytes += len(payload)
        oldest = now - self._retain_seconds
        while self.retained[0].acknowledged < oldest or self._retained_bytes > _MOST_RETAINED:
            self._retained_bytes -= len(self.retained.popleft().payload)

    def expired(self, now: float) -> list[PendingWrite]:
        """Take out what has waited for too long."""
        late = [write for write in self.queue if write.deadline <= now]
        for write in late:
            self.queue.remove(write)
            self.unchanged += write.riders
        for writes in (self.unchanged, *(write.riders for write in self.queue)):
            late += [write for write in writes if write.deadline <= now]
            writes[:] = [write for write in writes if write.deadline > now]
        return late

    def renumber(self) -> None:
        """Begin with the first operation again: the node has another id from now on."""
        self._last_op = 0
        for write in self.queue:
            write.op, write.unanswered = 0, 0
        self.retained = deque(Retained(0, payload, at) for _, payload, at in self.retained)

    def forget_outcomes(self) -> None:
        """Another history is loaded: what came of writes so far was in the one that is gone."""
        for write in self.queue:
            write.applied.clear()
            write.confirmed.clear()
            write.outcome = None

    def repeat(self, numbered: Iterable[PendingWrite], others: Iterable[PendingWrite]) -> None:
        """Queue writes again which the log has lost: those with numbers first, since an operation
        counts only behind its node's earlier ones; others behind what was sent already."""
        sent = {write.op: write for write in (*numbered, *self.queue) if write.op}
        unsent = [write for write in self.queue if not write.op]
        self.queue = deque([*(sent[op] for op in sorted(sent)), *others, *unsent])
