"""Entries of the shared log as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import errors
from bloomery.service.replication.core.entries import Kind, LogEntry, Position

_U64 = st.integers(0, 2**64 - 1)
ENTRIES = st.builds(
    LogEntry,
    st.binary(min_size=8, max_size=8),
    _U64,
    _U64,
    st.sampled_from(Kind),
    st.binary(max_size=50),
    st.builds(Position, _U64, _U64),
    st.integers(0, 65535),
    st.integers(0, 65535),
)


@given(ENTRIES)
def test_bytes_and_back(entry: LogEntry) -> None:
    """An entry's bytes are that entry again."""
    assert LogEntry.from_bytes(entry.to_bytes()) == entry


@given(ENTRIES, st.data())
def test_damage_is_seen(entry: LogEntry, data: st.DataObject) -> None:
    """Bytes that were cut off or changed are no entry."""
    whole = entry.to_bytes()
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(errors.CorruptData):
        LogEntry.from_bytes(whole[:end])
    changed = bytearray(whole)
    changed[end] ^= data.draw(st.integers(1, 255))
    with pytest.raises(errors.CorruptData):
        LogEntry.from_bytes(bytes(changed))


def test_golden() -> None:
    """The bytes that streams hold never change."""
    entry = LogEntry(b"node-one", 7, 3, Kind.WRITE, b"payload", Position(1, 2), 4, 5)
    assert entry.to_bytes().hex() == GOLDEN


GOLDEN = (
    "4fceb7206e6f64652d6f6e6507000000000000000300000000000000"
    "0100000000000000020000000000000003040005007061796c6f6164"
)
