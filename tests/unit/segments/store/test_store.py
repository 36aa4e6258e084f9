"""The store: what is put is there, and filters spare reads."""

import errno
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bloomery.errors import (
    CorruptData,
    FolderInUse,
    InvalidKey,
    InvalidParameter,
    UnsupportedKey,
)
from bloomery.segments import SegmentStore
from limits import files_no_larger
from privates import tree_of


def filled(path: Path, segments: int = 3, keys: int = 1000, **options: Any) -> SegmentStore:
    """A store of so many segments, each with keys of its own."""
    store = SegmentStore(path, fsync=False, compact_at=0, **options)
    for number in range(segments):
        store.put_many((f"{number}:{n}", f"value {n}") for n in range(keys))
        store.flush()
    return store


def test_what_is_put_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    """From the memtable and from segments; str and bytes are one key."""
    with SegmentStore(tmp_path / "s") as store:
        store.put("flushed", "1")
        store.flush()
        store.put(b"logged", b"2")
        store.put("ä", "ö")
    with SegmentStore(tmp_path / "s") as store:
        assert store.get(b"flushed") == b"1"
        assert store.get("logged") == b"2"
        assert store.get("ä".encode()) == "ö".encode()
        assert (store.get("none"), store.get("none", b"x")) == (None, b"x")
        assert "logged" in store
        assert "none" not in store
        assert store.get_many(["logged", "none", "flushed"]) == [b"2", None, b"1"]


def test_the_newest_value_counts(tmp_path: Path) -> None:
    """A key in several segments has the value of the newest, until it is deleted."""
    with SegmentStore(tmp_path / "s", compact_at=0) as store:
        for value in "123":
            store.put("key", value)
            store.flush()
        assert store.get("key") == b"3"
        store.delete("key")
        assert store.get("key") is None
        store.flush()
        assert (store.get("key"), store.get_many(["key"]), list(store.scan())) == (None, [None], [])
        store.compact()
        assert store.stats()["segments"] == 0
        store.put("key", "4")
        assert store.get("key") == b"4"


def test_deletions_stay_while_an_older_segment_may_have_the_key(tmp_path: Path) -> None:
    """A merge of newer segments does not bring back what is deleted."""
    with SegmentStore(tmp_path / "s", compact_at=4, memtable_bytes=1 << 30) as store:
        store.put_many((f"old {n}", bytes(2000)) for n in range(2000))  # too large for their tier
        store.flush()
        store.delete("old 7")
        store.flush()
        for n in range(3):
            store.put(f"new {n}", "x")
            store.flush()
        tree_of(store).merge_next_tier()
        assert store.stats()["segments"] == 2
        assert store.stats()["deletions"] == 1
        assert store.get("old 7") is None
        store.compact()
        assert store.stats()["deletions"] == 0
        assert store.get("old 7") is None


def test_segments_of_one_size_are_merged_by_themselves(tmp_path: Path) -> None:
    """Flushes and merges happen as keys come, and no key is lost."""
    with SegmentStore(tmp_path / "s", memtable_bytes=50_000, fsync=False) as store:
        for start in range(0, 20_000, 100):
            store.put_many((f"key {n}", str(n)) for n in range(start, start + 100))
        assert 1 <= store.stats()["segments"] < 12
        asked = [f"key {n}" for n in range(20_000)]
        assert store.get_many(asked) == [b"%d" % n for n in range(20_000)]
        assert len(list(store.scan())) == 20_000


def test_scan_is_in_order_and_of_one_moment(tmp_path: Path) -> None:
    """What is put, flushed or merged meanwhile does not show, nor does it end the scan."""
    store = filled(tmp_path / "s", 3, 500)
    store.put("1:7", "new")
    store.delete("1:8")
    scan = store.scan("1:", "2:")
    first = next(scan)
    store.put_many((f"1:0{n}", "late") for n in range(500))
    store.compact()
    rows = [first, *scan]
    keys = sorted(b"1:%d" % n for n in range(500) if n != 8)
    assert [key for key, _ in rows] == keys
    assert dict(rows)[b"1:7"] == b"new"
    store.close()


