"""Files that are damaged while the server runs: a snapshot mends them, from each other or from what
is in memory, and says so; and a start finds all whole."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bloomery.service.durability.recovery import recover
from conftest import effort
from integration.durability.folder import keys_of
from integration.durability.load import KINDS, LARGE
from integration.resp.wire import Connection, Refused
from integration.servers import BloomeryServer, Serve, wait_until

pytestmark = pytest.mark.slow
FILTERS = {**KINDS, **{f"large-{kind}": words for kind, words in LARGE.items()}}


class Story:
    """A server with a filter of every kind, and what was added to each."""

    def __init__(self, server: BloomeryServer, seed: int) -> None:
        self.server = server
        self.random = random.Random() if effort(0, 0, 1) else random.Random(seed)
        self.connection = Connection(server.resp_port)
        self.keys: dict[str, list[str]] = {name: [] for name in FILTERS}
        self.rounds = 0
        for name, (command, *settings) in FILTERS.items():
            self.connection.ask(command, name, *settings)
            self.add(name)

    def add(self, name: str) -> None:
        """Add some keys."""
        self.rounds += 1
        keys = keys_of(f"part-{self.rounds}")[:50]
        if name.endswith("rediscuckoo"):
            self.connection.ask("CF.INSERT", name, "ITEMS", *keys)
        else:
            self.connection.ask("BF.MADD", name, *keys)
        self.keys[name] += keys

    def snapshots(self) -> list[Path]:
        """The folders of the snapshots, the newest last."""
        return sorted(self.server.data.glob("snapshots/0*"))

    def flip(self, path: Path) -> None:
        """Change one byte of a file where it is."""
        with path.open("r+b") as file:
            file.seek(self.random.randrange(path.stat().st_size))
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ self.random.randrange(1, 256)]))

    def missing(self, connection: Connection) -> list[str]:
        """Which keys the server does not have."""
        lost = []
        for name, keys in self.keys.items():
            command = "CF.MEXISTS" if name.endswith("rediscuckoo") else "BF.MEXISTS"
            answers = connection.ask(command, name, *keys)
            lost += [f"{name} {k}" for k, there in zip(keys, answers, strict=True) if not there]
        return lost

    def assert_two_copies(self, folder: Path) -> None:
        """Each of the two snapshots is whole: the folder as it is, and without the newest."""
        newest = self.snapshots()[-1].name
        for without in ("", newest):
            shutil.copytree(self.server.data, folder, ignore=shutil.ignore_patterns("registry*"))
            if without:
                shutil.rmtree(folder / "snapshots" / without)
            assert recover(folder).problems == []
            shutil.rmtree(folder)

    def restart(self) -> None:
        """Kill the server; the next one finds nothing wrong, and all keys."""
        self.connection.close()
        self.server.kill()
        self.server.start()
        self.connection = Connection(self.server.resp_port)
        assert self.connection.info()["recovery_problems"] == "0", self.server.printed()
        assert self.missing(self.connection) == []


@pytest.fixture
def story(serve: Serve) -> Iterator[Story]:
    """A server with filters, and two snapshots of them."""
    made = Story(serve(), seed=13)
    for _ in range(2):
        made.connection.ask("SAVE")
    yield made
    made.connection.close()


def test_a_flipped_byte_anywhere(story: Story, tmp_path: Path) -> None:
    """Whichever file of the snapshots loses a byte, at whatever moment: the next SAVE is whole, and
    so is the snapshot beside it."""
    for round in range(effort(2, 5, 100)):
        path = story.random.choice(sorted(story.random.choice(story.snapshots()).iterdir()))
        early = story.random.random() < 0.5
        if early:
            story.flip(path)
        for name in story.random.sample(list(FILTERS), story.random.randrange(3)):
            story.add(name)
        if not early:
            story.flip(path)
        story.connection.ask("SAVE")
        story.assert_two_copies(tmp_path / f"copy-{round}")
    story.restart()


def test_a_file_of_an_unchanged_filter(story: Story, tmp_path: Path) -> None:
    """Damage is told by name, to the log and as an alert."""
    path = story.snapshots()[-1] / "1.bloomery"
    story.flip(path)
    story.connection.ask("SAVE")
    assert wait_until(lambda: f"a snapshot found damage: {path}" in story.server.printed())
    assert wait_until(lambda: "alert=snapshot-damaged state=event" in story.server.printed())
    story.assert_two_copies(tmp_path / "copy")
    story.restart()


def test_what_no_file_has_any_more(story: Story, tmp_path: Path) -> None:
    """If both files of a filter are damaged, all filters are written anew from memory: SAVE is OK,
    who asks is answered meanwhile, who writes succeeds or is told to come back."""
    for snapshot in story.snapshots():
        for path in snapshot.glob("*.bloomery"):
            story.flip(path)
    with Connection(story.server.resp_port) as other:
        saving = story.connection
        saving.socket.sendall(b"*1\r\n$4\r\nSAVE\r\n")
        taken: list[str] = []

        def saved() -> bool:
            assert other.ask("BF.EXISTS", "bloom", story.keys["bloom"][0]) == 1
            key = f"meanwhile-{len(taken)}"
            (reply,) = other.ask_all([("BF.ADD", "bloom", key)])
            if isinstance(reply, Refused):
                assert "written anew" in str(reply)
            else:
                taken.append(key)
            return other.info()["rdb_bgsave_in_progress"] == "0"

        assert wait_until(saved), story.server.printed()
        assert saving.socket.recv(100) == b"+OK\r\n", story.server.printed()
        story.keys["bloom"] += taken
        assert other.ask("BF.ADD", "bloom", "after") == 1
    assert "written anew, from memory" in story.server.printed()
    story.assert_two_copies(tmp_path / "copy")
    story.restart()


def test_the_end_writes_what_no_file_has(story: Story) -> None:
    """A server that is told to stop leaves whole files behind, whatever was damaged before."""
    for snapshot in story.snapshots():
        story.flip(snapshot / "2.bloomery")
    story.add("bloom")
    story.connection.close()
    assert story.server.stop() == 0, story.server.printed()
    story.server.start()
    story.connection = Connection(story.server.resp_port)
    assert story.connection.info()["recovered_rows"] == "0"
    assert story.missing(story.connection) == []


def test_a_damaged_log(story: Story, tmp_path: Path) -> None:
    """Rows of the log that are damaged before a snapshot has them are still in memory, which is
    written then: nothing is lost."""
    before = [len(keys) for keys in story.keys.values()]
    for name in FILTERS:
        story.add(name)
    assert [len(keys) for keys in story.keys.values()] > before
    segment = max(story.server.data.glob("log/*.log"))
    with segment.open("r+b") as file:
        middle = segment.stat().st_size // 2
        file.seek(middle)
        file.write(story.random.randbytes(segment.stat().st_size - middle))
    story.connection.ask("SAVE")
    assert "written anew, from memory" in story.server.printed()
    story.assert_two_copies(tmp_path / "copy")
    story.restart()
