"""A restart: the newest snapshot, the log after it, and what is said when one is damaged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.durability import snapshots
from bloomery.service.durability.folder import lock, log_folder, segment_path, segments
from bloomery.service.durability.recovery import recover
from unit.service.durability.serving import (
    LARGE,
    REMOVING,
    SETTINGS,
    Server,
    assert_same,
    hashes,
    packed,
)

# Most of these start processes, or read and write many files.
pytestmark = pytest.mark.slow

every_kind = pytest.mark.parametrize("kind", SETTINGS)
every_size = pytest.mark.parametrize("capacity", [200, LARGE])


@every_size
@every_kind
def test_replay_is_as_it_was(tmp_path: Path, kind: str, capacity: int) -> None:
    """From log, snapshot, and both, a filter of every kind comes back byte for byte."""
    server = Server(tmp_path / "data")
    number = server.create(kind, capacity=capacity)
    for round in range(4):
        server.do(Op.ADD, number, hashes(round, 150, kind))
        if kind in REMOVING:
            server.do(Op.REMOVE, number, hashes(round, 20))
        server.wait(17)
        killed = recover(server.killed(tmp_path / f"log {round}"))
        assert (killed.problems, killed.snapshot_number) == ([], server.log.segment if round else 0)
        assert_same(killed.state, server.state)
        snapshot = server.snapshot()
        killed = recover(server.killed(tmp_path / f"snapshot {round}"))
        assert (killed.problems, killed.snapshot_number, killed.rows) == ([], snapshot, 0)
        assert_same(killed.state, server.state)
    server.log.close()


def test_growing_filters_are_written_anew(tmp_path: Path) -> None:
    """A filter that outgrew the file it was mapped from is saved whole."""
    server = Server(tmp_path / "data")
    number = server.create("scalable", capacity=LARGE)
    server.snapshot()
    before = server.state.filters[number].filter.nbytes
    server.do(Op.ADD, number, hashes(1, 2 * LARGE))
    assert server.state.filters[number].filter.nbytes > before
    server.snapshot()
    assert_same(recover(server.killed(tmp_path / "copy")).state, server.state)
    server.log.close()


def test_two_generations_are_kept(tmp_path: Path) -> None:
    """Two snapshots are kept, and the segments since the older one."""
    server = Server(tmp_path)
    number = server.create("bloom")
    for round in range(5):
        server.do(Op.ADD, number, hashes(round, 5))
        server.snapshot()
    assert snapshots.snapshot_numbers(tmp_path) == [5, 6]
    assert segments(log_folder(tmp_path)) == [5, 6]
    server.log.close()


def test_copies_drops_and_half_loaded_filters_come_back(tmp_path: Path) -> None:
    """A snapshot has everything that operations do, and a filter of which half was loaded."""
    server = Server(tmp_path / "data")
    large = server.create("bloom", "large", capacity=LARGE)
    server.do(Op.ADD, large, hashes(1, 100))
    server.snapshot()
    fields = operations.fields(source=large, of="large", replace=False)
    server.do(Op.COPY, 2, fields, name=b"copy")
    server.do(Op.ADD, large, hashes(2, 100))
    server.do(Op.MERGE, 2, operations.fields(sources=[[large, "large"]]))
    server.do(Op.DROP, large)
    server.do(Op.EXPIRE, 2, operations.fields(at=server.now + 100))
    saved = server.state.filters[2].filter.to_bytes()
    half = len(saved) // 2 + 3
    server.do(Op.CHUNK, 3, operations.chunk(1, saved[:half], format="bloomery"), name=b"half")
    server.snapshot()
    reborn = Server(server.killed(tmp_path / "copy"))
    assert reborn.recovery.rows == 0
    assert_same(reborn.state, server.state)
    reborn.do(Op.CHUNK, 3, operations.chunk(half + 1, saved[half:]))
    assert reborn.state.names[b"half"].filter == server.state.filters[2].filter
    reborn.snapshot()
    assert_same(recover(reborn.killed(tmp_path / "again")).state, reborn.state)
    server.log.close()
    reborn.log.close()


@pytest.mark.parametrize("kind", ["redisbloom", "rediscuckoo"])
def test_a_dump_goes_on_after_a_restart(tmp_path: Path, kind: str) -> None:
    """Half of a RedisBloom dump is in the snapshot, and the other half can come after a restart."""
    server = Server(tmp_path / "data")
    source = server.create(kind, capacity=20, expansion=2)
    server.do(Op.ADD, source, hashes(1, 200, kind))
    dumped = server.state.filters[source].filter
    parts = [dumped.chunk(0)]
    while parts[-1][0]:
        parts.append(dumped.chunk(parts[-1][0]))
    first, *later = [operations.chunk(*part) for part in parts[1:-1]]
    begin = operations.chunk(*parts[0], format=kind)
    server.do(Op.CHUNK, 2, begin, name=b"copy")
    server.do(Op.CHUNK, 2, first)
    server.snapshot()
    reborn = Server(server.killed(tmp_path / "copy"))
    for part in later:
        reborn.do(Op.CHUNK, 2, part)
    assert reborn.state.filters[2].filter == dumped
    for one in (server, reborn):
        one.log.close()


def two_generations(data: Path) -> Server:
    """A server with two snapshots and a log behind them."""
    server = Server(data)
    for name in ("one", "two"):
        server.create("counting", name)
    for round in range(3):
        for number in (1, 2):
            server.do(Op.ADD, number, hashes(round, 30))
        if round < 2:
            server.snapshot()
    return server


def spoil(path: Path) -> None:
    """Change a byte in the middle."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("name", ["1.bloomery", "manifest.json"])