def test_filters_skip_segments(tmp_path: Path) -> None:
    """Absent keys read hardly a segment, and `explain` says what happened in each."""
    store = filled(tmp_path / "s", 10, 2000)
    for n in range(2000):
        assert store.get(f"absent {n}") is None
    stats = store.stats()
    assert stats["gets"] == 2000
    assert stats["segments_read"] == stats["segments_read_in_vain"] < 2000 * 10 * 0.013
    assert stats["segments_skipped"] + stats["segments_read"] == 20_000
    assert stats["false_positive_rate"] < 0.013
    told = store.explain("4:99")
    assert told.found
    assert store.get("4:99") == b"value 99"
    now = store.stats()  # what lies behind the segment that has it was not asked
    assert now["segments_skipped"] + now["segments_read"] == 20_000 + 6
    places = {step.place: step.outcome for step in told.steps}
    outcomes = list(places.values())
    assert outcomes[0] == "not there"  # in the memtable
    assert outcomes[6] == "found"
    assert outcomes[7:] == ["not asked"] * 4
    assert told.skipped + told.read_in_vain == 5
    assert told.read == 1 + told.read_in_vain
    assert "read" in str(told)
    store.delete("4:99")
    assert store.explain("4:99").steps[0].outcome == "deleted"
    assert store.stats()["gets"] == 2001  # explaining counts as nothing
    store.close()


def test_a_read_in_vain_is_told(tmp_path: Path) -> None:
    """With a filter that errs half of the time, some read is."""
    store = filled(tmp_path / "s", 2, 1000, fp_chance=0.5)
    told = [store.explain(f"absent {n}") for n in range(50)]
    assert any(one.read_in_vain for one in told)
    assert not any(one.found for one in told)
    store.close()


def test_fp_chance_is_of_segments_to_come(tmp_path: Path) -> None:
    """It can be changed at any time, and nothing is written anew."""
    store = filled(tmp_path / "s", 1, 3000)
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "s").glob("segment-*"))
    store.fp_chance = "10%"
    assert sorted(p.stat().st_mtime_ns for p in (tmp_path / "s").glob("segment-*")) == before
    store.close()
    with SegmentStore(tmp_path / "s", compact_at=0) as store:
        assert store.fp_chance == 0.1
        store.put_many((f"more {n}", "x") for n in range(3000))
        store.flush()
        assert store.stats()["fp_chances"] == [0.01, 0.1]
        new, old = (segment.entry for segment in tree_of(store).view.segments)
        assert new.filter_bytes < 0.7 * old.filter_bytes
    with SegmentStore(tmp_path / "s", fp_chance=0.001) as store:
        store.compact()
        assert store.stats()["fp_chances"] == [0.001]


def test_one_store_has_the_folder(tmp_path: Path) -> None:
    """A second is refused, with the process that has it, until the first is closed."""
    with SegmentStore(tmp_path / "s"), pytest.raises(FolderInUse, match="another store"):
        SegmentStore(tmp_path / "s")
    SegmentStore(tmp_path / "s").close()


