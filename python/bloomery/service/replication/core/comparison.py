"""Compares this node's copy with a log in Redis that does not have the copy's last entry.

    read the manifest ──> read a snapshot's ledger ──> read the stream behind it ──> Finding

No filter is loaded: the ledgers say which writes each side has. This node keeps its copy until it
is known that the log has all of it, or that the rest can be appended to the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, Mark
from bloomery.service.replication.core.history import History
from bloomery.service.replication.core.ledger import Ledger


class Course(Enum):
    """What a node does about a log that does not have its last entry."""

    FOLLOW = auto()  # load it, and append to it the entries that it lacks
    RESTORE = auto()  # replace it by the copy, which has all that the log has, and more
    ASK = auto()  # each has writes that the other lacks: an operator decides
    STOP = auto()  # it is another cluster's: neither is right


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a comparison."""

    course: Course
    end: Mark  # of the stream that was compared
    log: bytes = b""  # its id; b"": no node can load it
    reason: str = ""


class LogComparison:
    """A comparison under way."""

    def __init__(self, ours: Ledger, history: History, cluster: str) -> None:
        """`cluster`: the name that the settings give."""
        self._ours, self._history, self._cluster = ours, history, cluster
        self.newest = b""  # the id of the newest snapshot, if there is one
        self._candidates: list[m.Snapshot] = []
        self._unmatched: Mark | None = None  # a snapshot's last entry that the stream did not have
        self._theirs: Ledger | None = None
        self._at: Mark | None = None

    def start(self, ref: int) -> m.Action:
        """Return the first step: from where the last one ended, if the log has changed since."""
        return m.ReadManifest(ref) if self._at is None else m.Fetch(ref, self._at, wait=False)

    def manifest_read(self, manifest: m.Manifest | None, ref: int) -> m.Action:
        """Return the next step."""
        if manifest is None:
            self.newest = b""
            return m.Fetch(ref, None, wait=False)
        self.newest = manifest.snapshots[0].id
        self._candidates = list(manifest.snapshots)
        return self._next_ledger(ref)

    def ledger_missing(self, ref: int) -> m.Action:
        """Return the next step: the older snapshot, or the stream from its start."""
        return self._next_ledger(ref)

    def _next_ledger(self, ref: int) -> m.Action:
        if not self._candidates:
            return m.Fetch(ref, None, wait=False)
        return m.ReadLedger(ref, self._candidates.pop(0))

    def ledger_read(self, snapshot: m.Snapshot, ledger: bytes, ref: int) -> m.Action:
        """Return the next step: the entries since that snapshot."""
        self._theirs = Ledger.from_bytes(ledger)
        self._at = snapshot.mark
        return m.Fetch(ref, self._at, wait=False)

    def fetched(self, event: m.Fetched, ref: int) -> m.Action | Finding | None:
        """Return the next step, or the result; None: the log has changed, so compare again."""
        if event.end is None:
            return None
        entries = event.entries
        if self._at is None:
            if not entries or entries[0].entry.kind is not Kind.GENESIS:
                return _unloadable(event.end)
            self._theirs = Ledger()
        elif not entries or entries[0].mark != self._at:
            if self._at == self._unmatched:
                return _unloadable(event.end)
            self._unmatched, self._at = self._at, None
            return m.ReadManifest(ref)  # another snapshot may be the newest now
        else:
            entries = entries[1:]
        assert self._theirs is not None
        for placed in entries:
            self._theirs.admit(*placed)
            self._at = placed.mark
        if self._at != event.end:
            return m.Fetch(ref, self._at, wait=False) if entries else None
        return self._find(self._theirs, event.end)

    def _find(self, theirs: Ledger, end: Mark) -> Finding:
        ours = self._ours
        foreign = describe_foreign(theirs, self._cluster)
        if foreign:
            return Finding(Course.STOP, end, theirs.log, reason=foreign)
        if theirs.log != ours.log:
            if not ours.writes:
                return Finding(Course.FOLLOW, end, theirs.log)
            if not theirs.writes:
                return Finding(Course.RESTORE, end, theirs.log)
            reason = (
                f"the log in Redis is another one: its id is {theirs.log.hex()}, and this node's "
                f"is {ours.log.hex()}"
            )
            return Finding(Course.ASK, end, theirs.log, reason=reason)
        if not ours.exceeds(theirs) or self._history.lost(theirs)[1]:
            return Finding(Course.FOLLOW, end, theirs.log)
        if not theirs.exceeds(ours):
            return Finding(Course.RESTORE, end, theirs.log)
        reason = "the log in Redis lacks writes that this node has, and has writes that it lacks"
        return Finding(Course.ASK, end, theirs.log, reason=reason)


def _unloadable(end: Mark) -> Finding:
    reason = "the log in Redis has no complete snapshot: no node can load it"
    return Finding(Course.ASK, end, reason=reason)


def describe_foreign(ledger: Ledger, cluster: str) -> str:
    """Return why a log is not that of this cluster; "" if it is."""
    if ledger.cluster == cluster:
        return ""
    return (
        f"the log in Redis is of cluster {ledger.cluster!r}, and this node's setting store-cluster "
        f"is {cluster!r}; correct store, store-prefix or store-cluster, and restart it"
    )