@pytest.mark.parametrize("how", [spoil, Path.unlink, lambda path: path.write_bytes(b"short")])
def test_a_damaged_snapshot_is_said_and_not_used(tmp_path: Path, name: str, how: object) -> None:
    """If a file of the newest snapshot is damaged or gone, the one before and its log are used, and
    a new snapshot is written so that the next start finds nothing wrong."""
    server = two_generations(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    how(snapshots.folder_of(data, 3) / name)  # type: ignore[operator]
    found = recover(data)
    assert len(found.problems) == 1
    assert "snapshot 3 cannot be used" in found.problems[0]
    assert name in found.problems[0]
    assert found.snapshot_number == 2
    assert_same(found.state, server.state)
    again = recover(data)
    assert (again.problems, again.snapshot_number) == ([], 4)
    assert_same(again.state, server.state)
    server.log.close()


def test_without_a_snapshot_nothing_is_passed_over(tmp_path: Path) -> None:
    """If no snapshot is whole the start is refused, with the files and what to do; `accept_loss`
    brings back the filters that are not damaged, and says which are lost."""
    server = two_generations(tmp_path / "data")
    server.do(Op.ADD, 2, hashes(9, 9))
    server.snapshot()
    data = server.killed(tmp_path / "copy")
    for snapshot in (3, 4):
        spoil(snapshots.folder_of(data, snapshot) / "1.bloomery")
    before = sorted(data.rglob("*"))
    with pytest.raises(errors.CorruptData, match="--accept-loss") as caught:
        recover(data)
    assert "1.bloomery" in str(caught.value)
    assert sorted(data.rglob("*")) == before
    found = recover(data, accept_loss=True)
    assert any("'one' is lost" in problem for problem in found.problems)
    assert list(found.state.filters) == [2]
    assert found.state.filters[2].filter == server.state.filters[2].filter
    assert recover(data).problems == []
    server.log.close()


def test_a_damaged_snapshot_is_not_built_on(tmp_path: Path) -> None:
    """A snapshot is made from the one before the last if a file of the last is damaged."""
    server = two_generations(tmp_path / "data")
    spoil(snapshots.folder_of(tmp_path / "data", 3) / "1.bloomery")
    server.snapshot()
    found = recover(server.killed(tmp_path / "copy"))
    assert (found.problems, found.snapshot_number) == ([], 4)
    assert_same(found.state, server.state)
    server.log.close()


def test_a_log_with_a_hole_makes_no_snapshot(tmp_path: Path) -> None:
    """If a closed segment is damaged while the server runs, no snapshot is made of it; a restart
    is refused, and once the loss was accepted the next one finds nothing wrong."""
    server = two_generations(tmp_path)
    server.log.cut()
    server.log.sync()
    segment_path(log_folder(tmp_path), 3).write_bytes(b"")
    with pytest.raises(errors.CorruptData, match=r"00000003\.log"):
        server.snapshot()
    server.log.close()
    with pytest.raises(errors.CorruptData, match=r"00000003\.log"):
        recover(tmp_path)
    assert len(recover(tmp_path, accept_loss=True).problems) >= 1
    assert recover(tmp_path).problems == []


def test_one_server_a_folder(tmp_path: Path) -> None:
    """A folder that a server has is refused to a second one, with the first one's process."""
    program = (
        "import sys; from bloomery.service.durability.folder import lock\n"
        "held = lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "new")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(errors.FolderInUse, match=f"process {first.pid}:"):
            lock(tmp_path / "new")
    lock(tmp_path / "new").close()


def test_a_new_folder_is_empty(tmp_path: Path) -> None:
    """A folder that is not there yet gives no filters and no problems, again and again."""
    for _ in range(3):
        server = Server(tmp_path / "data")
        assert (server.recovery.problems, server.state.filters) == ([], {})
        server.log.close()
    shutil.rmtree(tmp_path / "data" / "log")
    assert recover(tmp_path / "data").problems == []


def test_lost_segments_are_said(tmp_path: Path) -> None:
    """A log whose beginning is gone, with no snapshot, is not taken for the whole."""
    server = Server(tmp_path)
    server.create("bloom")
    server.log.cut()
    server.do(Op.ADD, 1, packed(5))
    server.log.close()
    segment_path(log_folder(tmp_path), 1).unlink()
    with pytest.raises(errors.CorruptData, match="begins with segment 2"):
        recover(tmp_path)
    assert recover(tmp_path, accept_loss=True).state.filters == {}
