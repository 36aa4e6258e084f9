"""The ledger: which entries count, for all nodes alike."""

import pytest

from bloomery import errors
from bloomery.service.replication.core.entries import NO_LEASE, Kind, LogEntry, Position
from bloomery.service.replication.core.ledger import MAX_STEP_MS, Ledger, Verdict

A, B = b"a" * 8, b"b" * 8


def admit(
    ledger: Ledger,
    ms: int,
    node: bytes,
    op: int,
    kind: Kind = Kind.WRITE,
    fence: Position = NO_LEASE,
    version: int = 1,
    needs: int = 1,
) -> Verdict:
    """Take in an entry at a time; a CLOCK lets time come to then."""
    payload = ms.to_bytes(8, "little") if kind is Kind.CLOCK else b""
    entry = LogEntry(node, ms, op, kind, payload, fence, version, needs)
    return ledger.admit(Position(ms, 0), entry)


def test_an_operation_counts_once() -> None:
    """A retry, and an operation that its node has gone on without, are repeats."""
    ledger = Ledger()
    assert admit(ledger, 1, A, 1) is Verdict.APPLY
    assert admit(ledger, 2, A, 1) is Verdict.REPEAT
    assert admit(ledger, 3, A, 3) is Verdict.APPLY
    assert admit(ledger, 4, A, 2) is Verdict.REPEAT
    assert admit(ledger, 5, B, 2) is Verdict.APPLY
    assert (ledger.last_op(A), ledger.last_op(B), ledger.last_op(b"c" * 8)) == (3, 2, 0)


def test_one_of_two_claims_counts() -> None:
    """The lease goes to the first that claims it, and what the one before decides is void."""
    ledger = Ledger()
    assert admit(ledger, 1, A, 1, Kind.CLAIM) is Verdict.APPLY
    assert admit(ledger, 2, B, 1, Kind.CLAIM) is Verdict.FENCED
    assert admit(ledger, 3, A, 2, Kind.CLOCK, Position(1, 0)) is Verdict.APPLY
    assert ledger.now_ms == 3
    assert admit(ledger, 4, B, 2, Kind.CLAIM, Position(1, 0)) is Verdict.APPLY
    assert admit(ledger, 5, A, 3, Kind.CLOCK, Position(1, 0)) is Verdict.FENCED
    assert admit(ledger, 6, A, 4, Kind.DECIDE, Position(1, 0)) is Verdict.FENCED
    assert (ledger.holder, ledger.fence, ledger.now_ms) == (B, Position(4, 0), 3)


def test_what_a_member_does_not_know_is_void() -> None:
    """An operation that is newer than a member counts for nobody, until that has gone."""
    ledger = Ledger(absent_ms=100)
    admit(ledger, 1, A, 1, version=1)
    assert admit(ledger, 50, B, 1, version=2, needs=2) is Verdict.TOO_NEW
    assert admit(ledger, 102, B, 2, version=2, needs=2) is Verdict.APPLY


def test_members_are_forgotten() -> None:
    """Who was not heard of for a day is no longer in the ledger, by the log's time."""
    ledger = Ledger(forget_ms=100)
    admit(ledger, 1, A, 1)
    admit(ledger, 90, B, 1, Kind.CLAIM)
    admit(ledger, 150, B, 2, Kind.CLOCK, Position(90, 0))
    assert list(ledger.members) == [B]


def test_the_time_of_entries() -> None:
    """It is that of the last CLOCK and what passed since then at Redis, whose clock may jump."""
    ledger = Ledger()
    admit(ledger, 10_000, A, 1, Kind.CLAIM)
    admit(ledger, 10_500, A, 2)
    assert ledger.latest_ms == 10_500
    admit(ledger, 9_000_000, A, 3)  # two hours and a half ahead
    assert ledger.latest_ms == 10_000 + MAX_STEP_MS
    clock = LogEntry(A, 9, 4, Kind.CLOCK, (11_000).to_bytes(8, "little"), Position(10_000, 0))
    assert ledger.admit(Position(9_000_500, 0), clock) is Verdict.APPLY
    assert (ledger.now_ms, ledger.latest_ms) == (11_000, 12_000)  # it never goes back
    admit(ledger, 9_001_800, A, 5)
    assert ledger.latest_ms == 12_300
    admit(ledger, 10_000, A, 6)  # it was corrected
    assert ledger.latest_ms == 12_300


def test_bytes_and_back() -> None:
    """A ledger's bytes are that ledger again; others are none."""
    ledger = Ledger()
    admit(ledger, 1, A, 1, Kind.CLAIM)
    admit(ledger, 2, B, 1)
    assert Ledger.from_bytes(ledger.to_bytes()) == ledger
    for wrong in (b"", b"[]", b"{}", b'{"members": 1}', ledger.to_bytes()[:-1]):
        with pytest.raises(errors.CorruptData):
            Ledger.from_bytes(wrong)


def test_a_ledger_exceeds_another_by_writes() -> None:
    """What counts is writes; a member that the other side expired long ago does not."""
    ours, theirs = Ledger(forget_ms=100), Ledger(forget_ms=100)
    for ledger in (ours, theirs):
        admit(ledger, 1, A, 1)
    admit(theirs, 2, A, 2, Kind.HELLO)
    assert not ours.exceeds(theirs)
    assert not theirs.exceeds(ours)
    admit(ours, 3, A, 3)
    assert ours.exceeds(theirs)
    assert not theirs.exceeds(ours)
    admit(theirs, 4, B, 1)
    assert theirs.exceeds(ours)
    ours.now_ms = 200  # B would have been expired by now
    assert not theirs.exceeds(ours)
