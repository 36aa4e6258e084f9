"""Two snapshots are two copies: two files of each filter, read by turns, mended by each other."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.durability import redundant_files, snapshots, snapshotter
from bloomery.service.durability.folder import log_folder, segments
from bloomery.service.durability.recovery import recover
from bloomery.service.durability.snapshots import SnapshotManifest
from conftest import effort
from unit.service.durability.serving import LARGE, SETTINGS, Server, assert_same, hashes

pytestmark = pytest.mark.slow  # they write and read many files

Told = Callable[[], list[str]]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Told:
    """What was found damaged since this was last asked, as the server is told it."""

    def read() -> list[str]:
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        return [line["problem"] for line in lines if "problem" in line]

    return read


def file_of(server: Server, snapshot: int, number: int) -> Path:
    """A filter's file."""
    return snapshots.folder_of(server.data, snapshot) / f"{number}.bloomery"


def flip(path: Path, chance: random.Random) -> None:
    """Change one byte where it is: of every name that the file has."""
    with path.open("r+b") as file:
        file.seek(chance.randrange(path.stat().st_size))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ chance.randrange(1, 256)]))


def cut(path: Path, chance: random.Random) -> None:
    """Lose the end, of every name too."""
    os.truncate(path, chance.randrange(path.stat().st_size))


def remove(path: Path, chance: random.Random) -> None:
    """Lose it."""
    path.unlink()


WAYS = (flip, cut, remove)


def assert_two_copies(server: Server, folder: Path) -> None:
    """Each of the two snapshots alone, with the log since, is all that the server has."""
    newest = snapshots.snapshot_numbers(server.data)[-1]
    for without in (None, newest):
        copy = server.killed(folder)
        if without is not None:
            shutil.rmtree(snapshots.folder_of(copy, without))
        found = recover(copy)
        assert found.problems == []
        assert_same(found.state, server.state)
        shutil.rmtree(copy)


def test_two_files_take_turns(tmp_path: Path) -> None:
    """A filter that does not change has one file in each of two snapshots, and no third is ever
    written."""
    server = Server(tmp_path)
    one, other = server.create("bloom", "one"), server.create("bloom", "other")
    made = []
    for round in range(5):
        server.do(Op.ADD, other, hashes(round, 5))
        made.append(file_of(server, server.snapshot(), one).stat().st_ino)
    assert made == [made[0], made[1], made[0], made[1], made[0]]
    assert made[0] != made[1]
    server.log.close()


def test_a_folder_of_linked_files(tmp_path: Path) -> None:
    """Where both snapshots have one file, as they once had, the next has its own."""
    server = Server(tmp_path)
    number = server.create("bloom")
    older, newer = server.snapshot(), server.snapshot()
    file_of(server, newer, number).unlink()
    os.link(file_of(server, older, number), file_of(server, newer, number))
    found = file_of(server, server.snapshot(), number)
    assert not found.samefile(file_of(server, newer, number))
    server.log.close()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("which", ["older", "newer"])
@pytest.mark.parametrize("change", [False, True])
def test_whatever_is_damaged_is_mended(
    tmp_path: Path, told: Told, how: Callable[[Path, random.Random], None], which: str, change: bool
) -> None:
    """A snapshot finds all damaged files of either snapshot, of any kind and size, whether their
    filters have changed since or not; it says which, and leaves two whole snapshots."""
    server = Server(tmp_path / "data")
    for kind in SETTINGS:
        server.create(kind)
    server.create("bloom", "large", capacity=LARGE)
    numbers_by_age = {"older": server.snapshot(), "newer": server.snapshot()}
    chance = random.Random(f"{how.__name__}{which}")
    damaged = []
    for number, entry in server.state.filters.items():
        path = file_of(server, numbers_by_age[which], number)
        how(path, chance)
        if change:
            server.do(Op.ADD, number, hashes(number, 20, entry.filter.kind))
        if not change or which == "newer":  # or else it is of no use any more, and not looked at
            damaged.append(str(path))
    told()
    server.snapshot()
    assert sorted(text.partition(": ")[0] for text in told()) == sorted(damaged)
    assert_two_copies(server, tmp_path / "copy")
    server.log.close()


