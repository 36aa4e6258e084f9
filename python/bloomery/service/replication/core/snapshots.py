"""Snapshots that the lease holder makes: when one is due, and its steps.

    read the manifest ──> save chunks ──> swap the manifest, trim      (any failure: later again)

The lease only keeps two nodes from doing the same work. What keeps a holder that was stopped for an
hour from doing harm is the swap: it is refused unless the manifest is the one that was read, the
stream has the entry that the snapshot stands at, and the chunks are there.
"""

from __future__ import annotations

from collections.abc import Callable

from bloomery.service.replication.core.entries import Placed
from bloomery.service.replication.core.messages import (
    Action,
    Manifest,
    ReadManifest,
    SaveSnapshot,
    Snapshot,
    SwapManifest,
)


class SnapshotKeeper:
    """The snapshot that this node makes, if it does."""

    def __init__(self, node: bytes, every: int, retry_seconds: float) -> None:
        """`every`: so many entries are between two snapshots."""
        self._node, self.every, self._retry_seconds = node, every, retry_seconds
        self._urgent = False  # is one needed now, however few entries came since the last?
        self._newest = 0  # entries that the newest snapshot has, as far as is known
        self._not_before = 0.0
        self._manifest: Manifest | None = None
        self._snapshot: Snapshot | None = None
        self._ref: int | None = None  # of the step that is being done

    def is_due(self, count: int, now: float) -> bool:
        """Is one to be begun, after so many entries?"""
        due = self._urgent or count - self._newest >= self.every
        return due and self._ref is None and now >= self._not_before

    def hurry(self) -> None:
        """Make one now: no node can start from the newest."""
        self._urgent = True

    def begin(self, ref: int) -> Action:
        """Return the first step."""
        self._ref = ref
        return ReadManifest(ref)

    def owns(self, ref: int) -> bool:
        """Is this the answer to a step of this snapshot?"""
        return ref == self._ref

    def manifest_read(
        self,
        manifest: Manifest | None,
        last: Placed,
        count: int,
        ledger: Callable[[], bytes],
        ref: int,
        now: float,
    ) -> Action | None:
        """Return the next step: to save what this node has now; None if it is not due after all."""
        self._manifest = manifest
        self._newest = manifest.snapshots[0].count if manifest is not None else 0
        self._ref = None
        if not self.is_due(count, now):
            return None
        self._ref = ref
        self._snapshot = Snapshot(self._node + ref.to_bytes(8, "little"), last, count)
        return SaveSnapshot(ref, self._snapshot, ledger())

    def saved(self, ref: int) -> Action:
        """Return the next step: to let the manifest name it, and trim behind the older one."""
        assert self._snapshot is not None
        self._ref = ref
        kept = () if self._manifest is None else self._manifest.snapshots[:1]
        manifest = Manifest((self._snapshot, *kept))
        trim = kept[0].mark.position if kept else None
        return SwapManifest(ref, kept[0].id if kept else None, manifest, trim)

    def ended(self, swapped: bool, now: float) -> None:
        """Note that the last step was done, or that one was not."""
        self._ref = None
        if swapped and self._snapshot is not None:
            self._newest, self._urgent = self._snapshot.count, False
        else:
            self._not_before = now + self._retry_seconds
