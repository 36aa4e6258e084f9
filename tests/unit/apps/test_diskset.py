"""An exact set: no key is taken for another, none is lost, and the file has one owner."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest

from bloomery import BloomFilter, RotatingBloomFilter
from bloomery.apps import DiskSet
from bloomery.errors import CorruptData, InvalidParameter
from limits import failing_writes
from privates import connection_of
from unit.clocks import Clock
from unit.kills import die, killed


def test_answers_are_exact_behind_a_filter_that_is_mostly_wrong(tmp_path: Path) -> None:
    """A filter that says maybe to nearly everything costs questions to the disk, and no error."""
    filter = BloomFilter(1, 0.5)
    model: set[int] = set()
    draw = random.Random(4)
    with DiskSet(tmp_path / "set", filter, fsync=False, commit_every=100) as seen:
        for key in (draw.randrange(500) for _ in range(2_000)):
            assert (key in seen) == (key in model)
            assert seen.add(key) == (key not in model)
            model.add(key)
        assert len(seen) == len(model)
        assert seen.wrong_maybes > 100


def test_keys_are_told_apart_as_filters_do(tmp_path: Path) -> None:
    """Text and its bytes are one key; 1 and "1", and long keys that differ at the end, are two."""
    with DiskSet(tmp_path / "set") as seen:
        assert seen.add("é" * 100)
        assert not seen.add(("é" * 100).encode())
        assert seen.add("é" * 99 + "e")
        assert seen.add(1)
        assert seen.add("1")


def test_a_set_is_opened_again(tmp_path: Path) -> None:
    """Closed, its filter is saved beside it; opened, that is used up; a crash leaves none."""
    path = tmp_path / "set"
    keys = [f"key {n}" for n in range(3_000)]
    with DiskSet(path, fsync=False, commit_every=1000) as seen:
        assert all(map(seen.add, keys))
    assert len(list(tmp_path.glob("*.bloom"))) == 1
    with DiskSet(path) as seen:
        assert not list(tmp_path.glob("*.bloom"))
        assert not any(map(seen.add, keys))
        assert seen.wrong_maybes == 0


def test_a_saved_filter_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    """The rows have all that was in it."""
    with DiskSet(tmp_path / "set") as seen:
        seen.add("a")
    [saved] = tmp_path.glob("*.bloom")
    saved.write_bytes(saved.read_bytes()[:-1] + b"\xff")
    with DiskSet(tmp_path / "set") as seen:
        assert "a" in seen
        assert "b" not in seen


@pytest.mark.parametrize("every", [1, 1000])
def test_a_killed_process_keeps_what_was_committed(tmp_path: Path, every: int) -> None:
    """What `add` or `commit` returned from survives kill -9."""

    def work() -> None:
        seen = DiskSet(tmp_path / "set", fsync=False, commit_every=every)
        for key in range(100):
            seen.add(key)
        seen.commit()
        seen.add("after")
        die()

    killed(work)
    with DiskSet(tmp_path / "set") as seen:
        assert all(key in seen for key in range(100))
        assert ("after" in seen) == (every == 1)


def test_a_window_forgets(tmp_path: Path) -> None:
    """With a rotating filter in front a key is new again after the window, and not before."""
    clock = Clock(1_000_000.0)

    def opened() -> DiskSet:
        return DiskSet(
            tmp_path / "set", RotatingBloomFilter(1000, window="1h", clock=clock), clock=clock
        )

    with opened() as seen:
        assert seen.add("a")
        clock.now += 3000
        assert "a" in seen
        assert seen.add("b")
    with opened() as seen:
        assert "a" in seen
        clock.now += 1000
        assert "a" not in seen
        assert seen.add("a")
        assert "b" in seen
        assert len(seen) == 2


def test_one_process_has_the_file(tmp_path: Path) -> None:
    """A second one is told, and a fork cannot use it."""
    with DiskSet(tmp_path / "set") as seen:
        with pytest.raises(OSError, match="another process uses it"):
            DiskSet(tmp_path / "set")

        def work() -> None:
            with pytest.raises(InvalidParameter, match="before a fork"):
                seen.add("a")

        killed(work)
    with pytest.raises(InvalidParameter, match="closed"):
        seen.add("a")


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is no set of ours is left alone; a damaged one is said to be."""
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("mine\n" * 100)
    with pytest.raises(InvalidParameter, match="no set of keys"):
        DiskSet(text)
    assert text.read_text() == "mine\n" * 100
    connection = sqlite3.connect(other)
    connection.execute("PRAGMA application_id = 5")
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    with pytest.raises(InvalidParameter, match="no set of keys"):
        DiskSet(other)
    with DiskSet(tmp_path / "set", commit_every=10_000) as seen:
        for key in range(5_000):
            seen.add(key)
    data = bytearray((tmp_path / "set").read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    (tmp_path / "set").write_bytes(data)
    with pytest.raises(CorruptData, match="restore it from a backup"):
        DiskSet(tmp_path / "set", BloomFilter(10_000))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A missing folder, and arguments that are out of range, are one clear error."""
    with pytest.raises(OSError, match="No such file"):
        DiskSet(tmp_path / "none" / "set")
    with pytest.raises(InvalidParameter, match="commit_every is 0"):
        DiskSet(tmp_path / "set", commit_every=0)
    with pytest.raises(InvalidParameter, match="without a window"):
        DiskSet(tmp_path / "set", RotatingBloomFilter(10, window=None))


@pytest.mark.parametrize("every", [1, 100])
def test_a_key_that_could_not_be_written_is_new_again(tmp_path: Path, every: int) -> None:
    """After an error of the disk the set goes on; the keys that it took back are said."""
    with DiskSet(tmp_path / "set", fsync=False, commit_every=every) as seen:
        seen.add("before")
        seen.commit()
        with failing_writes(tmp_path / "set"):
            if every == 100:
                assert all(seen.add(key) for key in range(every - 1))
            with pytest.raises(OSError, match=f"not in the set: {every}.*ulimit -f"):
                seen.add("b")
        assert "b" not in seen
        assert len(seen) == 1
        assert seen.add("b")
        seen.commit()
        assert not seen.add("b")
        assert not seen.add("before")
    with DiskSet(tmp_path / "set") as seen:
        assert len(seen) == 2


def test_a_full_disk_takes_back_what_was_not_committed(tmp_path: Path) -> None:
    """Where SQLite itself has rolled back, keys are new again and the next add begins anew."""
    with DiskSet(tmp_path / "set", fsync=False, commit_every=100_000) as seen:
        seen.add("before")
        seen.commit()
        connection_of(seen).execute("PRAGMA max_page_count = 1")
        with pytest.raises(OSError, match=r"not in the set: \d+.*make room"):
            all(seen.add(key) for key in range(1_000))
        connection_of(seen).execute("PRAGMA max_page_count = 1000000")
        assert len(seen) == 1
        assert all(seen.add(key) for key in range(1_000))
        assert not seen.add("before")
    with DiskSet(tmp_path / "set") as seen:
        assert len(seen) == 1_001


def test_a_set_has_a_window_or_none(tmp_path: Path) -> None:
    """Opened the other way it is refused, and nothing in it is touched; an empty one is either."""
    week = RotatingBloomFilter(1000, window="7d")
    with DiskSet(tmp_path / "plain") as seen:
        seen.add("a")
    with DiskSet(tmp_path / "week", week) as seen:
        seen.add("a")
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="made without a window"):
            DiskSet(tmp_path / "plain", RotatingBloomFilter(1000, window="7d"))
        with pytest.raises(InvalidParameter, match="made with a window"):
            DiskSet(tmp_path / "week")
    with DiskSet(tmp_path / "plain") as seen:
        assert "a" in seen
    with DiskSet(tmp_path / "week", RotatingBloomFilter(1000, window="7d")) as seen:
        assert "a" in seen
    DiskSet(tmp_path / "empty", RotatingBloomFilter(1000, window="7d")).close()
    with DiskSet(tmp_path / "empty") as seen:
        assert seen.add("a")
