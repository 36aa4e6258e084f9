"""The control file: how far the log was written and synced, so that the torn tail of a power cut is
told from damage; and versions of data folders."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.durability import control, quarantine, snapshots
from bloomery.service.durability.control import ControlFile, control_file
from bloomery.service.durability.folder import FORMAT, log_folder, segment_path, segments
from bloomery.service.durability.recovery import recover
from unit.service.durability.damaging import (
    Damage,
    change,
    contents,
    crc32c,
    filled,
    frames,
    last,
    refused,
)
from unit.service.durability.serving import Server, assert_same, hashes

# A power cut.


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the machine have been started anew."""
    return lambda: monkeypatch.setattr(control, "boot_id", lambda: b"another boot id.")


def torn(data: Path, rows: int, left: int = 0) -> None:
    """Lose the last commits of the last segment: zeros are in their place, but for the last `left`
    commits, whose pages reached the disk before the others."""
    parts = frames(last(data))
    first, end = len(parts) - rows, len(parts) - left
    parts[first:end] = [bytes(len(part)) for part in parts[first:end]]
    last(data).write_bytes(b"".join(parts))


@pytest.mark.parametrize("left", [0, 4])
def test_the_torn_tail_of_a_power_cut(
    tmp_path: Path, reboot: Callable[[], None], left: int
) -> None:
    """What was not synced may be torn or gone when the machine went down, and only then: it starts
    with all that was synced, and says how much is lost."""
    server = Server(tmp_path / "data", fsync="everysec")
    number = server.create("counting", "f", capacity=3000)  # the last ten rows share a page
    for part in range(100):
        server.do(Op.ADD, number, hashes(part, 1))
    server.log.sync()
    synced = server.log.seq
    expected = recover(server.killed(tmp_path / "synced")).state
    for part in range(10):
        server.do(Op.ADD, number, hashes(1000 + part, 1))
    data = server.killed(tmp_path / "copy")
    torn(data, 10, left)
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


@pytest.mark.parametrize("left", [1, 19, 20, 30, -1])
def test_a_write_that_a_kill_cut_off(tmp_path: Path, left: int) -> None:
    """Part of a frame at the end, which was never acknowledged, is no damage and no loss: nothing
    is said, and the log continues in another segment, again and again."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    server.do(Op.ADD, 1, hashes(77, 5))
    whole = frames(last(server.data))[-1]
    with last(data).open("ab") as file:
        file.write(whole[:left])
    expected = recover(server.killed(tmp_path / "other")).seq - 1
    for _ in range(3):
        again = Server(data)
        assert (again.recovery.problems, again.recovery.seq) == ([], expected)
        again.log.close()
    assert quarantine.find(data) == []
    again = Server(data)
    again.do(Op.ADD, 1, hashes(77, 5))
    again.log.close()
    assert_same(recover(data).state, server.state)
    server.log.close()


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
        with pytest.raises(
            errors.UnsupportedVersion,
            match=rf"version {FORMAT + 7}.*version {FORMAT}: start the newer",
        ):
            recover(data, accept_loss=accept_loss)
    server.log.close()


def test_a_newer_segment(tmp_path: Path) -> None:
    """So is a folder with a segment of a newer version."""
    server = filled(tmp_path)
    server.log.close()
    path = segment_path(log_folder(tmp_path), segments(log_folder(tmp_path))[-2])
    raw = bytearray(path.read_bytes())
    raw[8:12] = (FORMAT + 7).to_bytes(4, "little")
    raw[32:36] = crc32c(bytes(raw[:32])).to_bytes(4, "little")
    path.write_bytes(raw)
    why = refused(tmp_path)
    assert f"version {FORMAT + 7}" in why
    assert f"version {FORMAT}:" in why


def test_a_newer_manifest(tmp_path: Path) -> None:
    """A snapshot of a newer version is refused, and not passed over for the one before."""
    server = filled(tmp_path)
    server.log.close()
    newest = snapshots.snapshot_numbers(tmp_path)[-1]
    path = snapshots.folder_of(tmp_path, newest) / snapshots.MANIFEST
    body = json.loads(path.read_bytes())["manifest"] | {"format": 9}
    path.write_text(json.dumps({"manifest": body, "checksum": snapshots.manifest_sum(body)}))
    assert "version 9, and this bloomery knows 1" in refused(tmp_path)


def test_a_log_in_sqlite_files(tmp_path: Path) -> None:
    """A folder of before, whose log was in SQLite files, is not taken for an empty one: the error
    says what to do, whatever is accepted."""
    log_folder(tmp_path).mkdir()
    (log_folder(tmp_path) / "00000001.sqlite").write_bytes(b"SQLite format 3\0")
    before = contents(tmp_path)
    for accept_loss in (False, True):
        with pytest.raises(errors.UnsupportedVersion, match=r"version 2.*bloomery backup"):
            recover(tmp_path, accept_loss=accept_loss)
    assert contents(tmp_path) == before


def test_an_older_folder(tmp_path: Path) -> None:
    """So is a folder whose control file has an older version."""
    server = filled(tmp_path)
    server.log.close()
    raw = bytearray(control_file(tmp_path).read_bytes())
    raw[8:12] = (FORMAT - 1).to_bytes(4, "little")
    raw[32:36] = zlib.crc32(raw[:32]).to_bytes(4, "little")
    control_file(tmp_path).write_bytes(raw)
    with pytest.raises(errors.UnsupportedVersion, match=rf"version {FORMAT - 1}.*bloomery restore"):
        recover(tmp_path)
