"""The log: what was appended is there, and what is damaged is said."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.durability.log import Log
from bloomery.service.durability.log_reader import LogReader, Row
from bloomery.service.durability.segment import segment_path, segments
from limits import files_no_larger

RECORDS = [(number % 3, 1, bytes([number % 256]) * 8 * (number % 50)) for number in range(300)]


def read(folder: Path, first: int = 1, seq: int = 0) -> tuple[list[Row], list[str]]:
    """All rows, and what was wrong."""
    reader = LogReader(folder, first, seq)
    return list(reader), reader.problems


def written(folder: Path, cuts: int = 0) -> list[Row]:
    """A closed log of RECORDS, in as many segments and one more; its rows."""
    log = Log(folder)
    for number, record in enumerate(RECORDS):
        log.append([record], float(number))
        if cuts and number % (len(RECORDS) // (cuts + 1)) == 0 and number:
            log.cut()
    log.close()
    return [(n + 1, float(n), *record) for n, record in enumerate(RECORDS)]


@pytest.mark.parametrize("fsync", ["always", "everysec", "never"])
def test_what_was_appended_is_read(tmp_path: Path, fsync: str) -> None:
    """Every record is there, in order, before the log is closed and after."""
    log = Log(tmp_path, fsync=fsync)  # type: ignore[arg-type]
    log.append(RECORDS[:5], 1.5)
    log.append([], 1.5)
    log.append(RECORDS[5:6], 2.5)
    rows = [(n + 1, 1.5 if n < 5 else 2.5, *record) for n, record in enumerate(RECORDS[:6])]
    assert read(tmp_path) == (rows, [])
    log.sync()
    log.close()
    assert read(tmp_path) == (rows, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001.sqlite"]


def test_segments_follow_each_other(tmp_path: Path) -> None:
    """A cut begins a new segment, the old one is closed by a sync, and rows count on."""
    log = Log(tmp_path)
    log.append(RECORDS[:2], 1.0)
    assert log.cut() == 2
    log.append(RECORDS[2:3], 2.0)
    log.sync()
    assert not Path(f"{segment_path(tmp_path, 1)}-wal").exists()
    rows, problems = read(tmp_path, 2, 2)
    assert ([row[0] for row in rows], problems) == ([3], [])
    log.close()
    with pytest.raises(errors.LogUnavailable, match="already"):
        Log(tmp_path, segment=2)


def test_large_segments_are_cut(tmp_path: Path) -> None:
    """A segment that has become large is followed by another, and no row is lost."""
    log = Log(tmp_path, segment_bytes=1 << 16)
    for number in range(1000):
        log.append([(1, 1, bytes(400))], float(number))
    log.close()
    assert len(segments(tmp_path)) > 1
    rows, problems = read(tmp_path)
    assert (len(rows), problems) == (1000, [])


def test_fsync_must_be_known(tmp_path: Path) -> None:
    """Another word than the three is an error that names them."""
    with pytest.raises(errors.InvalidParameter, match="always, everysec, never"):
        Log(tmp_path, fsync="sometimes")  # type: ignore[arg-type]


def test_what_cannot_be_written_waits(tmp_path: Path) -> None:
    """A log that cannot be written keeps the records; they come first once it can."""
    log = Log(tmp_path)
    log.append(RECORDS[:1], 1.0)
    with files_no_larger(8192):
        with pytest.raises(errors.LogUnavailable, match="wait until"):
            log.append([(1, 1, bytes(50_000)), (2, 1, b"12345678")], 2.0)
        with pytest.raises(errors.LogUnavailable, match="3 operations"):
            log.append(RECORDS[1:2], 3.0)
        assert not log.retry()
    assert len(log.pending) == 3
    assert read(tmp_path)[0] == [(1, 1.0, *RECORDS[0])]
    log.append(RECORDS[2:3], 4.0)
    assert log.pending == []
    log.close()
    rows, problems = read(tmp_path)
    assert ([row[:3] for row in rows[1:4]], problems) == (
        [(2, 2.0, 1), (3, 2.0, 2), (4, 3.0, 1)],
        [],
    )
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5]


def test_a_full_disk_heals(small_disk: Path) -> None:
    """On a full disk appends fail with one error; once there is room they go on, no row lost."""
    log = Log(small_disk / "log")
    (small_disk / "ballast").write_bytes(bytes(400_000))
    done = 0
    with contextlib.suppress(errors.LogUnavailable):
        while True:
            log.append([(1, 1, bytes(400))], 1.0)
            done += 1
    with pytest.raises(errors.LogUnavailable, match="full"):
        log.append([], 1.0)
    assert not log.retry()
    with pytest.raises(errors.LogUnavailable):
        log.cut()
    (small_disk / "ballast").unlink()
    assert log.retry()
    log.append([(2, 1, b"last")], 2.0)
    rows, problems = read(small_disk / "log")
    assert (len(rows), rows[-1][2:], problems) == (done + 2, (2, 1, b"last"), [])
    log.close()


def test_a_damaged_row_is_left_out(tmp_path: Path) -> None:
    """A row that is not as it was written is left out and said, and all others are read."""
    rows = written(tmp_path)
    path = segment_path(tmp_path, 1)
    raw = path.read_bytes()
    damaged = rows[-1][4]
    assert raw.count(damaged) == 1
    path.write_bytes(raw.replace(damaged, b"X" + damaged[1:]))
    found, problems = read(tmp_path)
    assert found == rows[:-1]
    assert problems == [f"{path}: row {len(rows)} is damaged"]


def test_a_missing_row_is_said(tmp_path: Path) -> None:
    """Rows that somebody deleted are said to be missing, by number."""
    rows = written(tmp_path)
    with contextlib.closing(sqlite3.connect(segment_path(tmp_path, 1))) as connection, connection:
        connection.execute("DELETE FROM log WHERE seq BETWEEN 10 AND 12")
    found, problems = read(tmp_path)
    assert found == [row for row in rows if not 10 <= row[0] <= 12]
    assert problems == [f"{segment_path(tmp_path, 1)}: rows 10 to 12 are missing"]


def test_a_log_without_its_end_is_read_up_to_there(tmp_path: Path) -> None:
    """Of a closed segment that was cut off, the rows whose pages are left are read."""
    rows = written(tmp_path)
    path = segment_path(tmp_path, 1)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    found, problems = read(tmp_path)
    assert len(rows) // 3 < len(found) < len(rows)
    assert found == [row for row in rows if row in found]
    assert "its end is missing" in problems[0]


def test_rows_around_a_damaged_page_are_read(tmp_path: Path) -> None:
    """A page that is damaged takes its own rows with it, and no others."""
    rows = written(tmp_path)
    path = segment_path(tmp_path, 1)
    raw = bytearray(path.read_bytes())
    for page in (10, 20):
        raw[2048 * page : 2048 * page + 8] = b"\xff" * 8
    path.write_bytes(raw)
    found, problems = read(tmp_path)
    assert len(rows) - 30 < len(found) < len(rows)
    assert set(found) < set(rows)
    assert problems


def test_a_missing_segment_is_said(tmp_path: Path) -> None:
    """A segment that is gone is named, and the others are read."""
    rows = written(tmp_path, cuts=2)
    segment_path(tmp_path, 2).unlink()
    found, problems = read(tmp_path)
    assert 0 < len(found) < len(rows)
    assert "no 00000002.sqlite" in problems[0]
    assert len(problems) == 2


@pytest.mark.parametrize("raw", [b"", b"nonsense", bytes(5000), b"SQLite format 3\0" + bytes(5000)])
def test_what_is_no_segment_is_said(tmp_path: Path, raw: bytes) -> None:
    """A file that is not a segment at all is one problem, and the others are read."""
    written(tmp_path, cuts=1)
    segment_path(tmp_path, 1).write_bytes(raw)
    found, problems = read(tmp_path)
    assert found
    assert "nothing of it can be read" in problems[0]


def test_another_table_is_not_read(tmp_path: Path) -> None:
    """A database whose `log` is something else, an endless view say, is refused."""
    path = segment_path(tmp_path, 1)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE VIEW log AS WITH RECURSIVE n(seq, at, filter, op, data, sum) AS "
            "(SELECT 1,1,1,1,1,1 UNION ALL SELECT seq+1,1,1,1,1,1 FROM n) SELECT * FROM n"
        )
    found, problems = read(tmp_path)
    assert (found, len(problems)) == ([], 1)


def test_a_killed_log_is_whole(tmp_path: Path) -> None:
    """What a killed process appended is all there, and nothing is written while it is read."""
    program = (
        "import os, sys; from bloomery.service.durability.log import Log; log = Log(sys.argv[1])\n"
        "for n in range(500): log.append([(1, 1, bytes(8 * n))], 1.0)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    assert done.returncode == -9
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    rows, problems = read(tmp_path)
    assert ([len(row[4]) for row in rows], problems) == ([8 * n for n in range(500)], [])
    assert {path: path.read_bytes() for path in before if path.suffix != ".sqlite-shm"} == {
        path: raw for path, raw in before.items() if path.suffix != ".sqlite-shm"
    }


def wal_of(log: Log) -> int:
    """The descriptor of the file that is written now."""
    return log._current.wal


def test_a_segment_that_could_not_be_synced_is_left(tmp_path: Path) -> None:
    """After a sync that failed the log goes on in a new segment, and all rows are read."""
    log = Log(tmp_path)
    log.append(RECORDS[:1], 1.0)
    reading, writing = os.pipe()
    os.dup2(writing, wal_of(log))  # a pipe cannot be synced
    with pytest.raises(errors.LogUnavailable, match="power cut"):
        log.sync()
    assert log.retry()
    assert log.segment == 2
    log.append(RECORDS[1:2], 2.0)
    log.close()
    os.close(reading)
    os.close(writing)
    assert read(tmp_path) == ([(1, 1.0, *RECORDS[0]), (2, 2.0, *RECORDS[1])], [])


def test_a_segment_that_cannot_be_closed_is_kept(tmp_path: Path) -> None:
    """An old segment that cannot be folded is read all the same, and folded once it can be."""
    log = Log(tmp_path)
    log.append([(1, 1, bytes(50_000))], 1.0)
    log.cut()
    log.append(RECORDS[:1], 2.0)
    wal = Path(f"{segment_path(tmp_path, 1)}-wal")
    with files_no_larger(8192):
        log.sync()
        assert str(segment_path(tmp_path, 1)) in str(log.unfolded)
        assert log.unclosed
    assert wal.exists()
    rows, problems = read(tmp_path)
    assert ([row[0] for row in rows], problems) == ([1, 2], [])
    log.sync()
    assert (log.unfolded, log.unclosed) == (None, False)
    assert not wal.exists()
    log.close()
    assert [row[0] for row in read(tmp_path)[0]] == [1, 2]


def test_a_log_that_cannot_be_closed_says_so(tmp_path: Path) -> None:
    """At the end, what cannot be written is one error that counts it, what cannot be folded is one
    that says that nothing is lost, and the files are let go of in either case."""
    before = len(os.listdir("/proc/self/fd"))
    for number, pending in enumerate([False, True]):
        folder = tmp_path / str(number)
        log = Log(folder)
        log.append([(1, 1, bytes(50_000))], 1.0)
        with files_no_larger(8192):
            if pending:
                with pytest.raises(errors.LogUnavailable):
                    log.append([(1, 1, bytes(50_000))], 2.0)
            text = "1 operations are lost" if pending else "nothing is lost"
            with pytest.raises(errors.LogUnavailable, match=text):
                log.close()
        assert [row[0] for row in read(folder)[0]] == [1]
    assert len(os.listdir("/proc/self/fd")) == before


def test_how_late_the_disk_is(tmp_path: Path) -> None:
    """The oldest write that is not on the disk tells; once all are, nothing does."""
    log = Log(tmp_path)
    assert log.unsynced(time.monotonic() + 100) == 0
    before = time.monotonic()
    log.append(RECORDS[:1], 1.0)
    assert 100 - (time.monotonic() - before) <= log.unsynced(before + 100) <= 100
    assert log.is_late(time.monotonic() + 3)
    assert not log.is_late(before + 1)
    log.append(RECORDS[1:2], 1.0)  # a later one does not make it younger
    assert log.unsynced(before + 100) > 100 - (time.monotonic() - before)
    log.flush()
    assert log.unsynced(time.monotonic() + 100) == 0
    log.append(RECORDS[2:3], 1.0)
    reading, writing = os.pipe()
    os.dup2(writing, wal_of(log))  # a pipe cannot be synced
    for _ in range(2):  # the second time the kernel might say that all is well
        with pytest.raises(errors.LogUnavailable):
            log.flush()
    assert log.is_late(time.monotonic() + 3)
    assert log.retry()
    assert log.unsynced(time.monotonic() + 100) == 0
    log.close()
    os.close(reading)
    os.close(writing)
    for fsync in ("always", "never"):
        other = Log(tmp_path / fsync, fsync=fsync)
        other.append(RECORDS[:1], 1.0)
        assert not other.is_late(time.monotonic() + 100)
        other.close()


@pytest.mark.slow
def test_a_cut_at_any_line_of_a_sync(tmp_path: Path) -> None:
    """Whenever the log is cut while another thread syncs it: nothing fails, each segment is closed
    once, and no row is lost."""
    before = sys.gettrace()
    for line in range(1, 1000):
        folder = tmp_path / str(line)
        log = Log(folder)
        log.append(RECORDS[:1], 1.0)
        log.cut()
        log.append(RECORDS[1:2], 1.0)
        seen = 0

        def cut(log: Log = log) -> None:
            log.cut()
            log.append(RECORDS[2:3], 1.0)

        thread = threading.Thread(target=cut)

        def trace(
            frame: FrameType,
            event: str,
            _: object,
            thread: threading.Thread = thread,
            line: int = line,
        ) -> Any:
            nonlocal seen
            if frame.f_code.co_filename != sys.modules[Log.__module__].__file__:
                return None
            seen += event == "line"
            if seen == line and thread.ident is None:
                thread.start()
                thread.join(0.1)  # it may have to wait for us
            return trace

        sys.settrace(trace)
        try:
            log.sync()
        finally:
            sys.settrace(before)
        if seen < line:
            break
        thread.join()
        log.sync()
        left = [path.name for path in folder.glob("*-wal")]
        log.close()
        assert left == [f"{segment_path(folder, 3).name}-wal"], line
        rows, problems = read(folder)
        assert ([row[0] for row in rows], problems) == ([1, 2, 3], []), line
    assert 10 < line < 1000
    log.close()
