"""Entries of the shared log, their positions, and how they are written as bytes.

checksum (4) | node (8) | attempt (8) | operation (8) | fence (8, 8) | kind (1) | version (2)
| needs (2) | payload: the operations of a turn, as the log on a disk has them
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from bloomery import errors

_HEAD = struct.Struct("<8sQQQQBHH")
_CHECKSUM = struct.Struct("<I")


class Kind(IntEnum):
    """What an entry is, by the numbers that streams hold: never change one."""

    GENESIS = 1  # the first entry of all; its node joins
    HELLO = 2  # a node joins, or says that it is still there
    WRITE = 3  # operations of clients
    BARRIER = 4  # nothing: whoever appended it knows what came before
    CLAIM = 5  # of the lease, in place of that whose fence it names
    CLOCK = 6  # of the lease holder: time has come to that of the payload (ms, 8 bytes)
    DECIDE = 7  # of the lease holder: operations that no client asked for


class Position(NamedTuple):
    """Where an entry is: the number that Redis gave it, which begins with Redis's time."""

    ms: int
    seq: int


class Mark(NamedTuple):
    """An entry at a position. Streams that share a mark are equal up to it: an attempt is sent
    once, so it was appended once, behind what the stream had by then."""

    position: Position
    node: bytes
    attempt: int


NO_LEASE = Position(0, 0)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a node appends in one turn."""

    node: bytes  # 8 bytes, new for each process
    attempt: int  # one more for each send, also of the same operation
    op: int  # one more for each operation of this node: a retry has the same
    kind: Kind
    payload: bytes = b""
    fence: Position = NO_LEASE  # CLAIM: of the lease before; CLOCK, DECIDE: of the holder's
    version: int = 1  # which operations its node knows
    needs: int = 1  # which version a node must have to apply it

    def at(self, position: Position) -> Mark:
        """Return the mark of this entry at a position."""
        return Mark(position, self.node, self.attempt)

    @property
    def tag(self) -> bytes:
        """The 16 bytes that distinguish this send from all others."""
        return self.node + self.attempt.to_bytes(8, "little")

    def to_bytes(self) -> bytes:
        """Return the entry as the stream holds it."""
        head = _HEAD.pack(
            self.node,
            self.attempt,
            self.op,
            *self.fence,
            self.kind,
            self.version,
            self.needs,
        )
        body = head + self.payload
        return _CHECKSUM.pack(zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> LogEntry:
        """Return the entry of such bytes; CorruptData if they are none."""
        if len(data) < _CHECKSUM.size + _HEAD.size:
            raise errors.CorruptData(f"an entry of {len(data)} bytes is cut off")
        (checksum,) = _CHECKSUM.unpack_from(data)
        if zlib.crc32(memoryview(data)[_CHECKSUM.size :]) != checksum:
            raise errors.CorruptData("an entry's checksum is wrong")
        node, attempt, op, ms, seq, kind, version, needs = _HEAD.unpack_from(data, _CHECKSUM.size)
        try:
            known = Kind(kind)
        except ValueError:
            raise errors.UnsupportedVersion(
                f"an entry of kind {kind} is not known: a newer bloomery wrote it: upgrade"
            ) from None
        payload = data[_CHECKSUM.size + _HEAD.size :]
        return cls(node, attempt, op, known, payload, Position(ms, seq), version, needs)


def genesis(cluster: str, about: bytes) -> bytes:
    """Return the payload of a GENESIS: the name of the cluster, then what the node reports."""
    name = cluster.encode()
    return bytes([len(name)]) + name + about


def read_genesis(payload: bytes) -> tuple[str, bytes]:
    """Return the name of the cluster and what the node reports; CorruptData if it is not one."""
    end = 1 + payload[0] if payload else 0
    try:
        if not 0 < end <= len(payload):
            raise ValueError
        return payload[1:end].decode(), payload[end:]
    except ValueError:
        raise errors.CorruptData("the first entry of the log names no cluster") from None


class Placed(NamedTuple):
    """An entry with its position."""

    position: Position
    entry: LogEntry

    @property
    def mark(self) -> Mark:
        """The mark of the entry where it is."""
        return self.entry.at(self.position)