def test_a_relative_path_stays_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of that name where the process goes is another, and keeps what it has."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with SegmentStore(tmp_path / "there" / "s") as other:
        other.put("other", "1")
    monkeypatch.chdir(tmp_path / "here")
    with SegmentStore("s") as store:
        monkeypatch.chdir(tmp_path / "there")
        store.put("key", "2")
        store.flush()
    for name, expected in (("here", {b"key": b"2"}), ("there", {b"other": b"1"})):
        with SegmentStore(tmp_path / name / "s") as store:
            assert dict(store.scan()) == expected


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Neither reading nor writing does anything else."""
    store = SegmentStore(tmp_path / "s")
    store.close()
    store.close()
    for ask in (lambda: store.get("a"), lambda: store.put("a", "b"), lambda: list(store.scan())):
        with pytest.raises(InvalidParameter, match="closed"):
            ask()
    assert "closed" in repr(store)


def test_a_read_during_the_close_is_whole_or_refused(tmp_path: Path) -> None:
    """A key that is there is not missed by a reader that was let in just before."""
    store = filled(tmp_path / "s", 1, 10)

    def close(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == "_writable":
            sys.setprofile(None)
            store.close()

    sys.setprofile(close)
    try:
        value = store.get("0:5")
    finally:
        sys.setprofile(None)
    assert value == b"value 5"
    with pytest.raises(InvalidParameter, match="closed"):
        store.get("0:5")


def test_whoever_waits_while_it_is_closed_changes_nothing(tmp_path: Path) -> None:
    """The folder may be another's by then: a writer that was let in just before is refused."""
    store = filled(tmp_path / "s", 1, 10)
    store.delete("0:5")
    store.flush()
    tree = tree_of(store)
    store.close()
    with SegmentStore(tmp_path / "s", compact_at=0) as other:
        other.put("other", "1")
        for act in (
            lambda: tree.write([(b"late", b"2")]),
            lambda: tree.merge(range(0)),
            lambda: tree.set_fp_chance(0.3),
            tree.flush,
            tree.sync,
        ):
            with pytest.raises(InvalidParameter, match="closed"):
                act()
    with SegmentStore(tmp_path / "s") as other:
        assert len(list(other.scan())) == 10
        assert other.fp_chance == 0.01


def test_a_forked_child_has_no_part_in_the_store(tmp_path: Path) -> None:
    """Every use of it there is an error, its close takes nothing from the parent, and the parent's
    gives the folder back though the child lives; a lock that a thread had does not matter."""
    script = """if True:
        import os, signal, sys, threading
        from bloomery.errors import InvalidParameter
        from bloomery.segments import SegmentStore
        store = SegmentStore(sys.argv[1])
        store.put("before", "1")
        held, done = threading.Event(), threading.Event()
        def hold():
            with store._tree.lock:
                held.set()
                done.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        asked, told = os.pipe()
        answers, answer = os.pipe()
        if os.fork() == 0:
            signal.alarm(30)  # it ends, whatever it waits for
            os.close(told)
            refused = 0
            uses = [
                lambda: store.put("child", "1"), lambda: store.delete("before"), store.flush,
                store.sync, store.compact, lambda: store.get("before"), store.stats,
                lambda: store.get_many(["before"]), lambda: list(store.scan()),
                lambda: store.explain("before"), lambda: store.fp_chance,
                lambda: setattr(store, "fp_chance", 0.5),
            ]
            for use in uses:
                try:
                    use()
                except InvalidParameter as problem:
                    refused += "fork" in str(problem)
            os.write(answer, b"all" if refused == len(uses) else b"%d" % refused)
            os.read(asked, 1)
            store.close()
            os.write(answer, b"closed")
            os._exit(0)
        assert os.read(answers, 9) == b"all"
        done.set()
        thread.join()
        store.put("after", "2")
        store.close()
        store = SegmentStore(sys.argv[1])
        os.close(told)
        assert os.read(answers, 9) == b"closed"
        store.put("last", "3")
        store.close()
        assert dict(SegmentStore(sys.argv[1]).scan()) == {
            b"before": b"1", b"after": b"2", b"last": b"3"
        }
        os.wait()
    """
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "s")],
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (1, "x", UnsupportedKey),
        (None, "x", UnsupportedKey),
        ("\ud800", "x", InvalidKey),
        (bytes(70_000), "x", InvalidKey),
        ("key", 1.5, UnsupportedKey),
    ],
)
def test_what_is_no_key_or_value_is_refused(
    tmp_path: Path, key: Any, value: Any, error: type[Exception]
) -> None:
    """With what would be right; nothing is put."""
    with SegmentStore(tmp_path / "s") as store:
        with pytest.raises(error, match=r"must be|encode"):
            store.put(key, value)
        assert list(store.scan()) == []


