"""The process that makes snapshots: alone, killed, on a full disk."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.durability import snapshots, snapshotter
from bloomery.service.durability.folder import log_folder, segments, snapshots_folder
from bloomery.service.durability.recovery import recover
from conftest import effort
from unit.service.durability.serving import LARGE, Server, assert_same, hashes

# Most of these start processes, or read and write many files.
pytestmark = pytest.mark.slow


def run(data: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the process to its end."""
    command = [sys.executable, "-m", "bloomery.service.durability.snapshotter", str(data)]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )


def started(data: Path, server: Server) -> subprocess.Popen[str]:
    """The process that makes a snapshot of all that the server has logged, begun as servers do."""
    return subprocess.Popen(
        snapshots.command(data, server.log.cut()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_says_how_far_it_is(tmp_path: Path) -> None:
    """A snapshot is made by another process, which prints lines of JSON; a second run finds it
    there."""
    server = Server(tmp_path)
    server.do(Op.ADD, server.create("bloom"), hashes(1, 50))
    process = started(tmp_path, server)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()][-1] == {"done": 2, "rows": 2}
    found = recover(tmp_path)
    assert (found.snapshot_number, found.rows) == (2, 0)
    assert_same(found.state, server.state)
    again = run(tmp_path, 2)
    assert (again.returncode, json.loads(again.stdout)) == (0, {"done": 2})
    server.log.close()


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["x"], 1), ([7], snapshots.DAMAGED)])
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, arguments: list[object], code: int
) -> None:
    """Wrong arguments are one line and exit code 1; a snapshot whose log is not there is one line
    too, and a code that says that the files do not have it."""
    server = Server(tmp_path)
    server.log.close()
    done = run(tmp_path, *arguments)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert snapshots.snapshot_numbers(tmp_path) == []


@pytest.mark.slow
def test_killed_at_any_time_it_does_no_harm(tmp_path: Path) -> None:
    """Killed whenever, it leaves the snapshots that were there, and the next run makes its own."""
    server = Server(tmp_path / "data")
    for kind in ("bloom", "counting", "scalable"):
        server.create(kind, capacity=LARGE)
    server.snapshot()
    chance = random.Random(5)
    for round in range(effort(3, 8, 100)):
        for number in (1, 2, 3):
            server.do(Op.ADD, number, hashes(round, 5000))
        process = started(tmp_path / "data", server)
        time.sleep(chance.uniform(0.1, 0.6))
        process.kill()
        process.communicate()
        copy = server.killed(tmp_path / "copy")
        found = recover(copy)
        assert found.problems == []
        assert_same(found.state, server.state)
        shutil.rmtree(copy)
    done = run(tmp_path / "data", server.log.segment)
    assert (done.returncode, done.stderr) == (0, "")
    left = [path.name for path in snapshots_folder(tmp_path / "data").glob(".*.tmp")]
    assert left == []
    assert_same(recover(server.killed(tmp_path / "copy")).state, server.state)
    server.log.close()


@pytest.mark.parametrize("capacity", [500, LARGE])
@pytest.mark.parametrize("touched", ["neither", "old", "new", "both"])
def test_a_rebuild_that_ends_between_two_snapshots(
    tmp_path: Path, capacity: int, touched: str
) -> None:
    """The filter that a rebuild made replaces the old one in the snapshot too, whether or not the
    log since the last snapshot has keys of either."""
    server = Server(tmp_path / "data")
    old = server.create("counting", "seen", capacity=capacity)
    server.do(Op.ADD, old, hashes(1, 50))
    new = server.create("counting", "built", capacity=capacity + 9)
    server.do(Op.ADD, new, hashes(2, 60))
    server.do(Op.ADJUST, old, operations.fields(settings={"successor": new}))
    server.snapshot()
    if touched == "both":
        server.do(Op.ADD, old, hashes(3, 5))
    elif touched == "old":
        server.do(Op.REMOVE, old, hashes(1, 5))
    elif touched == "new":
        server.do(Op.ADD, new, hashes(3, 5))
    server.do(Op.SUCCEED, old, operations.fields(successor=new))
    server.do(Op.ADD, old, hashes(4, 5))
    server.snapshot()
    found = recover(server.killed(tmp_path / "copy"))
    assert (found.problems, found.rows) == ([], 0)
    assert_same(found.state, server.state)
    server.log.close()


def test_a_full_disk_leaves_what_was_there(small_disk: Path) -> None:
    """Without room no snapshot is made: one line says so, the last one stays, and the next one,
    with room, is made."""
    server = Server(small_disk)
    number = server.create("bloom", capacity=150_000)
    server.do(Op.ADD, number, hashes(1, 50))
    assert run(small_disk, server.log.cut()).returncode == 0
    server.do(Op.ADD, number, hashes(2, 50))
    (small_disk / "ballast").write_bytes(bytes(450_000))
    second = server.log.cut()
    done = run(small_disk, second)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "No space left" in done.stderr
    assert snapshots.snapshot_numbers(small_disk) == [2]
    assert segments(log_folder(small_disk))[0] == 1
    (small_disk / "ballast").unlink()
    assert run(small_disk, second).returncode == 0
    found = recover(small_disk)
    assert (found.problems, found.snapshot_number) == ([], second)
    assert_same(found.state, server.state)
    server.log.close()


def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one snapshot is made, another waits, and is refused when that takes too long."""
    import fcntl

    monkeypatch.setattr(snapshotter, "_PATIENCE", 0.5)
    path = tmp_path / ".lock"
    with path.open("w") as lock, path.open("w") as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(errors.FolderInUse, match="another snapshot is being made"):
            snapshotter.wait_for_lock(other, tmp_path)
        fcntl.flock(lock, fcntl.LOCK_UN)
        snapshotter.wait_for_lock(other, tmp_path)
