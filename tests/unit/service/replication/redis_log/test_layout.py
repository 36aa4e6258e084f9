"""What the shared log has in Redis, as bytes: as it was written, or seen to be something else."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import errors
from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed, Position
from bloomery.service.replication.core.messages import Manifest, Snapshot
from bloomery.service.replication.redis_log import layout
from bloomery.service.replication.redis_log.layout import LogKeys, SnapshotDescription

_U64 = st.integers(0, 2**64 - 1)
_EIGHT = st.binary(min_size=8, max_size=8)
ENTRIES = st.builds(LogEntry, _EIGHT, _U64, _U64, st.sampled_from(Kind), st.binary(max_size=30))
PLACED = st.builds(Placed, st.builds(Position, _U64, _U64), ENTRIES)
SNAPSHOTS = st.builds(Snapshot, st.binary(min_size=16, max_size=16), PLACED, _U64)
MANIFESTS = st.lists(SNAPSHOTS, min_size=1, max_size=2).map(lambda some: Manifest(tuple(some)))


@given(MANIFESTS)
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    """All of it; and scripts find its ids where they look for them."""
    data = layout.manifest_bytes(manifest)
    assert layout.read_manifest(data) == manifest
    assert data[8] == len(manifest.snapshots)
    assert data[9:41].decode() == manifest.snapshots[0].id.hex()


@given(MANIFESTS, st.data())
def test_damage_of_a_manifest_is_seen(manifest: Manifest, data: st.DataObject) -> None:
    """Bytes that were cut off, changed or added, also by somebody who knows the checksum."""
    whole = layout.manifest_bytes(manifest)
    end = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[end] ^= data.draw(st.integers(1, 255))
    for other in (whole[:end], bytes(changed), whole + b"x"):
        with pytest.raises(errors.CorruptData):
            layout.read_manifest(other)
    body = data.draw(st.sampled_from([bytes(changed[8:]), whole[8:end], whole[8:] + b"x"]))
    forged = b"BLM1" + struct.pack("<I", zlib.crc32(body)) + body
    try:
        found = layout.read_manifest(forged)
    except (errors.CorruptData, errors.UnsupportedVersion):
        return
    assert layout.manifest_bytes(found) == forged


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Whatever it is, it is refused by an error of ours."""
    for read in (layout.read_manifest, SnapshotDescription.from_bytes):
        with pytest.raises(errors.CorruptData):
            read(data)
    with pytest.raises(errors.CorruptData):
        layout.placed(b"1-1", data)


@given(st.integers(0, 1000), st.integers(0, 2**32 - 1), st.data())
def test_a_description(chunks: int, checksum: int, data: st.DataObject) -> None:
    """It is read as it was written; scripts find the count where they look for it."""
    size = data.draw(st.integers(0, chunks * layout.CHUNK))
    made = SnapshotDescription(chunks, size, checksum).to_bytes()
    assert SnapshotDescription.from_bytes(made) == SnapshotDescription(chunks, size, checksum)
    assert struct.unpack_from("<I", made, 8) == (chunks,)


@pytest.mark.parametrize(
    "sizes", [(layout.MOST_CHUNKS + 1, 0), (1, layout.CHUNK + 1), (0, 1), (2**32 - 1, 2**63)]
)
def test_impossible_sizes(sizes: tuple[int, int]) -> None:
    """They are refused before anything is made for them."""
    with pytest.raises(errors.CorruptData, match="impossible"):
        SnapshotDescription.from_bytes(SnapshotDescription(*sizes, 0).to_bytes())


@given(PLACED)
def test_marks(placed: Placed) -> None:
    """A mark's tag is in the entry's bytes, where scripts look for it."""
    data, at = placed.entry.to_bytes(), layout.written(placed.position)
    assert layout.tag(placed.mark) == data[4:20]
    assert layout.mark(at, data[4:20]) == placed.mark
    assert layout.placed(at, data) == placed


@pytest.mark.parametrize(
    "text", [b"", b"1", b"-", b"1-", b"-1", b"a-1", b"1-1-1", b"%d-0" % 2**64, b"9" * 5000, None]
)
def test_what_is_no_position(text: object) -> None:
    """Nothing but two numbers of 64 bits."""
    with pytest.raises(errors.CorruptData):
        layout.position(text)


def test_what_is_no_mark() -> None:
    """A tag has 16 bytes."""
    assert layout.mark(b"1-2", b"12345678" + bytes(8)) == Mark(Position(1, 2), b"12345678", 0)
    for tag in (b"", bytes(15), bytes(17), None):
        with pytest.raises(errors.CorruptData):
            layout.mark(b"1-2", tag)


def test_keys_have_one_hash_tag() -> None:
    """So that a cluster has them at one node."""
    keys = LogKeys("bloomery:1")
    id = bytes(15) + b"\1"
    names = [keys.log, keys.manifest, keys.last, keys.description(id), keys.part(id, 3)]
    assert all(name.startswith(b"{bloomery:1}:") for name in names)
    assert keys.part(id, 3) == b"{bloomery:1}:chunk:" + b"0" * 31 + b"1:3"
    for prefix in ("", "a{b", "a}b"):
        with pytest.raises(errors.InvalidParameter):
            LogKeys(prefix)


def test_golden() -> None:
    """The bytes that Redis holds never change."""
    entry = LogEntry(b"node-one", 7, 3, Kind.WRITE, b"payload", Position(1, 2), 4, 5)
    snapshot = Snapshot(b"0123456789abcdef", Placed(Position(8, 9), entry), 10)
    assert zlib.crc32(layout.manifest_bytes(Manifest((snapshot,)))) == MANIFEST
    assert SnapshotDescription(3, 10_000_000, 77).to_bytes().hex() == DESCRIPTION


MANIFEST = 665805961
DESCRIPTION = "424c4431ade3142f0300000080969800000000004d000000"
