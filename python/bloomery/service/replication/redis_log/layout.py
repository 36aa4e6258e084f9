"""How keys, marks, manifests and snapshots are written in Redis. What is read from there is checked
strictly: anybody may have written it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from bloomery import errors
from bloomery.service.replication.core.entries import LogEntry, Mark, Placed, Position
from bloomery.service.replication.core.messages import Manifest, Snapshot

MOST_ENTRY = 32 << 20  # bytes of one entry
MOST_MANIFEST = 2 * MOST_ENTRY + 4096
# Bytes of a snapshot in one key: with its head it fits into 4 MiB, which the next size of Redis's
# allocator is a quarter more than.
CHUNK = (4 << 20) - 1024
MOST_CHUNKS = 1 << 20

# Scripts read the bytes 8 to 72 of a manifest (its first id begins at 9) and 8 to 12 of a
# description: change them together.
_MANIFEST = b"BLM1"
_DESCRIPTION = b"BLD1"
_HEAD = struct.Struct("<4sI")  # what it is, and the checksum of the rest
_SNAPSHOT = struct.Struct("<QQQI")  # position, entries so far, bytes of the last entry
_PARTS = struct.Struct("<IQI")  # chunks, bytes, checksum of the chunks' checksums
CHUNK_HEAD = struct.Struct("<I")
_ID = 16
_LARGEST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The names of what is in Redis."""

    prefix: str

    def __post_init__(self) -> None:
        if not self.prefix or set("{}") & set(self.prefix):
            raise errors.InvalidParameter("the prefix of a log must be a text without { and }")

    @property
    def log(self) -> bytes:
        """The stream."""
        return f"{{{self.prefix}}}:log".encode()

    @property
    def manifest(self) -> bytes:
        """Which snapshots are good."""
        return f"{{{self.prefix}}}:manifest".encode()

    @property
    def last(self) -> bytes:
        """The mark of the stream's last entry."""
        return f"{{{self.prefix}}}:last".encode()

    @property
    def claim(self) -> bytes:
        """Which node restores what Redis has lost."""
        return f"{{{self.prefix}}}:claim".encode()

    @property
    def foreign(self) -> bytes:
        """A stream of the last entries that were found in the log and that no node wrote."""
        return f"{{{self.prefix}}}:foreign".encode()

    @property
    def wanted(self) -> bytes:
        """The newest snapshot, as a node says that cannot start from it."""
        return f"{{{self.prefix}}}:wanted".encode()

    @property
    def chunk(self) -> bytes:
        """What the names of all chunks begin with."""
        return f"{{{self.prefix}}}:chunk:".encode()

    def description(self, id: bytes) -> bytes:
        """What a snapshot consists of."""
        return self.chunk + id.hex().encode()

    def part(self, id: bytes, number: int) -> bytes:
        """One chunk of a snapshot."""
        return b"%s:%d" % (self.description(id), number)


# Positions and marks.


def written(position: Position) -> bytes:
    """Return a position as Redis writes it."""
    return b"%d-%d" % position


def position(text: object) -> Position:
    """Return the position of such a text; CorruptData if it is none."""
    if isinstance(text, bytes) and len(text) <= 41:
        ms, dash, seq = text.partition(b"-")
        if dash and ms.isdigit() and seq.isdigit():
            position = Position(int(ms), int(seq))
            if max(position) <= _LARGEST:
                return position
    raise errors.CorruptData("the shared log has an entry without a position")


def tag(mark: Mark) -> bytes:
    """Return what tells an entry from others at its position: 16 bytes that it begins with, behind
    its checksum."""
    return mark.node + mark.attempt.to_bytes(8, "little")


def mark(at: object, tag: object) -> Mark:
    """Return the mark of a position and a tag; CorruptData if they are none."""
    if not isinstance(tag, bytes) or len(tag) != 16:
        raise errors.CorruptData("the shared log ends with an entry that is cut off")
    return Mark(position(at), tag[:8], int.from_bytes(tag[8:], "little"))