def test_neither_can_be_used(tmp_path: Path, told: Told) -> None:
    """If both files of a filter are damaged, no snapshot is made, nothing is pruned, and the error
    says that the files do not have it."""
    server = Server(tmp_path)
    number = server.create("bloom")
    made = [server.snapshot() for _ in range(3)]
    for snapshot in made[1:]:
        flip(file_of(server, snapshot, number), random.Random(1))
    before = segments(log_folder(tmp_path))
    with pytest.raises(errors.CorruptData):
        server.snapshot()
    assert snapshots.snapshot_numbers(tmp_path) == made[1:]
    assert segments(log_folder(tmp_path))[: len(before)] == before
    assert len(told()) >= 2
    server.log.close()


def test_a_damaged_manifest_is_no_snapshot(tmp_path: Path) -> None:
    """A snapshot that cannot be used is not counted when older ones are removed: two are left
    that can."""
    server = Server(tmp_path / "data")
    number = server.create("bloom")
    first, second = server.snapshot(), server.snapshot()
    server.do(Op.ADD, number, hashes(1, 5))
    flip(snapshots.folder_of(server.data, second) / snapshots.MANIFEST, random.Random(2))
    third = server.snapshot()
    assert snapshots.snapshot_numbers(server.data) == [first, third]
    assert_two_copies(server, tmp_path / "copy")
    server.log.close()


def test_large_files_are_verified_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    """Of large files a snapshot reads some, those that were not read for the longest time: so each
    is read in time, and none takes more than its part."""
    monkeypatch.setattr(redundant_files, "SMALL", 0)
    monkeypatch.setattr(redundant_files, "BUDGET", 1)  # one file a snapshot
    read: list[Path] = []
    verify = redundant_files.verify

    def watched(path: Path, saved: snapshots.ManifestEntry) -> None:
        read.append(path)
        verify(path, saved)

    monkeypatch.setattr(redundant_files, "verify", watched)
    server = Server(tmp_path / "data")
    numbers = [server.create("bloom", str(name)) for name in range(3)]
    server.snapshot()
    newest = server.snapshot()
    inodes = [file_of(server, newest - by, one).stat().st_ino for by in (0, 1) for one in numbers]
    found = []
    for _ in range(2 * len(inodes)):
        read.clear()
        server.snapshot()
        assert len(read) == 1
        found.append(read[0].name)
    assert sorted(found) == sorted(2 * 2 * [f"{number}.bloomery" for number in numbers])
    flip(file_of(server, snapshots.snapshot_numbers(server.data)[0], numbers[1]), random.Random(3))
    told()
    for _ in inodes:
        server.snapshot()
    assert len(told()) == 1
    assert_two_copies(server, tmp_path / "copy")
    server.log.close()


def test_the_manifest_says_when(tmp_path: Path) -> None:
    """A manifest without these figures, or with nonsense, is read: all files are due then."""
    server = Server(tmp_path)
    number = server.create("bloom")
    server.snapshot()
    newest = server.snapshot()
    assert SnapshotManifest.read(tmp_path, newest).verified == {f"{number}.bloomery": [2, 2]}
    for nonsense in ({}, {f"{number}.bloomery": ["x"]}, {f"{number}.bloomery": 7}):
        manifest = SnapshotManifest.read(tmp_path, newest)
        manifest.verified = nonsense  # type: ignore[assignment]
        manifest.write(snapshots.folder_of(tmp_path, newest))
        newest = server.snapshot()
        (times,) = SnapshotManifest.read(tmp_path, newest).verified.values()
        assert times == [newest - 1, newest - 1]
    server.log.close()


def test_damage_at_any_moment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Filters change or do not, one file is damaged, a snapshot is made, again and again: after
    each there are two whole copies."""
    chance = random.Random() if effort(0, 0, 1) else random.Random(13)
    server = Server(tmp_path / "data")
    kinds = [*SETTINGS, *SETTINGS]
    numbers = [server.create(kind, f"{kind}-{n}") for n, kind in enumerate(kinds)]
    for round in range(effort(8, 20, 400)):
        if chance.random() < 0.2:
            server.wait(30)
        for number in chance.sample(numbers, chance.randrange(1, 4)):
            kind = server.state.filters[number].filter.kind
            server.do(Op.ADD, number, hashes(round * 100 + number, 10, kind))
        found = snapshots.snapshot_numbers(server.data)
        if len(found) == 2:
            folder = snapshots.folder_of(server.data, chance.choice(found))
            chance.choice(WAYS)(chance.choice(sorted(folder.iterdir())), chance)
        number = server.log.cut()
        snapshotter.take(server.data, number)
        assert_two_copies(server, tmp_path / "copy")
    server.log.close()
