"""The log: written rows are read, damage is reported, and a write that failed never happened."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bloomery import _native, errors
from bloomery.service.durability.folder import FORMAT, segment_path, segments
from bloomery.service.durability.log import Fsync, Log
from bloomery.service.durability.log_reader import LogReader, Row
from limits import files_no_larger
from unit.service.durability.damaging import FRAME_HEAD, change, crc32c, frames

RECORDS = [(number % 3, 1, bytes([number % 256]) * 8 * (number % 50)) for number in range(300)]
POLICIES: tuple[Fsync, ...] = ("always", "everysec", "never")
FULL = "No space left"


def read(
    folder: Path, first: int = 1, seq: int = 0, *, salvage: bool = False
) -> tuple[list[Row], list[str]]:
    """All rows, and what was wrong."""
    reader = LogReader(folder, first, seq, salvage=salvage)
    rows = list(reader)
    return rows, [*reader.problems, *([reader.tail] if reader.tail else [])]


def written(folder: Path, cuts: int = 0) -> list[Row]:
    """Write RECORDS, one in each commit, and return the rows; in `cuts` + 1 segments."""
    log = Log(folder)
    for number, record in enumerate(RECORDS):
        log.append([record], float(number))
        if cuts and number % (len(RECORDS) // (cuts + 1)) == 0 and number:
            log.cut()
    log.close()
    return [(n + 1, float(n), *record) for n, record in enumerate(RECORDS)]


@contextlib.contextmanager
def instead_of(log: Log, other: str) -> Iterator[None]:
    """Let the log write to another file than its segment: one that the kernel refuses to write or
    to sync. The descriptor is restored at the end."""
    ours = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == str(log.path.resolve()):
                ours.append(int(name))
    (descriptor,) = ours
    before, broken = os.dup(descriptor), os.open(other, os.O_RDWR)
    os.dup2(broken, descriptor)
    try:
        yield
    finally:
        os.dup2(before, descriptor)
        os.close(before)
        os.close(broken)


@pytest.mark.parametrize("fsync", POLICIES)
def test_appended_rows_are_read(tmp_path: Path, fsync: Fsync) -> None:
    """Every record is there, in order, before the log is closed and after."""
    log = Log(tmp_path, fsync=fsync)
    log.append(RECORDS[:5], 1.5)
    log.append([], 1.5)
    log.append(RECORDS[5:6], 2.5)
    rows = [(n + 1, 1.5 if n < 5 else 2.5, *record) for n, record in enumerate(RECORDS[:6])]
    assert read(tmp_path) == (rows, [])
    log.sync()
    log.close()
    assert read(tmp_path) == (rows, [])
    assert [path.name for path in tmp_path.iterdir()] == ["00000001.log"]
    assert [len(part) - FRAME_HEAD for part in frames(segment_path(tmp_path, 1))[1:]] == [
        sum(21 + len(data) for _, _, data in RECORDS[:5]),
        21 + len(RECORDS[5][2]),
    ]


def test_segments_follow_each_other(tmp_path: Path) -> None:
    """A cut starts a new segment, and the numbers of rows continue."""
    log = Log(tmp_path)
    log.append(RECORDS[:2], 1.0)
    assert log.cut() == 2
    log.append(RECORDS[2:3], 2.0)
    log.sync()
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


def test_the_format_is_that_of_the_page(tmp_path: Path) -> None:
    """The bytes are as docs/format.md has them."""
    log = Log(tmp_path, segment=7, seq=41, fsync="never")
    log.append([(5, 1, b"12345678"), (2**52, 3, b"{}")], 1.5)
    log.close()
    header, frame = frames(segment_path(tmp_path, 7))
    salt = header[12:16]
    expected = b"bloomlog" + FORMAT.to_bytes(4, "little") + salt
    expected += (7).to_bytes(8, "little") + (42).to_bytes(8, "little")
    assert header == expected + crc32c(expected).to_bytes(4, "little")
    time_bytes = bytes.fromhex("000000000000f83f")
    body = time_bytes + (5).to_bytes(8, "little") + b"\1" + (8).to_bytes(4, "little") + b"12345678"
    body += time_bytes + (2**52).to_bytes(8, "little") + b"\3" + (2).to_bytes(4, "little") + b"{}"
    rest = len(body).to_bytes(8, "little") + (42).to_bytes(8, "little") + body
    assert frame == crc32c(salt + rest).to_bytes(4, "little") + rest


# A write that fails.


@pytest.mark.parametrize("fsync", POLICIES)
def test_a_refused_write_never_happened(tmp_path: Path, fsync: Fsync) -> None:
    """After an error nothing of the batch is read, now or later; the next write follows the last
    one that succeeded, with its number."""
    log = Log(tmp_path, fsync=fsync)
    log.append(RECORDS[:1], 1.0)
    with files_no_larger(8192):
        with pytest.raises(errors.LogUnavailable, match="nothing was written"):
            log.append([(1, 1, b"12345678"), (1, 1, bytes(50_000))], 2.0)
        assert (log.seq, read(tmp_path)) == (1, ([(1, 1.0, *RECORDS[0])], []))
        assert not log.retry()
        log.append(RECORDS[1:2], 3.0)
    assert log.retry()
    log.append(RECORDS[2:3], 4.0)
    log.close()
    rows = [(n + 1, at, *RECORDS[n]) for n, at in enumerate([1.0, 3.0, 4.0])]
    assert read(tmp_path) == (rows, [])


@pytest.mark.parametrize("fsync", POLICIES)
def test_a_segment_that_cannot_be_truncated(tmp_path: Path, fsync: Fsync) -> None:
    """A write fails and its segment can neither be truncated nor overwritten: the log continues in
    another one."""
    log = Log(tmp_path, fsync=fsync)
    log.append(RECORDS[:1], 1.0)
    with instead_of(log, "/dev/full"), pytest.raises(errors.LogUnavailable, match=FULL):
        log.append(RECORDS[1:2], 2.0)
    assert (log.segment, log.seq) == (2, 1)
    log.append(RECORDS[2:3], 3.0)
    log.close()
    assert read(tmp_path) == ([(1, 1.0, *RECORDS[0]), (2, 3.0, *RECORDS[2])], [])


def test_a_refused_write_that_could_not_be_removed(tmp_path: Path) -> None:
    """A batch that was refused, and is whole in a segment that had to be left, is not read: the
    next segment continues with its number."""
    log = Log(tmp_path)
    log.append(RECORDS[:1], 1.0)
    log.append(RECORDS[1:3], 2.0)
    log.close()
    left = Log(tmp_path, segment=2, seq=1)
    left.append(RECORDS[3:4], 3.0)
    left.close()
    rows = [(1, 1.0, *RECORDS[0]), (2, 3.0, *RECORDS[3])]
    assert read(tmp_path) == (rows, [])
    assert read(tmp_path, salvage=True) == (rows, [])


def test_a_write_that_is_not_synced_is_refused(tmp_path: Path) -> None:
    """With fsync="always", a write whose sync fails is refused and not read, and the log continues
    in another segment."""
    log = Log(tmp_path, fsync="always")
    log.append(RECORDS[:1], 1.0)
    with instead_of(log, "/dev/null"), pytest.raises(errors.LogUnavailable, match="nothing was"):
        log.append(RECORDS[1:2], 2.0)
    assert (log.segment, log.seq) == (2, 1)
    log.append(RECORDS[2:3], 3.0)
    log.flush()
    log.close()
    assert read(tmp_path) == ([(1, 1.0, *RECORDS[0]), (2, 3.0, *RECORDS[2])], [])


def test_a_full_disk_heals(small_disk: Path) -> None:
    """On a full disk appends fail with one error; once there is room they succeed, no row lost."""
    log = Log(small_disk / "log")
    (small_disk / "ballast").write_bytes(bytes(400_000))
    done = 0
    with pytest.raises(errors.LogUnavailable, match=FULL):  # noqa: PT012
        while True:
            log.append([(1, 1, bytes(4000))], 1.0)
            done += 1
    assert done > 10
    assert not log.retry()
    assert log.segment == 1
    with pytest.raises(errors.LogUnavailable, match=FULL):
        log.append([(1, 1, bytes(40_000))], 1.0)
    assert read(small_disk / "log", salvage=True)[1] == []
    (small_disk / "ballast").unlink()
    assert log.retry()
    log.append([(2, 1, b"last")], 2.0)
    rows, problems = read(small_disk / "log")
    assert (len(rows), rows[-1][2:], problems) == (done + 1, (2, 1, b"last"), [])
    log.close()


# A sync that fails.


def test_a_segment_that_could_not_be_synced_is_left(tmp_path: Path) -> None:
    """After a failed sync nothing is written to the segment any more. The log continues in a new
    one, the old one is written again to another file, and all rows are read."""
    log = Log(tmp_path)
    log.append(RECORDS[:1], 1.0)
    file = segment_path(tmp_path, 1).stat().st_ino
    with instead_of(log, "/dev/null"):
        for _ in range(2):  # the second time the kernel might report success
            with pytest.raises(errors.LogUnavailable, match="power cut"):
                log.sync()
    with pytest.raises(errors.LogUnavailable, match="sync failed"):
        log.sync()
    with pytest.raises(errors.LogUnavailable, match="nothing was written"):
        log.append(RECORDS[1:2], 2.0)
    assert log.retry()
    assert log.segment == 2
    assert segment_path(tmp_path, 1).stat().st_ino != file
    log.append(RECORDS[1:2], 2.0)
    log.close()
    assert read(tmp_path) == ([(1, 1.0, *RECORDS[0]), (2, 2.0, *RECORDS[1])], [])
    assert len(list(tmp_path.iterdir())) == 2


def test_a_segment_that_cannot_be_read_back(tmp_path: Path) -> None:
    """Rows that may not be on the disk, and cannot be read back, are not taken for safe."""
    log = Log(tmp_path)
    log.append(RECORDS[10:20], 1.0)
    with instead_of(log, "/dev/null"), pytest.raises(errors.LogUnavailable):
        log.flush()
    change(segment_path(tmp_path, 1), 200)
    assert not log.retry()
    assert log.is_late(time.monotonic() + 3)
    with pytest.raises(errors.LogUnavailable, match="cannot be read back"):
        log.close()


def test_a_log_that_cannot_be_closed_releases_its_files(tmp_path: Path) -> None:
    """The error at the end says what may be lost, and the files are closed."""
    before = len(os.listdir("/proc/self/fd"))
    log = Log(tmp_path)
    log.append(RECORDS[:1], 1.0)
    with instead_of(log, "/dev/null"), pytest.raises(errors.LogUnavailable):
        log.flush()
    segment_path(tmp_path, 1).write_bytes(b"")
    with pytest.raises(errors.LogUnavailable, match="power cut"):
        log.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(errors.LogUnavailable, match="closed"):
        log.append(RECORDS[1:2], 1.0)


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
    with instead_of(log, "/dev/null"), pytest.raises(errors.LogUnavailable):
        log.flush()
    assert log.is_late(time.monotonic() + 3)
    assert log.retry()
    assert log.unsynced(time.monotonic() + 100) == 0
    log.close()
    for fsync in ("always", "never"):
        other = Log(tmp_path / fsync, fsync=fsync)
        other.append(RECORDS[:1], 1.0)
        assert not other.is_late(time.monotonic() + 100)
        other.close()


# Damage. `cargo test -p bloomery-server` flips and cuts every byte.


@pytest.mark.parametrize("salvage", [False, True])
def test_damaged_rows(tmp_path: Path, salvage: bool) -> None:
    """Rows are read up to the first that is damaged, and with `salvage` all others; each damage is
    reported in either case."""
    rows = written(tmp_path)
    path = segment_path(tmp_path, 1)
    parts = frames(path)
    for number in (10, 20, 21):
        parts[number] = parts[number][:-1] + bytes([parts[number][-1] ^ 1])
    path.write_bytes(b"".join(parts))
    found, problems = read(tmp_path, salvage=salvage)
    lost = {10, 20, 21}
    assert found == [row for row in rows if row[0] < 10 or (salvage and row[0] not in lost)]
    assert [problem.rpartition(": ")[2] for problem in problems] == [
        "operations 10 to 10 are lost",
        "operations 20 to 21 are lost",
    ]


def test_missing_rows(tmp_path: Path) -> None:
    """Rows that were removed are reported by number."""
    rows = written(tmp_path)
    path = segment_path(tmp_path, 1)
    parts = frames(path)
    path.write_bytes(b"".join([*parts[:10], *parts[13:]]))
    found, problems = read(tmp_path, salvage=True)
    assert found == [row for row in rows if not 10 <= row[0] <= 12]
    assert problems == [f"{path}: operations 10 to 12 are lost"]


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    """A segment that is missing is named, and a salvage reads the others."""
    rows = written(tmp_path, cuts=2)
    segment_path(tmp_path, 2).unlink()
    found, problems = read(tmp_path, salvage=True)
    assert 0 < len(found) < len(rows)
    assert "no 00000002.log" in problems[0]


@pytest.mark.parametrize("raw", [b"", b"nonsense", bytes(5000), b"bloomlog" + bytes(5000)])
def test_a_file_that_is_not_a_segment(tmp_path: Path, raw: bytes) -> None:
    """A file that is not a segment is one problem, and a salvage reads the others."""
    written(tmp_path, cuts=1)
    segment_path(tmp_path, 1).write_bytes(raw)
    found, problems = read(tmp_path, salvage=True)
    assert found
    assert "nothing of it can be read" in problems[0]


def test_a_killed_log_is_complete(tmp_path: Path) -> None:
    """A reader finds everything that a killed process wrote, and changes nothing."""
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
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_threads_that_write_cut_and_flush(tmp_path: Path) -> None:
    """Whenever the log is cut or flushed while another thread writes: nothing fails, and all rows
    are read in order."""
    log = Log(tmp_path)
    over = threading.Event()
    failed: list[BaseException] = []

    def repeat(work: object) -> None:
        try:
            while not over.is_set():
                work()  # type: ignore[operator]
        except BaseException as problem:  # noqa: BLE001
            failed.append(problem)

    threads = [threading.Thread(target=repeat, args=[work]) for work in (log.cut, log.flush)]
    for thread in threads:
        thread.start()
    number = rows_written = 0
    while number < 3000 or len(segments(tmp_path)) <= 10:
        log.write([(float(number), 1, 1, b"x")] * (number % 3))
        rows_written += number % 3
        number += 1
    over.set()
    for thread in threads:
        thread.join()
    log.flush()
    assert (failed, log.unsynced(time.monotonic())) == ([], 0.0)
    log.close()
    rows, problems = read(tmp_path)
    assert ([row[0] for row in rows], problems) == ([*range(1, rows_written + 1)], [])


def test_the_version_has_one_definition() -> None:
    """Segments and control files have the same version."""
    assert FORMAT == _native.LOG_FORMAT == 3
