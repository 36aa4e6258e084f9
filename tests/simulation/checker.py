"""What must hold in every history, as a client and an operator see it.

Filters whose names begin with `b` are cleared and expire; of the others a key that was added stays.
A key counts as *lost* from when Redis loses its entry until the stream has it again: what may
happen then is in the table of docs/decisions/0041-shared-log.md, and so it is excused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from bloomery.service.replication.core.entries import Kind, Placed, Position
from simulation.model import ModelReplica, parsed
from simulation.numbered import operation
from simulation.numbered_checker import NumberedChecker
from simulation.store import Store

Key = tuple[str, int]


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class WriteRecord:
    """A write of a client, and what it was told."""

    node: bytes  # the process that took it
    payload: bytes
    start: float
    end: float = math.inf  # when it was told
    result: tuple[bool, ...] | None = None  # None: an error, or nothing
    untouched: bool = False


class Checker:
    """Notes what clients were told, and what Redis lost."""

    def __init__(self, confirm: bool) -> None:
        self.confirm = confirm
        self.writes: list[WriteRecord] = []
        self.acknowledged: dict[Key, list[WriteRecord]] = defaultdict(list)
        self.takers: dict[str, list[WriteRecord]] = defaultdict(list)  # that take keys out
        self.lost_until: dict[Key, float] = {}  # infinite while it is lost
        # Of filters that are cleared a store may have one add of a key and have lost a later one.
        self.lost_adds: dict[Key, set[tuple[bytes, int]]] = defaultdict(set)
        self.crashed: set[bytes] = set()
        self.given_up: set[Key] = set()  # by an operator
        self.numbered = NumberedChecker(Violation)

    # What clients do.

    def wrote(self, record: WriteRecord) -> None:
        """A client sends a write."""
        self.writes.append(record)
        one = operation(record.payload)
        if one is not None:
            self.numbered.wrote(record, one)
        for op, name, _ in parsed(record.payload):
            if op in "CE":
                self.takers[name].append(record)

    def told(
        self,
        record: WriteRecord,
        now: float,
        result: tuple[bool, ...] | None,
        strayed: bool = False,
    ) -> None:
        """A client is told what its write did; None: that nobody knows. `strayed`: by a node that
        talked to a replaced server meanwhile."""
        if record.end != math.inf:
            raise Violation("a write was answered twice")
        record.end, record.result = now, result
        one = operation(record.payload)
        if one is not None and result is not None:
            self.numbered.told(record, one, strayed)
        if result is not None:
            for op, name, keys in parsed(record.payload):
                if op == "A":
                    for key in keys:
                        self.acknowledged[name, key].append(record)
                        # It may have changed nothing there, and so be in no entry, while the
                        # primary has a clear: lost until its node has come back and repeats it.
                        if strayed and name.startswith("b") and not self.confirm:
                            self.lost_until[name, key] = math.inf

    def denied(self, key: Key, asked: float, horizon: float, now: float, how: str) -> None:
        """A client was told, now, that a key is not there; it had to be if it was acknowledged
        before the horizon."""
        if self.lost_until.get(key, -1.0) >= min(asked, horizon):
            return
        for record in self.acknowledged.get(key, ()):
            if record.end < horizon and not self._taken(key[0], record, now):
                raise Violation(
                    f"{how}: {key} was denied at {now:.3f} (asked {asked:.3f}, must know what was "
                    f"acknowledged before {horizon:.3f}), and acknowledged at {record.end:.3f}"
                )

    def _taken(self, name: str, record: WriteRecord, now: float) -> bool:
        """Can a clear or an end of the filter have come after this write?"""
        for one in self.takers.get(name, ()):
            expires = " E " in f" {one.payload.decode()}"
            if one.start < now and (one.end > record.start or expires):
                return True
        return False

    # What Redis does.

    def appended(self, placed: Placed, primary: bool, now: float) -> None:
        """An entry is in a stream: that of the primary, or of one that is none any more."""
        operation = (placed.entry.node, placed.entry.op)
        for key in keys_of(placed):
            lost = self.lost_adds[key]
            if not primary:
                self.lost_until[key] = math.inf
                lost.add(operation)
                continue
            lost.discard(operation)
            back = not lost or not key[0].startswith("b")
            if back and self.lost_until.get(key) == math.inf:
                self.lost_until[key] = now

    def replaced(self, old: Store, new: Store, failover: bool) -> None:
        """Another store is the primary."""
        lost = held(old) - held(new)
        if failover and self.confirm:
            known = self.acknowledged.keys() - self.lost_until.keys()
            gone = [key for key in lost & known if not key[0].startswith("b")]
            if gone:
                raise Violation(f"acknowledged, and the replica did not have it: {gone}")
        kept = {(placed.entry.node, placed.entry.op) for placed in new.stream}
        for placed in old.stream:
            operation = (placed.entry.node, placed.entry.op)
            if operation not in kept:
                for key in keys_of(placed):
                    self.lost_adds[key].add(operation)
                    if key[0].startswith("b"):
                        lost.add(key)
        for key in lost:
            self.lost_until[key] = math.inf

    def restored(self, store: Store, now: float) -> None:
        """A snapshot was brought to the primary."""
        for key in held(store):
            if self.lost_until.get(key) == math.inf and not key[0].startswith("b"):
                self.lost_until[key] = now

    def restored_over(self, before: set[Key], after: set[Key], decided: bool) -> None:
        """A copy replaced what the primary had, as an operator `decided`, or not."""
        gone = {key for key in before - after if not key[0].startswith("b")}
        if decided:
            self.give_up(gone)
        elif gone & self.acknowledged.keys():
            raise Violation(f"a restore dropped what was acknowledged: {gone}")

    def give_up(self, keys: set[Key]) -> None:
        """An operator decides against these keys."""
        self.given_up |= keys
        self.lost_until.update(dict.fromkeys(keys, math.inf))

    # In the end.

    def check_new(self) -> None:
        """Of those who were acknowledged, one was told that a key is new."""
        unknown: set[Key] = set()
        new: dict[Key, int] = defaultdict(int)
        for record in self.writes:
            results = iter(record.result or ())
            for op, name, keys in parsed(record.payload):
                for number in keys if op == "A" else ():
                    if record.result is not None:
                        new[name, number] += next(results)
                    elif not record.untouched:
                        unknown.add((name, number))
        for key, count in new.items():
            if key[0].startswith("b") or key in self.lost_until:
                continue
            if count > 1 or (count == 0 and key not in unknown):
                raise Violation(f"{key} was new to {count} of those who were acknowledged")

    def check_kept(self, replica: ModelReplica) -> None:
        """What was acknowledged is there, unless Redis and all who acknowledged it lost it."""
        for (name, number), records in self.acknowledged.items():
            if name.startswith("b") or number in replica.filters.get(name, ()):
                continue
            if (name, number) in self.given_up:
                continue
            lost = self.lost_until.get((name, number)) == math.inf
            if not lost or not all(record.node in self.crashed for record in records):
                raise Violation(f"{(name, number)} was acknowledged and is gone")

    def check_decisions(self, store: Store, replica: ModelReplica) -> None:
        """Those decisions count, and only those, that were in the log while their node had the
        lease; as far as the log goes back to its beginning."""
        effects = [effect for step in store.journal for effect in step]
        entries = [value for what, value in effects if what == "add"]
        replaced = any(what == "replace" for what, _ in effects)
        if replaced or entries[0].entry.kind is not Kind.GENESIS:
            return
        fence, counted = Position(0, 0), []
        last: dict[bytes, int] = defaultdict(int)  # the last operation of each node
        for position, entry in entries:
            first = entry.op > last[entry.node]
            last[entry.node] = max(last[entry.node], entry.op)
            if first and entry.kind is Kind.CLAIM and entry.fence == fence:
                fence = position
            elif first and entry.kind is Kind.DECIDE and entry.fence == fence:
                counted.append(entry.node.hex())
        if counted != replica.decisions:
            raise Violation("a decision was taken by a node that did not hold the lease")


def keys_of(placed: Placed) -> list[Key]:
    """Return the keys that an entry adds."""
    if placed.entry.kind is not Kind.WRITE:
        return []
    operations = parsed(placed.entry.payload)
    return [(name, key) for op, name, keys in operations if op == "A" for key in keys]


def held(store: Store) -> set[Key]:
    """Return the keys that a store has, in its stream or in a snapshot that the manifest names."""
    keys = {key for placed in store.stream for key in keys_of(placed)}
    for snapshot in store.manifest.snapshots if store.manifest else ():
        data = store.load(snapshot.id)
        if data is not None:
            replica = ModelReplica.load(data.partition(b"\n")[2])
            keys |= {(name, key) for name, some in replica.filters.items() for key in some}
    return keys
