"""The write-ahead log."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bloomery.errors import CorruptData
from bloomery.segments.store import wal
from bloomery.segments.store.wal import Entry, WriteAheadLog

ENTRIES: list[Entry] = [(b"a", b"1"), (b"b", None), (b"", b""), (b"c" * 300, b"\x00" * 50 + b"x")]


def written(path: Path, *batches: Sequence[Entry]) -> list[int]:
    """A log of these batches, and where each of them ends."""
    log = WriteAheadLog.create(path, fsync=True)
    ends = [log.nbytes]
    for batch in batches:
        log.append(batch)
        ends.append(log.nbytes)
    log.close()
    return ends


def test_what_was_appended_is_replayed(tmp_path: Path) -> None:
    """In order, deletions and empty keys too, over several openings of the file."""
    path = tmp_path / "wal"
    written(path, ENTRIES, ENTRIES[:1])
    log = WriteAheadLog(path, fsync=False)
    log.append(ENTRIES[1:])
    log.sync()
    log.close()
    assert list(wal.replay(path)) == [*ENTRIES, ENTRIES[0], *ENTRIES[1:]]


def test_a_long_batch_is_many_records(tmp_path: Path) -> None:
    """No record grows with the batch."""
    batch: list[Entry] = [(b"%d" % n, bytes(1 << 20)) for n in range(9)]
    path = tmp_path / "wal"
    written(path, batch)
    assert list(wal.replay(path)) == batch


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    """Wherever a write stopped, what was acknowledged before is there, and writing goes on."""
    path = tmp_path / "wal"
    _, first, second = written(path, ENTRIES, [(b"key", b"value")])
    data = path.read_bytes()
    for end in range(first, second):
        for padding in (0, 1, 5000):  # some file systems make room first
            path.write_bytes(data[:end] + bytes(padding))
            assert list(wal.replay(path)) == ENTRIES
            assert path.stat().st_size == first
    log = WriteAheadLog(path, fsync=True)
    log.append([(b"after", b"it")])
    log.close()
    assert list(wal.replay(path)) == [*ENTRIES, (b"after", b"it")]


def test_damage_is_refused(tmp_path: Path) -> None:
    """A byte that changed anywhere in what was acknowledged is an error, and nothing is cut."""
    path = tmp_path / "wal"
    written(path, [(b"a", b"1")], [(b"b", b"2")])
    data = path.read_bytes()
    for at in range(len(data)):
        for flip in (1, 128):
            damaged = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            path.write_bytes(damaged)
            with pytest.raises(CorruptData, match="restore"):
                list(wal.replay(path))
            assert path.read_bytes() == damaged


def test_a_log_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """The last entries are never taken for none."""
    with pytest.raises(CorruptData, match="missing"):
        list(wal.replay(tmp_path / "wal"))
