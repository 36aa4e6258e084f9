"""The control file: how far the log was written and synced, so that the torn tail of a power cut is
told from damage; and versions of data folders."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.durability import control, quarantine, segment, snapshots
from bloomery.service.durability.control import ControlFile, control_file
from bloomery.service.durability.folder import FORMAT, log_folder
from bloomery.service.durability.recovery import recover
from bloomery.service.durability.segment import segment_path, segments
from unit.service.durability.damaging import (
    Damage,
    change,
    cut_wal,
    filled,
    last,
    refused,
    without_wal,
)
from unit.service.durability.serving import Server, assert_same, hashes

# A power cut.


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the machine have been started anew."""
    return lambda: monkeypatch.setattr(control, "boot_id", lambda: b"another boot id.")


def torn(data: Path, rows: int) -> None:
    """Lose the end of the write-ahead file of the last segment: so many commits of one page each,
    in the middle of which a sector of zeros is left."""
    wal = last(data, "-wal")
    raw = bytearray(wal.read_bytes())
    page = 24 + 2048
    raw[-rows * page : -rows * page + 512] = bytes(512)
    wal.write_bytes(raw)


def test_the_torn_tail_of_a_power_cut(tmp_path: Path, reboot: Callable[[], None]) -> None:
    """What was not synced may be torn or gone when the machine went down, and only then: it starts
    with all that was synced, and says how much is lost."""
    server = Server(tmp_path / "data", fsync="everysec")
    number = server.create("counting", capacity=3000)
    for part in range(100):
        server.do(Op.ADD, number, hashes(part, 1))
    server.log.sync()
    synced = server.log.seq
    expected = recover(server.killed(tmp_path / "synced")).state
    for part in range(10):
        server.do(Op.ADD, number, hashes(1000 + part, 1))
    data = server.killed(tmp_path / "copy")
    torn(data, 10)
    assert "--accept-loss" in refused(data)
    reboot()
    found = recover(data)
    assert found.seq >= synced
    assert_same(found.state, expected)
    lost = server.log.seq - found.seq
    assert lost == 10
    assert any(f"the last {lost} were not synced" in problem for problem in found.problems)
    assert quarantine.find(data) == []
    assert recover(data).problems == []
    server.log.close()


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_what_was_synced_is_no_torn_tail(
    tmp_path: Path, reboot: Callable[[], None], fsync: str
) -> None:
    """A power cut takes nothing that was synced: if that is gone the start is refused."""
    server = Server(tmp_path / "data", fsync=fsync)  # type: ignore[arg-type]
    number = server.create("counting", capacity=3000)
    for part in range(100):
        server.do(Op.ADD, number, hashes(part, 1))
    if fsync == "everysec":
        server.log.sync()
    data = server.killed(tmp_path / "copy")
    torn(data, 1)
    reboot()
    assert "--accept-loss" in refused(data)
    server.log.close()


def test_a_segment_that_never_reached_the_disk(tmp_path: Path, reboot: Callable[[], None]) -> None:
    """A segment that was begun just before a power cut may be empty, or not there."""
    server = filled(tmp_path / "data")
    server.log.cut()
    server.log.close()
    for name, how in (("empty", lambda path: path.write_bytes(b"")), ("gone", Path.unlink)):
        data = server.killed(tmp_path / name)
        how(last(data))
        reboot()
        assert_same(recover(data).state, server.state)


# Versions.


def test_the_control_file(tmp_path: Path) -> None:
    """It says how far the log was written, exactly, and synced; a number that was left half stored
    is not taken, and one that is damaged twice is refused."""
    server = filled(tmp_path / "data")
    seq = server.log.seq
    assert ControlFile.read(server.data) == ControlFile(written=seq, synced=0, rebooted=False)
    data = server.killed(tmp_path / "copy")
    raw = control_file(data).read_bytes()
    place = 512 if int.from_bytes(raw[512:520], "little") == seq else 1024
    change(control_file(data), place)
    found = ControlFile.read(data)
    assert found is not None
    assert found.written == seq - 1
    assert_same(recover(data).state, server.state)
    change(control_file(data), 1536 - place)
    assert "control" in refused(data)
    server.log.close()


@pytest.mark.parametrize("how", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_without_the_control_file(tmp_path: Path, how: Damage) -> None:
    """A folder whose control file is gone is not taken for one of version 1."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    how(control_file(data))
    assert "control" in refused(data)
    assert_same(recover(data, accept_loss=True).state, server.state)
    server.log.close()


def test_a_newer_folder(tmp_path: Path) -> None:
    """A folder of a newer version is refused with both versions, whatever is accepted."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    raw = bytearray(control_file(data).read_bytes())
    raw[8:12] = (FORMAT + 7).to_bytes(4, "little")
    raw[32:36] = zlib.crc32(raw[:32]).to_bytes(4, "little")
    control_file(data).write_bytes(raw)
    for accept_loss in (False, True):
        with pytest.raises(errors.UnsupportedVersion, match=rf"{FORMAT + 7}.*up to {FORMAT}"):
            recover(data, accept_loss=accept_loss)
    server.log.close()


def test_a_newer_segment(tmp_path: Path) -> None:
    """So is a folder with a segment of a newer version."""
    server = filled(tmp_path)
    server.log.close()
    path = segment_path(log_folder(tmp_path), segments(log_folder(tmp_path))[-2])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version={FORMAT + 7}")
    why = refused(tmp_path)
    assert f"version {FORMAT + 7}" in why
    assert f"up to {FORMAT}" in why


def test_a_newer_manifest(tmp_path: Path) -> None:
    """A snapshot of a newer version is refused, and not passed over for the one before."""
    server = filled(tmp_path)
    server.log.close()
    newest = snapshots.snapshot_numbers(tmp_path)[-1]
    path = snapshots.folder_of(tmp_path, newest) / snapshots.MANIFEST
    body = json.loads(path.read_bytes())["manifest"] | {"format": 9}
    path.write_text(json.dumps({"manifest": body, "checksum": snapshots.manifest_sum(body)}))
    assert "version 9, and this bloomery knows 1" in refused(tmp_path)


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Server, Path]:
    """A server of version 1, from before there were versions, and its folder when it is killed."""
    with monkeypatch.context() as before:
        before.setattr(segment, "FORMAT", 0)
        server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    control_file(data).unlink()
    return server, data


def test_version_1_is_upgraded(older: tuple[Server, Path]) -> None:
    """A folder of before is taken as it is, and is one of this version from then on."""
    server, data = older
    upgraded = Server(data)
    assert upgraded.recovery.problems == []
    assert_same(upgraded.state, server.state)
    upgraded.do(Op.ADD, 1, hashes(8, 8))
    upgraded.log.close()
    assert ControlFile.read(data) == ControlFile(upgraded.log.seq, 0, False)
    assert_same(recover(data).state, upgraded.state)
    server.log.close()


@pytest.mark.parametrize("damage", [cut_wal, without_wal])
def test_version_1_that_is_cut_off(older: tuple[Server, Path], damage: Damage) -> None:
    """Of a folder of before, what SQLite's index says is missing is refused, again and again."""
    server, data = older
    damage(data)
    assert "cut off" in refused(data)
    server.log.close()
