"""A start never has less than was acknowledged: what is damaged or missing is refused, with what is
wrong and what to do, and stays as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.durability import snapshots
from bloomery.service.durability.folder import log_folder, segment_path, segments
from bloomery.service.durability.recovery import recover
from unit.service.durability.damaging import (
    DAMAGES,
    Damage,
    change,
    filled,
    frames,
    last,
    refused,
)
from unit.service.durability.serving import Server, assert_same, hashes


def test_an_operation_of_a_newer_bloomery(tmp_path: Path) -> None:
    """A row that is whole and whose operation nobody knows, as after a rollback, is no row to be
    left out."""
    server = filled(tmp_path / "data")
    server.log.append([(1, 99, b"")], server.now)
    server.do(Op.ADD, 1, hashes(1, 1))
    why = refused(server.killed(tmp_path / "copy"))
    assert "operation 99" in why
    assert "a newer version of bloomery wrote it, so upgrade" in why
    server.log.close()


@pytest.mark.parametrize("name", ["middle", "create"])
def test_a_damaged_row(tmp_path: Path, name: str) -> None:
    """A row in the middle that is not as it was written, an ADD or the CREATE of a filter."""
    server = Server(tmp_path)
    server.create("counting")
    for number in range(50):
        server.do(Op.ADD, 1, hashes(number, 3))
    server.log.close()
    seq = {"middle": 25, "create": 1}[name]
    path = segment_path(log_folder(tmp_path), 1)
    change(path, sum(map(len, frames(path)[: seq + 1])) - 1)
    assert "00000001.log: bytes" in (why := refused(tmp_path))
    assert f"operations {seq} to {seq} are lost" in why


def test_a_byte_of_the_last_segment(tmp_path: Path) -> None:
    """One byte in the middle of the segment that was written to is not taken for its end."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    change(last(data), last(data).stat().st_size // 2)
    assert last(data).name in refused(data)
    server.log.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_gone_or_another(tmp_path: Path, damage: Damage) -> None:
    """Files of the log that are gone, cut off, doubled or in each other's place are missed."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    damage(data)
    assert "--accept-loss" in refused(data)
    server.log.close()


def test_a_segment_that_is_there_twice(tmp_path: Path) -> None:
    """A copy of a segment as the last one brings nothing new: all is there, and that is said."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    found = segments(log_folder(data))
    shutil.copy(*(segment_path(log_folder(data), number) for number in (found[-2], found[-1] + 1)))
    recovery = recover(data)
    assert any("it is segment" in problem for problem in recovery.problems)
    assert_same(recovery.state, server.state)
    assert recover(data).problems == []
    server.log.close()


def test_an_older_copy_of_the_log(tmp_path: Path) -> None:
    """The last segment as it was a while ago, put back, is less than was acknowledged."""
    server = filled(tmp_path / "data")
    older = server.killed(tmp_path / "older")
    server.do(Op.ADD, 1, hashes(7, 7))
    data = server.killed(tmp_path / "copy")
    shutil.rmtree(log_folder(data))
    shutil.copytree(log_folder(older), log_folder(data))
    assert "--accept-loss" in refused(data)
    server.log.close()


def test_a_row_for_no_filter(tmp_path: Path) -> None:
    """A row whose filter is not there is not left out."""
    server = filled(tmp_path / "data")
    server.log.append([(77, Op.ADD, operations.named(b"one", hashes(1, 1)))], server.now)
    assert "filter number 77" in refused(server.killed(tmp_path / "copy"))
    server.log.close()


def test_after_a_clean_end(tmp_path: Path) -> None:
    """A server that ended in order is missed too, if its last rows are gone."""
    server = filled(tmp_path)
    server.log.close()
    assert_same(recover(tmp_path).state, server.state)
    path = last(tmp_path)
    path.write_bytes(b"".join(frames(path)[:-1]))
    assert "--accept-loss" in refused(tmp_path)
    path.unlink()
    assert "--accept-loss" in refused(tmp_path)


def test_a_snapshot_by_another_number(tmp_path: Path) -> None:
    """A copy of a snapshot under a later number is not that snapshot: what is whole is used."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    older, newer = snapshots.snapshot_numbers(data)
    shutil.rmtree(snapshots.folder_of(data, newer))
    shutil.copytree(snapshots.folder_of(data, older), snapshots.folder_of(data, newer))
    found = recover(data)
    assert any(f"snapshot {newer}" in problem for problem in found.problems)
    assert found.snapshot_number == older
    assert_same(found.state, server.state)
    server.log.close()


def test_an_operation_with_other_fields(tmp_path: Path) -> None:
    """An operation that lacks what it needs cannot be done again, and is not left out."""
    server = filled(tmp_path / "data")
    data = operations.named(b"three", operations.fields(other={}))
    server.log.append([(3, Op.CREATE, data)], server.now)
    assert "CREATE" in refused(server.killed(tmp_path / "copy"))
    server.log.close()