def placed(at: object, data: object) -> Placed:
    """Return the entry of such bytes at a position; CorruptData if they are none."""
    if not isinstance(data, bytes):
        raise errors.CorruptData("the shared log has an entry without bytes")
    where = position(at)
    try:
        return Placed(where, LogEntry.from_bytes(data))
    except errors.BloomeryError as problem:
        raise type(problem)(f"the shared log at {where.ms}-{where.seq}: {problem}") from None


# The manifest.


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return a manifest as Redis holds it."""
    ids = b"".join([snapshot.id.hex().encode() for snapshot in manifest.snapshots])
    parts = [bytes([len(manifest.snapshots)]), ids]
    for snapshot in manifest.snapshots:
        entry = snapshot.last.entry.to_bytes()
        parts += [_SNAPSHOT.pack(*snapshot.last.position, snapshot.count, len(entry)), entry]
    body = b"".join(parts)
    return _HEAD.pack(_MANIFEST, zlib.crc32(body)) + body


def read_manifest(data: bytes) -> Manifest:
    """Return the manifest of such bytes; CorruptData if they are none."""
    body = _body(data, _MANIFEST, "manifest")
    try:
        count = body[0]
        if not 1 <= count <= 2:
            raise ValueError
        at = 1 + 2 * _ID * count
        ids = bytes.fromhex(body[1:at].decode("ascii"))
        snapshots = []
        for number in range(count):
            ms, seq, entries, size = _SNAPSHOT.unpack_from(body, at)
            at += _SNAPSHOT.size + size
            last = placed(b"%d-%d" % (ms, seq), body[at - size : at])
            id = ids[_ID * number : _ID * (number + 1)]
            snapshots.append(Snapshot(id, last, entries))
        manifest = Manifest(tuple(snapshots))
        if manifest_bytes(manifest) != data:  # there is one way to write it
            raise ValueError
    except (ValueError, IndexError, struct.error):
        raise errors.CorruptData("the manifest of the shared log cannot be read") from None
    return manifest


# Snapshots.


@dataclass(frozen=True, slots=True)
class SnapshotDescription:
    """What a snapshot consists of."""

    chunks: int
    size: int
    checksum: int  # of the checksums of its chunks

    def to_bytes(self) -> bytes:
        """Return it as Redis holds it."""
        body = _PARTS.pack(self.chunks, self.size, self.checksum)
        return _HEAD.pack(_DESCRIPTION, zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> SnapshotDescription:
        """Return the description of such bytes; CorruptData if they are none."""
        body = _body(data, _DESCRIPTION, "description of a snapshot")
        if len(body) != _PARTS.size:
            raise errors.CorruptData("the description of a snapshot cannot be read")
        parts = cls(*_PARTS.unpack(body))
        if parts.chunks > MOST_CHUNKS or parts.size > parts.chunks * CHUNK:
            raise errors.CorruptData("the description of a snapshot names impossible sizes")
        return parts


def chunk_checksum(id: bytes, number: int, data: bytes | memoryview) -> int:
    """Return the checksum of a chunk, which is that of no other place."""
    return zlib.crc32(data, zlib.crc32(b"%s:%d" % (id, number)))


def _body(data: bytes, kind: bytes, what: str) -> bytes:
    if len(data) <= _HEAD.size:
        raise errors.CorruptData(f"the {what} is cut off")
    written_kind, checksum = _HEAD.unpack_from(data)
    if written_kind != kind and written_kind[:3] == kind[:3]:
        raise errors.UnsupportedVersion(f"a newer bloomery wrote the {what}: upgrade")
    if written_kind != kind:
        raise errors.CorruptData(f"the {what} is none, or of another version of bloomery")
    body = data[_HEAD.size :]
    if zlib.crc32(body) != checksum:
        raise errors.CorruptData(f"the checksum of the {what} is wrong")
    return body
