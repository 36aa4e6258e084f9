"""Filters that are read before a restart asks for them: the same filters, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bloomery.service.domain.operations import Op
from bloomery.service.durability import snapshots
from bloomery.service.durability.preload import Preload
from bloomery.service.durability.recovery import recover
from unit.service.durability.serving import LARGE, SETTINGS, Server, assert_same, hashes


def snapshot_of(server: Server, kind: str) -> Path:
    """The file of a large filter of this kind, in a snapshot of the server."""
    number = server.create(kind, capacity=LARGE)
    server.do(Op.ADD, number, hashes(1, 500, kind))
    path = snapshots.folder_of(server.data, server.snapshot()) / f"{number}.bloomery"
    server.do(Op.ADD, number, hashes(2, 500, kind))
    server.log.close()
    return path


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_restart_takes_what_was_read(tmp_path: Path, kind: str) -> None:
    """It is the same as without, and the log is replayed onto it."""
    server = Server(tmp_path)
    path = snapshot_of(server, kind)
    assert (Preload(tmp_path).take()(path) is None) == (kind == "bank")
    preload = Preload(tmp_path)
    recovered = recover(tmp_path, preload=preload)
    assert recovered.problems == []
    assert_same(recovered.state, server.state)
    assert preload.take()(path) is None, "it was taken"


def test_another_file_is_not_taken_for_it(tmp_path: Path) -> None:
    """A snapshot that was written anew meanwhile is read itself."""
    path = snapshot_of(Server(tmp_path), "bloom")
    filter_of = Preload(tmp_path).take()
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    os.replace(copy, path)
    assert filter_of(path) is None


def test_what_is_wrong_the_restart_says(tmp_path: Path) -> None:
    """A damaged file, or no snapshot at all, is nothing that this decides about."""
    server = Server(tmp_path / "data")
    path = snapshot_of(server, "bloom")
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    with Preload(server.data) as preload:
        recovered = recover(server.data, preload=preload)
    assert any("cannot be used" in problem for problem in recovered.problems)
    assert_same(recovered.state, server.state)
    assert recover(tmp_path / "none", preload=Preload(tmp_path / "none")).state.filters == {}
