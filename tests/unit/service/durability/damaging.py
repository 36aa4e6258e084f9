"""A folder of a server that was killed, ways to damage it, and starts that must be refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.durability import snapshots
from bloomery.service.durability.folder import log_folder, segment_path, segments
from bloomery.service.durability.recovery import recover
from unit.service.durability.serving import Server, hashes

Damage = Callable[[Path], None]
HEADER, FRAME_HEAD = 36, 20  # bytes


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
    """Everything in a folder."""
    kept = [path for path in data.rglob("*") if path.is_file()]
    return {str(path.relative_to(data)): path.read_bytes() for path in kept}


def last(data: Path) -> Path:
    """The last segment."""
    return segment_path(log_folder(data), segments(log_folder(data))[-1])


def change(path: Path, at: int, flip: int = 0xFF) -> None:
    """Change one byte."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= flip
    path.write_bytes(raw)


def frames(path: Path) -> list[bytes]:
    """The header of a segment, and its frames: one for each commit."""
    raw = path.read_bytes()
    parts, at = [raw[:HEADER]], HEADER
    while at < len(raw):
        end = at + FRAME_HEAD + int.from_bytes(raw[at + 4 : at + 12], "little")
        parts.append(raw[at:end])
        at = end
    assert sum(map(len, parts)) == len(raw)
    return parts


def crc32c(data: bytes) -> int:
    """The checksum of headers and frames, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


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


def without_last_frame(data: Path) -> None:
    """Lose the last commit."""
    last(data).write_bytes(b"".join(frames(last(data))[:-1]))


def cut_off(data: Path) -> None:
    """Lose its last bytes."""
    last(data).write_bytes(last(data).read_bytes()[:-10])


def without_frames(data: Path) -> None:
    """Lose everything of the last segment but its header."""
    last(data).write_bytes(frames(last(data))[0])


def without_last(data: Path) -> None:
    """Lose the last segment."""
    last(data).unlink()


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
    path = segment_path(log_folder(data), segments(log_folder(data))[-2])
    path.write_bytes(b"".join(part for at, part in enumerate(frames(path)) if at % 7 != 3))


def doubled_rows(data: Path) -> None:
    """Have rows twice, and others not at all."""
    parts = frames(last(data))
    last(data).write_bytes(b"".join([*parts[:50], parts[49], *parts[51:]]))


def without_the_end_of_a_segment(data: Path) -> None:
    """Lose the last rows of a closed segment."""
    path = segment_path(log_folder(data), segments(log_folder(data))[-2])
    path.write_bytes(b"".join(frames(path)[:-3]))


def no_segment(data: Path) -> None:
    """Have zeros in place of a segment."""
    path = segment_path(log_folder(data), segments(log_folder(data))[-2])
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES = [
    without_last_frame,
    cut_off,
    without_frames,
    without_last,
    without_middle,
    swapped,
    one_for_the_other,
    without_newest,
    without_anything,
    without_rows,
    doubled_rows,
    without_the_end_of_a_segment,
    no_segment,
]
