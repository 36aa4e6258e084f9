"""What goes into the core (events) and what comes out of it (actions).

Each action that asks something of Redis has a number, `ref`; the event that answers it has the
same. An event `Failed` means that nobody knows whether it was done: the request may be done yet.
`Refused` means that it was not, and never will be.
Redis does each of them in one step (a script), and replicates it as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from bloomery.service.replication.core.entries import LogEntry, Mark, Placed, Position
from bloomery.service.replication.core.replica import Replica


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy in Redis: the name of its chunks, the last entry that it holds, and how many entries
    that are since the beginning."""

    id: bytes
    last: Placed
    count: int

    @property
    def mark(self) -> Mark:
        """The mark of its last entry."""
        return self.last.mark


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which snapshots are good: the newest first, two at most."""

    snapshots: tuple[Snapshot, ...]


# Actions for Redis.


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read the entry at `after` and what is behind it; None: from the start. `wait`: first wait for
    something to be behind its position, for a while. Answered by `Fetched`."""

    ref: int
    after: Mark | None
    wait: bool


@dataclass(frozen=True, slots=True)
class Append:
    """If the stream has the entry `after` (None: if there is no stream and no manifest), and no
    node has claimed to restore it: read what is behind it, and append. Then wait for replicas, if
    so set. Answered by `Appended`, or by `Fetched` if it was refused."""

    ref: int
    after: Mark | None
    entry: LogEntry


@dataclass(frozen=True, slots=True)
class PutBack:
    """If the stream ends with `end`, append entries at the positions they have. Answered by
    `Done`."""

    ref: int
    end: Mark
    entries: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Answered by `ManifestRead`."""

    ref: int


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Make a replica of a snapshot's chunks, their checksums verified. Answered by
    `SnapshotLoaded`, or by `SnapshotMissing` if chunks are missing or damaged."""

    ref: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Read the ledger of a snapshot, and no filters. Answered by `LedgerRead`, or by
    `SnapshotMissing` if chunks are missing or damaged."""

    ref: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Write the replica as it is now, and the ledger, to chunks of that id, which go by themselves
    unless a manifest names them soon. Answered by `Done`."""

    ref: int
    snapshot: Snapshot
    ledger: bytes


@dataclass(frozen=True, slots=True)
class SwapManifest:
    """If the manifest's newest snapshot is still `expected`, the stream has the new one's mark, and
    all its chunks are there: write the manifest, keep those chunks, drop the chunks it no longer
    names, and trim the stream before `trim`. Answered by `Done`."""

    ref: int
    expected: bytes | None
    manifest: Manifest
    trim: Position | None


@dataclass(frozen=True, slots=True)
class ClaimRestore:
    """If the stream ends with `end` (None: if there is none), or `force`: let no node begin a log,
    nor append to this one, for twice `seconds`, since `node` has what it lacks. Answered by `Done`:
    done if `willing` and no other node has claimed to restore it within `seconds`."""

    ref: int
    node: bytes
    end: Mark | None
    seconds: float
    willing: bool
    force: bool


@dataclass(frozen=True, slots=True)
class Restore:
    """If the stream ends with `end` (None: if there is none), and all chunks are there: write the
    manifest, and replace the stream by the snapshot's last entry, at its position. The claim ends.
    Answered by `Done`."""

    ref: int
    manifest: Manifest
    end: Mark | None


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Delete the chunks of a snapshot, unless the manifest names it. Answered by `Done`."""

    ref: int
    id: bytes


@dataclass(frozen=True, slots=True)
class CheckStore:
    """See whether Redis has all that a node needs to start. Answered by `StoreChecked`."""

    ref: int


@dataclass(frozen=True, slots=True)
class WantSnapshot:
    """Note that a node cannot start from the newest snapshot, of this id (none: b""). Answered by
    `Done`."""

    ref: int
    newest: bytes


# Actions for the server.


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell a client what its write did; it is in the log."""

    request: int
    result: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a strong read from the copy, now."""

    request: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell a client why not. A write may be done all the same, unless `untouched`. `unwilling`:
    Redis answers, and writes nothing."""

    request: int
    reason: str
    untouched: bool = False
    unwilling: bool = False


