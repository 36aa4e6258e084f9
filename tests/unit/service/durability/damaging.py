"""A folder of a server that was killed, ways to damage it, and starts that must be refused."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.durability import snapshots
from bloomery.service.durability.folder import log_folder
from bloomery.service.durability.recovery import recover
from bloomery.service.durability.segment import segment_path, segments
from unit.service.durability.serving import Server, hashes

Damage = Callable[[Path], None]


def filled(data: Path, rounds: int = 5) -> Server:
    """A server with two snapshots, and a log behind them: a closed segment and an open one."""
    server = Server(data)
    for name in ("one", "two"):
        server.create("counting", name, capacity=3000)
    for round in range(rounds):
        for number in (1, 2):
            for part in range(20):
                server.do(Op.ADD, number, hashes(100 * round + part, 3))
        if round in (0, 1):
            server.snapshot()
        else:
            server.log.cut()
            server.log.sync()
    for part in range(300):
        server.do(Op.ADD, 1, hashes(5000 + part, 1))
    return server


def contents(data: Path) -> dict[str, bytes]:
    """All that is in a folder, but for the index that SQLite makes anew and the lock."""
    kept = [path for path in data.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"]
    return {str(path.relative_to(data)): path.read_bytes() for path in kept}


def last(data: Path, suffix: str = "") -> Path:
    """The last segment, or what SQLite has beside it."""
    return Path(f"{segment_path(log_folder(data), segments(log_folder(data))[-1])}{suffix}")


def change(path: Path, at: int, flip: int = 0xFF) -> None:
    """Change one byte."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= flip
    path.write_bytes(raw)


def altered(data: Path, segment: int, statement: str) -> None:
    """Let a statement of SQL loose on a closed segment."""
    path = segment_path(log_folder(data), segment)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount > 0


def refused(data: Path) -> str:
    """Start where it must be refused, twice, which changes nothing; why."""
    before, whys = contents(data), []
    for _ in range(2):  # as `Restart=always` would
        with pytest.raises(errors.CorruptData) as caught:
            recover(data)
        whys.append(str(caught.value))
        assert contents(data) == before
    assert whys[0] == whys[1]
    return whys[0]


def without_wal(data: Path) -> None:
    """Lose the write-ahead file of the last segment."""
    last(data, "-wal").unlink()


def without_wal_and_index(data: Path) -> None:
    """Lose it with its index."""
    last(data, "-wal").unlink()
    last(data, "-shm").unlink()


def cut_wal(data: Path) -> None:
    """Lose its last bytes."""
    wal = last(data, "-wal")
    wal.write_bytes(wal.read_bytes()[:-100])


def without_last(data: Path) -> None:
    """Lose the last segment."""
    for suffix in ("-wal", "-shm", ""):
        last(data, suffix).unlink()


def without_middle(data: Path) -> None:
    """Lose a closed segment."""
    segment_path(log_folder(data), segments(log_folder(data))[-2]).unlink()


def swapped(data: Path) -> None:
    """Let two closed segments have each other's names."""
    one, other = (segment_path(log_folder(data), n) for n in segments(log_folder(data))[-3:-1])
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(raw)


def one_for_the_other(data: Path) -> None:
    """Let a closed segment be in the place of the next."""
    one, other = (segment_path(log_folder(data), n) for n in segments(log_folder(data))[-3:-1])
    shutil.copy(one, other)


def without_newest(data: Path) -> None:
    """Lose the newest snapshot, and the log since then."""
    number = snapshots.snapshot_numbers(data)[-1]
    shutil.rmtree(snapshots.folder_of(data, number))
    for one in segments(log_folder(data)):
        if one >= number:
            for path in log_folder(data).glob(f"{one:08}.*"):
                path.unlink()


def without_anything(data: Path) -> None:
    """Lose all snapshots and all of the log."""
    shutil.rmtree(log_folder(data))
    shutil.rmtree(data / "snapshots")


def without_rows(data: Path) -> None:
    """Lose rows in the middle."""
    altered(data, segments(log_folder(data))[-2], "DELETE FROM log WHERE seq % 7 = 3")


def without_the_end_of_a_segment(data: Path) -> None:
    """Lose the last rows of a closed segment."""
    altered(
        data,
        segments(log_folder(data))[-2],
        "DELETE FROM log WHERE seq > (SELECT max(seq) - 3 FROM log)",
    )


def no_segment(data: Path) -> None:
    """Have zeros in place of a segment."""
    path = segment_path(log_folder(data), segments(log_folder(data))[-2])
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES = [
    without_wal,
    without_wal_and_index,
    cut_wal,
    without_last,
    without_middle,
    swapped,
    one_for_the_other,
    without_newest,
    without_anything,
    without_rows,
    without_the_end_of_a_segment,
    no_segment,
]
