"""A model of Redis: one stream, a manifest, and chunks of snapshots; each script is one step.

A journal has the effects of each step, as replicas get them. So a replica that takes over, or a
server that starts again from its disk, is a store made of the journal's beginning.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed, Position

Effect = tuple[str, Any]


class Claim(NamedTuple):
    """Who restores the log, and until when, in ms; and until when no node writes."""

    node: bytes
    until: int
    expires: int


FETCH_COUNT = 16  # entries in one answer: few, so that nodes are often cut short
FOREIGN = LogEntry(b"", 0, 0, Kind.BARRIER)  # what another program adds to the stream


class Store:
    """A Redis server."""

    def __init__(
        self, journal: Iterable[list[Effect]] = (), clock: Callable[[], int] = int
    ) -> None:
        """`clock`: its wall clock, in ms."""
        self.journal: list[list[Effect]] = []
        self.stream: list[Placed] = []
        self.manifest: m.Manifest | None = None
        self.chunks: dict[bytes, bytes] = {}
        self.claim: Claim | None = None
        self.wanted: bytes | None = None  # the snapshot that a node cannot start from
        self.clock = clock
        self.replicated = 0  # steps that the replicas have
        self.alive = True
        self.on_append: Callable[[Placed], None] = lambda placed: None
        for step in journal:
            self._do(step)
        self.replicated = len(self.journal)

    # Effects.

    def _do(self, step: list[Effect]) -> None:
        self.journal.append(step)
        for what, value in step:
            if what == "add":
                self.stream.append(value)
            elif what == "replace":
                self.stream = []
            elif what == "claim":
                self.claim = value
            elif what == "aside":
                self.stream = [placed for placed in self.stream if placed.entry is not FOREIGN]
            elif what == "wanted":
                self.wanted = value
            elif what == "trim":
                self.stream = self.stream[self._index(value) :]
            elif what == "manifest":
                self.manifest = value
            elif what == "chunk":
                self.chunks[value[0]] = value[1]
            else:
                self.chunks.pop(value, None)
        for what, value in step:
            if what == "add":
                self.on_append(value)

    def _index(self, position: Position) -> int:
        return bisect_left(self.stream, position, key=lambda placed: placed.position)

    def has(self, mark: Mark) -> bool:
        """Is this entry in the stream?"""
        index = self._index(mark.position)
        return index < len(self.stream) and self.stream[index].mark == mark

    def has_behind(self, mark: Mark | None) -> bool:
        """Is there something behind the position of this entry, whether that is there or not?"""
        return mark is None or (bool(self.stream) and self.stream[-1].position > mark.position)

    @property
    def end(self) -> Mark | None:
        """The last entry."""
        return self.stream[-1].mark if self.stream else None

    # What others do to it.

    def add_foreign(self, position: Position) -> None:
        """Let another program add an entry."""
        if not self.stream or position > self.stream[-1].position:
            self._do([("add", Placed(position, FOREIGN))])

    def lose(self, what: str, value: Any) -> None:
        """Lose chunks of a snapshot (`drop`), the manifest, a claim, or entries (`trim`)."""
        self._do([(what, value)])

    # Scripts.

    def set_aside(self) -> None:
        """Take foreign entries out of the stream."""
        if any(placed.entry is FOREIGN for placed in self.stream):
            self._do([("aside", None)])

    def check(self, ref: int) -> m.StoreChecked:
        """See whether a node could start from what is there."""
        self.set_aside()
        if self.manifest is None:
            trimmed = self.stream and self.stream[0].entry.kind is not Kind.GENESIS
            missing = trimmed or self.wanted == b""
        else:
            newest = self.manifest.snapshots[0]
            missing = not self.may_name(newest) or self.wanted == newest.id
        return m.StoreChecked(ref, "something is missing" if missing else "")

    def drop(self, action: m.DropSnapshot) -> m.Done:
        """Delete the chunks of a snapshot, unless it is named."""
        named = self.manifest.snapshots if self.manifest else ()
        if action.id not in {one.id for one in named}:
            self._do([("drop", action.id)])
        return m.Done(action.ref, True)

    def want(self, action: m.WantSnapshot) -> m.Done:
        """Note that a node needs a snapshot."""
        self._do([("wanted", action.newest)])
        return m.Done(action.ref, True)

    def fetch(self, ref: int, after: Mark | None) -> m.Fetched:
        """Read from a position on."""
        self.set_aside()
        start = 0 if after is None else self._index(after.position)
        return m.Fetched(ref, tuple(self.stream[start : start + FETCH_COUNT]), self.end)

    def append(self, action: m.Append) -> m.Appended | m.Fetched:
        """Append behind what the node has."""
        self.set_aside()
        after = action.after
        if after is None:
            if self.stream or self.manifest is not None:
                return self.fetch(action.ref, after)
            behind: list[Placed] = []
        elif not self.has(after):
            return self.fetch(action.ref, after)
        else:
            behind = self.stream[self._index(after.position) :]
        if self.claim is not None and self.clock() < self.claim.expires:
            return self.fetch(action.ref, after)
        last = self.stream[-1].position if self.stream else Position(0, 0)
        position = Position(self.clock(), 0)
        if position <= last:
            position = Position(last.ms, last.seq + 1)
        entry = LogEntry.from_bytes(action.entry.to_bytes())
        self._do([("add", Placed(position, entry))])
        complete = len(behind) <= FETCH_COUNT
        return m.Appended(action.ref, position, tuple(behind[:FETCH_COUNT]), complete, True)

    def put_back(self, action: m.PutBack) -> m.Done:
        """Append entries where they were."""
        self.set_aside()
        if self.end != action.end:
            return m.Done(action.ref, False)
        self._do([("add", placed) for placed in action.entries])
        return m.Done(action.ref, True)

    def save(self, id: bytes, data: bytes) -> None:
        """Write the chunks of a snapshot."""
        self._do([("chunk", (id, zlib.crc32(data).to_bytes(4, "little") + data))])

    def load(self, id: bytes) -> bytes | None:
        """Read the chunks of a snapshot; None if they are missing or damaged."""
        data = self.chunks.get(id)
        if data is None or zlib.crc32(data[4:]).to_bytes(4, "little") != data[:4]:
            return None
        return data[4:]

    def swap(self, action: m.SwapManifest) -> m.Done:
        """Let the manifest name another snapshot."""
        newest = self.manifest.snapshots[0].id if self.manifest else None
        snapshot = action.manifest.snapshots[0]
        right = newest == action.expected and self.may_name(snapshot)
        if right:
            named = {one.id for one in action.manifest.snapshots}
            old = self.manifest.snapshots if self.manifest else ()
            step: list[Effect] = [("manifest", action.manifest)]
            step += [("drop", one.id) for one in old if one.id not in named]
            if action.trim is not None:
                step.append(("trim", action.trim))
            self._do(step)
        return m.Done(action.ref, right)

    def may_name(self, snapshot: m.Snapshot) -> bool:
        """Is it of this stream's history, and are its chunks there?"""
        return self.has(snapshot.mark) and snapshot.id in self.chunks

    def claim_restore(self, action: m.ClaimRestore) -> m.Done:
        """Let nobody else begin a log, or append."""
        self.set_aside()
        if not action.force and self.end != action.end:
            return m.Done(action.ref, False)
        now, ms = self.clock(), int(action.seconds * 1000)
        held = self.claim
        if held is not None and now >= held.expires:
            held = None
        free = held is None or held.node in (b"", action.node) or not 0 < held.until - now <= ms
        done = action.willing and free
        if done:
            claim = Claim(action.node, now + ms, now + 2 * ms)
        elif held is not None:
            claim = held._replace(expires=now + 2 * ms)
        else:
            claim = Claim(b"", 0, now + 2 * ms)
        self._do([("claim", claim)])
        return m.Done(action.ref, done)

    def restore(self, action: m.Restore) -> m.Done:
        """Begin the stream anew, from a snapshot."""
        self.set_aside()
        snapshot = action.manifest.snapshots[0]
        right = self.end == action.end and snapshot.id in self.chunks
        if right:
            named = {one.id for one in action.manifest.snapshots}
            old = self.manifest.snapshots if self.manifest else ()
            step: list[Effect] = [("manifest", action.manifest)]
            step += [("drop", one.id) for one in old if one.id not in named]
            self._do([*step, ("claim", None), ("replace", None), ("add", snapshot.last)])
        return m.Done(action.ref, right)
