"""Damaged, cut off, gone: a start uses what is good, says what is not, and never guesses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import effort
from integration.conftest import open_folder
from integration.durability import folder as folders
from integration.durability.folder import PARTS, WAYS, Folder, missing
from integration.resp.wire import Connection, ask
from integration.servers import BloomeryServer, Serve, wait_until

pytestmark = pytest.mark.slow
Copy = Callable[[], Folder]


@pytest.fixture(scope="module")
def _made() -> Iterator[Folder]:
    with open_folder() as above:
        yield folders.make(above)


@pytest.fixture
def copy(_made: Folder, tmp_path: Path) -> Copy:
    """Copies of a folder with two snapshots and a log."""
    numbers = iter(range(1_000_000))
    return lambda: _made.copy(tmp_path / str(next(numbers)))


def chance_of(way: str, what: str) -> random.Random:
    """Where to damage it: the same places in each run but `make soak`."""
    return random.Random() if effort(0, 0, 1) else random.Random(way + what)


def said(server: BloomeryServer) -> bool:
    """Whether the server said that something is wrong: on stderr, and in INFO."""
    with Connection(server.resp_port) as connection:
        told = int(connection.info()["recovery_problems"]) > 0
    assert told == ("recovery: " in server.printed()), server.printed()
    return told


def in_step(server: BloomeryServer) -> bool:
    """Whether the registry shows what the server has."""
    with Connection(server.resp_port) as connection:
        facts = connection.info()
    return facts["registry"] == "ok" and facts["registry_seconds_behind"] == "0.0"


def again(server: BloomeryServer, *parts: str) -> None:
    """A second start finds nothing wrong any more, and the same keys."""
    server.kill()
    server.start()
    assert not said(server), server.printed()
    assert missing(server.resp_port, *parts) == []


@pytest.mark.parametrize("way", WAYS)
def test_the_newest_snapshot(serve: Serve, copy: Copy, way: str) -> None:
    """Whatever happens to a file of the newest snapshot is said, and no key is lost: the one before
    it, and the log since then, have them all."""
    chance = chance_of(way, "snapshot")
    for _ in range(effort(1, 1, 25)):
        folder = copy()
        files = [one for one in folder.snapshot(folder.newer).iterdir() if one.stat().st_nlink == 1]
        WAYS[way](chance.choice(sorted(files)), chance)
        server = serve(data=folder.path)
        assert said(server)
        assert missing(server.resp_port, *PARTS) == []
        again(server, *PARTS)
        server.kill()


@pytest.mark.parametrize("way", WAYS)
def test_what_no_start_needs(serve: Serve, copy: Copy, way: str) -> None:
    """Damage to the older snapshot and its log, and to the registry, loses nothing."""
    chance = chance_of(way, "rest")
    folder = copy()
    older = folder.snapshot(folder.older)
    damaged = [older / "manifest.json", folder.segment(folder.older), folder.path / "lock"]
    damaged += folder.path.glob("registry.sqlite*")
    for path in damaged:
        if path.exists() and path.stat().st_size:
            WAYS[way](path, chance)
    server = serve(data=folder.path)
    assert missing(server.resp_port, *PARTS) == []
    assert ask(server.resp_port, "BF.ADD", "new", "a") == 1
    again(server, *PARTS)
    assert ask(server.resp_port, "BF.EXISTS", "new", "a") == 1
    assert server.stop() == 0


@pytest.mark.parametrize("way", WAYS)
def test_the_log(serve: Serve, copy: Copy, tmp_path: Path, way: str) -> None:
    """Where the end of the log is damaged the server has all keys or does not start; once the loss
    is accepted all keys of the snapshot are there, and the next start finds nothing wrong."""
    chance = chance_of(way, "log")
    for _ in range(effort(1, 1, 25)):
        folder = copy()
        WAYS[way](folder.segment(folder.newer), chance)
        server = BloomeryServer(tmp_path, data=folder.path)
        if server.comes_up():
            assert missing(server.resp_port, *PARTS) == []
            server.kill()
            continue
        assert "--accept-loss" in server.printed()
        brave = serve("--accept-loss", data=folder.path)
        assert said(brave), brave.printed()
        assert missing(brave.resp_port, "first", "second") == []
        assert ask(brave.resp_port, "BF.ADD", "new", "a") == 1
        brave.kill()
        server.start()
        again(server, "first", "second")
        server.kill()


def test_all_snapshots(serve: Serve, copy: Copy, tmp_path: Path) -> None:
    """With no whole snapshot the server does not start and says in one line what is damaged and
    what to do; with --accept-loss it serves all filters that are not damaged."""
    folder = copy()
    for number in (folder.older, folder.newer):
        ours = min(one for one in folder.snapshot(number).iterdir() if one.stat().st_nlink == 1)
        WAYS["flip"](ours, random.Random(1))
    server = BloomeryServer(tmp_path, data=folder.path)
    message = server.refused()
    assert f"{folder.older:08}" in message
    assert f"{folder.newer:08}" in message
    assert "--accept-loss" in message
    brave = serve("--accept-loss", data=folder.path)
    assert said(brave)
    kinds = {one.split()[0] for one in missing(brave.resp_port, *PARTS)}
    assert len(kinds) == 1, kinds
    brave.kill()
    server.start()  # without --accept-loss: a new snapshot was written
    server.kill()


def test_a_filter_that_did_not_change(serve: Serve, copy: Copy, tmp_path: Path) -> None:
    """A filter that did not change has a file in each of both snapshots: if one is damaged, that is
    said and nothing is lost; if both are, no start passes over it."""
    folder = copy()
    older, newer = (folder.snapshot(one) / "1.bloomery" for one in (folder.older, folder.newer))
    assert older.read_bytes() == newer.read_bytes()
    assert not older.samefile(newer)
    WAYS["flip"](newer, random.Random(1))
    server = serve(data=folder.path)
    assert said(server)
    assert missing(server.resp_port, *PARTS) == []
    server.kill()
    folder = copy()
    for number in (folder.older, folder.newer):
        WAYS["flip"](folder.snapshot(number) / "1.bloomery", random.Random(1))
    assert "1.bloomery" in BloomeryServer(tmp_path, data=folder.path).refused()


def test_the_registry(serve: Serve, copy: Copy) -> None:
    """A registry that is no database any more is said on stderr and in INFO; the server serves, and
    without that file the next one makes another."""
    folder = copy()
    for path in folder.path.glob("registry.sqlite*"):
        path.write_bytes(b"no database" * 1000)
    server = serve(data=folder.path)
    with Connection(server.resp_port) as connection:
        assert wait_until(lambda: connection.info()["registry"] == "err")
        facts = connection.info()
    assert wait_until(lambda: "registry.sqlite" in server.printed())
    assert "registry.sqlite" in facts["registry_problem"]
    assert missing(server.resp_port, *PARTS) == []
    server.kill()
    for path in folder.path.glob("registry.sqlite*"):
        path.unlink()
    server.start()
    assert wait_until(lambda: in_step(server)), server.printed()


@pytest.mark.parametrize("way", WAYS)
def test_the_id(serve: Serve, copy: Copy, way: str) -> None:
    """A server that has lost its id says so, takes another, and its registry shows all filters."""
    folder = copy()
    WAYS[way](folder.path / "id", random.Random(3))
    if way == "flip":
        (folder.path / "id").write_bytes(b"\xff" * 16)
    server = serve(data=folder.path)
    assert said(server)
    assert missing(server.resp_port, *PARTS) == []
    assert wait_until(lambda: in_step(server)), server.printed()
