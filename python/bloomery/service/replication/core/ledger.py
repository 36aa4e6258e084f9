"""What all nodes know beside the filters, by the log alone: members, the lease, and which entries
count.

It is applied in the log's order and saved with each snapshot, so it is equal on all nodes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum, auto

from bloomery import errors
from bloomery.service.replication.core.entries import (
    NO_LEASE,
    Kind,
    LogEntry,
    Position,
    read_genesis,
)

UNIT = 512  # bytes of a payload that count as one more entry
MAX_STEP_MS = 2000  # by which entries let time pass after a CLOCK, which comes each second
MOST_ABOUT = 4096  # bytes that a node tells of itself


class Verdict(Enum):
    """What is to be done with an entry."""

    APPLY = auto()
    REPEAT = auto()  # its operation was applied before, or its node has gone on without it
    FENCED = auto()  # its node did not hold the lease
    TOO_NEW = auto()  # some node would not know what to do


@dataclass(slots=True)
class Member:
    """A node, as its entries tell of it."""

    version: int
    op: int  # its last operation
    heard: int  # the log's time at its last entry, in ms
    since: int = 0  # and at its first
    about: bytes = b""  # what it last told of itself
    wrote: int = 0  # its last WRITE that was applied


@dataclass(slots=True)
class Ledger:
    """Members, lease and time of the shared log."""

    absent_ms: int = 60_000  # a member that was not heard of for so long has gone
    forget_ms: int = 86_400_000  # and after this its retries are no longer told from new operations
    count: int = 0  # entries so far; one of many bytes counts as several
    now_ms: int = 0  # the time of the last CLOCK
    clock_ms: int = 0  # Redis's time at that CLOCK
    latest_ms: int = 0  # the time of the last entry
    holder: bytes = b""
    fence: Position = NO_LEASE  # where the holder's claim is
    members: dict[bytes, Member] = field(default_factory=dict)
    log: bytes = b""  # the id of the log: the tag of its GENESIS
    cluster: str = ""  # the name that its first node gave it
    writes: int = 0  # WRITE entries that were applied

    def admit(self, position: Position, entry: LogEntry) -> Verdict:
        """Take an entry in; return whether it is to be applied."""
        self.count += 1 + len(entry.payload) // UNIT
        time = self._advance(position.ms)
        member = self.members.get(entry.node)
        if member is None:
            member = Member(entry.version, 0, time, time)
            self.members[entry.node] = member
        member.heard = time
        if entry.kind is Kind.HELLO:
            member.about = entry.payload[:MOST_ABOUT]
        if entry.kind is Kind.GENESIS:
            self.log = entry.tag
            self.cluster, about = read_genesis(entry.payload)
            member.about = about[:MOST_ABOUT]
        if entry.op <= member.op:
            return Verdict.REPEAT
        member.op = entry.op
        if entry.needs > 1 and entry.needs > self.oldest_version():
            return Verdict.TOO_NEW
        if entry.kind is Kind.CLAIM:
            return self._claim(position, entry)
        if entry.kind in (Kind.CLOCK, Kind.DECIDE) and entry.fence != self.fence:
            return Verdict.FENCED
        if entry.kind is Kind.CLOCK:
            self._pass_time(int.from_bytes(entry.payload[:8], "little"), position.ms)
        if entry.kind is Kind.WRITE:
            member.wrote = entry.op
            self.writes += 1
        return Verdict.APPLY

    def _advance(self, redis_ms: int) -> int:
        """Return the time of an entry: that of the last CLOCK, and what passed at Redis since. Its
        clock may jump, so that counts for a moment only."""
        if not self.clock_ms:
            self.now_ms = self.clock_ms = redis_ms
        passed = min(max(redis_ms - self.clock_ms, 0), MAX_STEP_MS)
        self.latest_ms = max(self.latest_ms, self.now_ms + passed)
        return self.latest_ms

    def _claim(self, position: Position, entry: LogEntry) -> Verdict:
        if entry.fence != self.fence:
            return Verdict.FENCED  # another node was first
        self.holder, self.fence = entry.node, position
        return Verdict.APPLY

    def _pass_time(self, now_ms: int, redis_ms: int) -> None:
        self.now_ms, self.clock_ms = max(self.now_ms, now_ms), redis_ms
        self.latest_ms = max(self.latest_ms, self.now_ms)
        oldest = self.now_ms - self.forget_ms
        self.members = {
            node: member for node, member in self.members.items() if member.heard >= oldest
        }

    def oldest_version(self) -> int:
        """The lowest version of the members that are there."""
        return min((member.version for member in self.present().values()), default=1)

    def present(self) -> dict[bytes, Member]:
        """The members that are there."""
        since = self.latest_ms - self.absent_ms
        return {node: member for node, member in self.members.items() if member.heard >= since}

    def last_op(self, node: bytes) -> int:
        """The number of a node's last operation in the log."""
        return self.members[node].op if node in self.members else 0

    @property
    def wrote(self) -> dict[bytes, int]:
        """The last WRITE of each member."""
        return {node: member.wrote for node, member in self.members.items() if member.wrote}

    def exceeds(self, other: Ledger) -> bool:
        """Return whether this copy of a log has writes that another copy of it lacks.

        A node's operations are in a log in order, so for each node the last number decides.
        """
        oldest = other.now_ms - other.forget_ms
        for node, member in self.members.items():
            known = other.members.get(node)
            if known is not None:
                if member.wrote > known.wrote:
                    return True
            elif member.wrote and member.heard >= oldest:  # else the other copy has expired it
                return True
        return False

    def to_bytes(self) -> bytes:
        """Return it as snapshots have it."""
        members = {
            node.hex(): (
                *(member.version, member.op, member.heard, member.since),
                *(member.about.hex(), member.wrote),
            )
            for node, member in sorted(self.members.items())
        }
        saved = {
            "absent_ms": self.absent_ms,
            "forget_ms": self.forget_ms,
            "count": self.count,
            "now_ms": self.now_ms,
            "clock_ms": self.clock_ms,
            "latest_ms": self.latest_ms,
            "holder": self.holder.hex(),
            "fence": list(self.fence),
            "members": members,
            "log": self.log.hex(),
            "cluster": self.cluster,
            "writes": self.writes,
        }
        return json.dumps(saved, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Ledger:
        """Return the ledger of such bytes; CorruptData if they are none."""
        try:
            saved = json.loads(data)
            members = {
                bytes.fromhex(node): _member(*values) for node, values in saved["members"].items()
            }
            ms, seq = map(int, saved["fence"])
            return cls(
                int(saved["absent_ms"]),
                int(saved["forget_ms"]),
                int(saved["count"]),
                int(saved["now_ms"]),
                int(saved["clock_ms"]),
                int(saved["latest_ms"]),
                bytes.fromhex(saved["holder"]),
                Position(ms, seq),
                members,
                bytes.fromhex(saved["log"]),
                str(saved["cluster"]),
                int(saved["writes"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise errors.CorruptData("a snapshot's ledger cannot be read") from None


def _member(version: int, op: int, heard: int, since: int, about: str, wrote: int) -> Member:
    return Member(int(version), int(op), int(heard), int(since), bytes.fromhex(about), int(wrote))
