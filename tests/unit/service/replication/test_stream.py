"""Entries of the stream: what was appended is read again; what others wrote is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.errors import CorruptData
from bloomery.integrations.redis.wire import change_feed
from bloomery.service.domain.operations import Op
from bloomery.service.replication.stream import START, Record, entries_in, later, packed_records

OPS = st.sampled_from([Op.ADD, Op.CREATE, Op.DROP, Op.EXPIRE, Op.ADJUST])
RECORDS = st.lists(
    st.builds(Record, st.integers(0, 2**63 - 1), OPS, st.binary(max_size=100)), max_size=5
)


def reply(number: bytes, writer: bytes, data: bytes, form: str) -> Any:
    """What XREAD answers, as each protocol has it."""
    fields = [b"w", writer, b"d", data]
    if form == "resp2":
        return [[b"s", [[number, fields]]]]
    return {b"s": [[number, fields]]}


@given(records=RECORDS, form=st.sampled_from(["resp2", "resp3"]))
def test_entries_are_read_as_they_were_appended(records: list[Record], form: str) -> None:
    """Whatever the records are, and whichever protocol is spoken."""
    words = change_feed.entry(b"s", 1000, b"12345678", records)
    assert words[:5] == ("XADD", b"s", "MAXLEN", "~", 1000)
    assert words[6:9] == ("w", b"12345678", "d")
    assert isinstance(words[9], bytes)
    (entry,) = entries_in(reply(b"1700000000123-4", b"12345678", words[9], form))
    assert entry.records == records
    assert (entry.writer, entry.seconds) == (b"12345678", 1700000000.123)


@given(
    records=RECORDS.filter(bool), cut=st.integers(1, 50), data=st.binary(min_size=1, max_size=60)
)
def test_what_is_cut_off_or_foreign_is_refused(
    records: list[Record], cut: int, data: bytes
) -> None:
    """No entry is guessed at: to pass one over would lose keys without a word."""
    whole = packed_records(records)
    for broken in (whole[: -min(cut, len(whole) - 1)], whole + data[:12]):
        if any(broken == packed_records(records[:some]) for some in range(len(records) + 1)):
            continue  # cut between two records
        with pytest.raises(CorruptData, match="cannot be read"):
            entries_in(reply(b"1-1", b"w", broken, "resp2"))


@pytest.mark.parametrize("reply", [[[b"s", [[b"1-1", [b"x", b"y"]]]]], [[b"s", [[b"1-1", 5]]]]])
def test_other_entries_are_refused(reply: Any) -> None:
    """Somebody else writes to this stream."""
    with pytest.raises(CorruptData, match="cannot be read"):
        entries_in(reply)


def test_numbers_are_in_order() -> None:
    """By time, and then by count; not as text."""
    assert later(b"10-0", b"9-5")
    assert later(b"9-10", b"9-9")
    assert not later(b"9-9", b"9-9")
    assert later(b"0-1", START)
    assert entries_in(None) == []


def test_long_entries_are_fewer() -> None:
    """So that the stream does not take all of Redis's memory; never fewer than a node reads at
    once, by which it knows that none is missing."""
    for keys, kept in ((1, 100_000), (10_000, 6709), (10**6, 1000)):
        words = change_feed.entry(b"s", 100_000, b"w", [Record(1, Op.ADD, bytes(8 * keys))])
        assert words[4] == kept
    assert change_feed.entry(b"s", 1000, b"w", [Record(1, Op.ADD, bytes(8))])[4] == 1000
