"""What waits for Redis on the disk, and what was acknowledged a moment ago."""

from pathlib import Path

import pytest

from bloomery.service.replication.outbox import Outbox
from bloomery.service.replication.shared import Recent


def waiting(outbox: Outbox) -> list[tuple[int, bytes]]:
    """All that waits."""
    return [one for some in outbox.waiting() for one in some]


def test_what_was_put_waits_over_restarts(tmp_path: Path) -> None:
    """In order, until all of it is done; then nothing does."""
    first = Outbox(tmp_path)
    first.put([(2**62 + 1, b"8 bytes!"), (7, b"16 bytes of both")])
    first.put([(7, b"9 bytes!")])
    assert first.keys == 4
    # Without closing, as after a kill.
    second = Outbox(tmp_path)
    expected = [(2**62 + 1, b"8 bytes!"), (7, b"16 bytes of both"), (7, b"9 bytes!")]
    assert (waiting(second), second.keys) == (expected, 4)
    second.put([(8, b"10 bytes")])
    assert waiting(second) == [*expected, (8, b"10 bytes")]
    assert not second.problems
    second.done()
    assert (waiting(second), second.keys) == ([], 0)
    second.put([(9, b"11 bytes")])
    assert waiting(second) == [(9, b"11 bytes")]
    second.close()
    first.close()


def test_recent_forgets_what_is_old_or_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """By time and by bytes; the newest stay."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    recent = Recent(seconds=10, most_bytes=40)
    recent.add(1, b"a" * 8)
    now[0] += 5
    recent.add(2, b"b" * 16)
    recent.add(1, b"c" * 8)
    assert recent.all() == [(1, b"a" * 8 + b"c" * 8), (2, b"b" * 16)]
    now[0] += 6
    recent.add(3, b"d" * 8)
    assert recent.all() == [(2, b"b" * 16), (1, b"c" * 8), (3, b"d" * 8)]
    recent.add(4, b"e" * 16)
    assert recent.all() == [(1, b"c" * 8), (3, b"d" * 8), (4, b"e" * 16)]


def test_recent_knows_what_proves_that_redis_kept_the_rest() -> None:
    """The mark is the last entry whose adds are not there; what comes later proves as much."""
    recent = Recent(seconds=10, most_bytes=16)
    assert recent.known(b"0-0") == b"0-0"
    recent.add(1, b"a" * 8, b"9-0")
    recent.add(1, b"b" * 8, b"10-0")
    assert recent.known(b"9-1") == b"10-0"
    assert recent.known(b"11-0") is None
    recent.add(1, b"c" * 8, b"12-0")  # the first one goes
    assert (recent.mark, recent.known(b"0-0"), recent.known(b"10-1")) == (b"9-0", b"9-0", b"12-0")
    recent.reach(b"11-0")
    assert (recent.mark, recent.known(b"1-0")) == (b"11-0", b"11-0")
    recent.reach(b"2-0")
    assert recent.mark == b"11-0"