@dataclass(frozen=True, slots=True)
class SetReady:
    """Let the balancer send requests here, or none."""

    ready: bool


@dataclass(frozen=True, slots=True)
class Differ:
    """Report that the log in Redis lacks what this node has, and what is done about it; "": it does
    not any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """An entry could not be applied for lack of memory: the filters are void, and loaded again
    later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End this process: it cannot follow."""

    reason: str


Action: TypeAlias = (
    Fetch
    | Append
    | PutBack
    | ReadManifest
    | LoadSnapshot
    | ReadLedger
    | SaveSnapshot
    | SwapManifest
    | ClaimRestore
    | Restore
    | DropSnapshot
    | CheckStore
    | WantSnapshot
    | Reply
    | Answer
    | Refuse
    | SetReady
    | Differ
    | Stuck
    | Stop
)


# Events of Redis.


@dataclass(frozen=True, slots=True)
class Fetched:
    """Entries from the asked position on, as many as fit; `end`: the stream's last; None: there is
    no stream."""

    ref: int
    entries: tuple[Placed, ...]
    end: Mark | None


@dataclass(frozen=True, slots=True)
class Appended:
    """It is in the stream, at this position, and `replicated` as was asked. `entries`: from `after`
    on, those before it; if not `complete`, only the first of them."""

    ref: int
    position: Position
    entries: tuple[Placed, ...]
    complete: bool
    replicated: bool


@dataclass(frozen=True, slots=True)
class ManifestRead:
    """The manifest; None: there is none."""

    ref: int
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """A replica of a snapshot, and the ledger that was saved with it."""

    ref: int
    replica: Replica
    ledger: bytes


@dataclass(frozen=True, slots=True)
class LedgerRead:
    """The ledger that was saved with a snapshot."""

    ref: int
    ledger: bytes


@dataclass(frozen=True, slots=True)
class SnapshotMissing:
    """Chunks are missing, or damaged."""

    ref: int


@dataclass(frozen=True, slots=True)
class Done:
    """It was done, or refused as its condition did not hold."""

    ref: int
    done: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or an error: it may be done, now or later."""

    ref: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """As `Failed`; the log has an entry that is damaged. Nothing is appended until it is gone."""

    ref: int


@dataclass(frozen=True, slots=True)
class StoreChecked:
    """`problem`: why a node could not start from what Redis has; "" if it can. `policy`: how Redis
    evicts keys. `aside`: the position of the last foreign entry that was set aside; "" if there was
    none."""

    ref: int
    problem: str
    policy: str = "noeviction"
    aside: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """An append was not done, since Redis takes no writes: it is full, its disk fails, or replicas
    are missing."""

    ref: int
    reason: str


# Events of the server.


@dataclass(frozen=True, slots=True)
class Write:
    """Operations of a turn. `needs`: the version that a node must have to know them."""

    request: int
    payload: bytes
    needs: int = 1


@dataclass(frozen=True, slots=True)
class StrongRead:
    """A read that must see all that was acknowledged before it."""

    request: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Operations of a policy; they count if this node holds the lease when they are applied."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Recover:
    """An operator's decision, while the node waits for one (`waits_for_operator`): to `keep` its
    copy, which replaces the log in Redis, or to discard it and follow that log."""

    keep: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = (
    Fetched
    | Appended
    | ManifestRead
    | SnapshotLoaded
    | LedgerRead
    | SnapshotMissing
    | Done
    | Failed
    | Unreadable
    | StoreChecked
    | Refused
    | Write
    | StrongRead
    | Decide
    | Recover
    | Tick
)