@pytest.mark.parametrize("options", [{"memtable_bytes": 0}, {"compact_at": 1}, {"fp_chance": 2}])
def test_options_out_of_range_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """And no folder is made."""
    with pytest.raises(InvalidParameter):
        SegmentStore(tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    """Files that the manifest does not name are gone after the next opening."""
    filled(tmp_path / "s", 2).close()
    for name in ("segment-000099.sqlite", "segment-000099.filter", "wal-000099.log"):
        (tmp_path / "s" / name).write_bytes(b"half")
    with SegmentStore(tmp_path / "s") as store:
        assert store.get("1:5") == b"value 5"
    assert not list((tmp_path / "s").glob("*99*"))


def damaged_copy(tmp_path: Path, name: str) -> tuple[Path, Path]:
    """A copy of the store of which one file is to be damaged."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tmp_path / "s", copy)
    return copy, next(iter(sorted(copy.glob(name))))


def check_damage(copy: Path, file: Path, *, rebuilt: bool) -> None:
    """The store is refused, or it is whole; never does it say no to a key that it has."""
    if not rebuilt:
        with pytest.raises(CorruptData, match=f"{file.name}|{copy.name}"):
            SegmentStore(copy)
        return
    with SegmentStore(copy) as store:
        assert all(store.get(f"{s}:{n}") is not None for s in range(2) for n in range(300))
        assert store.get("logged") == b"last"


@pytest.mark.parametrize(
    ("name", "rebuilt"),
    [
        ("MANIFEST", False),
        ("wal-*.log", False),
        ("segment-*.sqlite", False),
        ("segment-*.filter", True),
    ],
)
def test_damaged_files_are_refused_or_made_anew(tmp_path: Path, name: str, rebuilt: bool) -> None:
    """Bytes that changed, are missing or came, in each kind of file."""
    store = filled(tmp_path / "s", 2, 300)
    store.put("logged", "last")
    store.close()
    _, file = damaged_copy(tmp_path, name)
    data = file.read_bytes()
    for at in sorted({0, 8, 9, 20, len(data) // 3, len(data) // 2, len(data) - 1}):
        copy, file = damaged_copy(tmp_path, name)
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        check_damage(copy, file, rebuilt=rebuilt)
    copy, file = damaged_copy(tmp_path, name)
    file.unlink()
    check_damage(copy, file, rebuilt=rebuilt)
    if "wal" not in name:  # whose end may be cut off, by a crash
        copy, file = damaged_copy(tmp_path, name)
        file.write_bytes(data[: len(data) // 2])
        check_damage(copy, file, rebuilt=rebuilt)


@pytest.mark.parametrize("nbytes", [None, 0, 5000])
def test_a_segment_that_is_missing_or_short_is_always_refused(
    tmp_path: Path, nbytes: int | None
) -> None:
    """Without `verify` too, and nothing that could help is removed."""
    filled(tmp_path / "s", 1, 300).close()
    (path,) = (tmp_path / "s").glob("*.sqlite")
    leftover = tmp_path / "s" / "wal-000099.log"
    leftover.write_bytes(b"old")
    if nbytes is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:nbytes])
    with pytest.raises(CorruptData, match="restore"):
        SegmentStore(tmp_path / "s", verify=False)
    assert leftover.exists()


def test_the_filter_of_another_segment_is_not_believed(tmp_path: Path) -> None:
    """It is whole, and would say no to keys that are there: so it is made anew."""
    filled(tmp_path / "s", 2, 300).close()
    first, second = sorted((tmp_path / "s").glob("*.filter"))
    shutil.copy(second, first)
    with SegmentStore(tmp_path / "s") as store:
        assert all(store.get(f"{s}:{n}") is not None for s in range(2) for n in range(300))


@pytest.mark.parametrize("fsync", [True, False])
def test_a_log_that_cannot_be_written_acknowledges_nothing(tmp_path: Path, fsync: bool) -> None:
    """The put fails, all before it is there, and it goes on when there is room."""
    store = SegmentStore(tmp_path / "s", fsync=fsync)
    store.put("before", "1")
    with files_no_larger(store.stats()["log_bytes"] + 500), pytest.raises(OSError, match="wal-"):
        store.put("refused", "2" * 1000)
    assert store.get("refused") is None
    store.put("after", "3")  # which is shorter than what was half written
    store.close()
    with SegmentStore(tmp_path / "s") as store:
        assert dict(store.scan()) == {b"before": b"1", b"after": b"3"}


def test_a_sync_that_fails_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports a failed write once: so the next sync writes everything anew."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "no disk")

    store = SegmentStore(tmp_path / "s", fsync=False)
    store.put("key", "1")
    with monkeypatch.context() as patch:
        patch.setattr("bloomery.segments.store.wal._sync", fail)
        with pytest.raises(OSError, match="wal-"):
            store.sync()
    store.sync()
    assert (store.stats()["segments"], store.stats()["memtable_keys"]) == (1, 0)
    assert store.get("key") == b"1"
    store.close()


def test_a_flush_that_fails_loses_nothing(tmp_path: Path) -> None:
    """The memtable and its log stay, the half segment goes, and the next flush does it."""
    store = SegmentStore(tmp_path / "s", fsync=False)
    store.put_many((f"key {n}", bytes(500)) for n in range(1000))
    with files_no_larger(100_000), pytest.raises(OSError, match="segment-"):
        store.flush()
    assert store.get("key 7") == bytes(500)
    assert not list((tmp_path / "s").glob("segment-*"))
    store.flush()
    assert (store.get("key 7"), store.stats()["segments"]) == (bytes(500), 1)
    store.close()


def test_puts_go_on_while_flushes_fail_and_stop_before_memory_ends(tmp_path: Path) -> None:
    """What is put is acknowledged by the log; `stats` has the failure."""
    store = SegmentStore(tmp_path / "s", fsync=False, memtable_bytes=100_000)
    (tmp_path / "s" / "segment-000002.sqlite").mkdir()  # where the segment is to be
    n = -1

    def put_more() -> None:
        nonlocal n
        for n in range(10_000):
            store.put(f"key {n}", bytes(1000))

    with pytest.raises(OSError, match="segment-"):
        put_more()
    assert store.stats()["failure"] is not None
    assert 300 < n < 400  # four times the memtable
    (tmp_path / "s" / "segment-000002.sqlite").rmdir()
    store.put("after", "x")
    assert store.stats()["failure"] is None
    assert all(store.get(f"key {i}") is not None for i in range(n))
    assert store.get(f"key {n}") is None
    store.close()


def test_threads_read_while_one_writes(tmp_path: Path) -> None:
    """Flushes and merges do not disturb readers: what was there before is there all the time."""
    store = SegmentStore(tmp_path / "s", fsync=False, memtable_bytes=40_000)
    store.put_many((f"key {n}", str(n)) for n in range(1000))
    done = threading.Event()
    wrong: list[int] = []

    def read() -> None:
        while not done.is_set():
            keys = range(0, 1000, 37)
            wrong.extend(n for n in keys if store.get(f"key {n}") != b"%d" % n)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(0, 6000, 50):
        store.put_many((f"more {n}", bytes(50)) for n in range(start, start + 50))
    store.compact()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    store.close()


def test_a_segment_is_a_file_that_anybody_can_open(tmp_path: Path) -> None:
    """It is SQLite, in the order of the keys."""
    filled(tmp_path / "s", 1, 10).close()
    (path,) = (tmp_path / "s").glob("*.sqlite")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT key, value FROM entries").fetchall()[3] == (
        b"0:3",
        b"value 3",
    )
    connection.close()
