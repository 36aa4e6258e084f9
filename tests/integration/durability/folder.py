"""A data folder with two snapshots and a log behind them, left by `kill -9`, and
ways to damage it."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integration.durability.load import KINDS
from integration.resp.wire import Connection
from integration.servers import BloomeryServer

PARTS = ("first", "second", "last")  # before the older snapshot, before the newer, after both


def keys_of(part: str) -> list[str]:
    """The keys that were added in one part of the folder's life."""
    return [f"{part}-{number}" for number in range(300)]


@dataclass
class Folder:
    """The folder; `older` and `newer` are the numbers of its snapshots."""

    path: Path
    older: int
    newer: int

    def copy(self, to: Path) -> Folder:
        """Another one like it, in which files that were one still are one."""
        subprocess.run(["cp", "-a", str(self.path), str(to)], check=True)
        return Folder(to, self.older, self.newer)

    def snapshot(self, number: int) -> Path:
        """The folder of a snapshot."""
        return self.path / "snapshots" / f"{number:08}"

    def segment(self, number: int) -> Path:
        """A segment of the log."""
        return self.path / "log" / f"{number:08}.log"


def make(folder: Path) -> Folder:
    """Fill a folder: a filter of every kind, and one that does not change after the first part."""
    server = BloomeryServer(folder)
    server.start()
    try:
        with Connection(server.resp_port) as connection:
            connection.ask("BF.ADD", "still", "a")
            snapshots = []
            for part in PARTS:
                if part == "first":
                    for kind, (command, *settings) in KINDS.items():
                        connection.ask(command, kind, *settings)
                for kind in KINDS:
                    if kind == "rediscuckoo":
                        connection.ask("CF.INSERT", kind, "ITEMS", *keys_of(part))
                    else:
                        connection.ask("BF.MADD", kind, *keys_of(part))
                if part != "last":
                    connection.ask("SAVE")
                    snapshots.append(int(connection.info()["last_snapshot"]))
    finally:
        server.kill()
    return Folder(server.data, *snapshots)


def missing(port: int, *parts: str) -> list[str]:
    """Which keys of these parts the server does not have, each with its filter."""
    lost = []
    with Connection(port) as connection:
        for kind in KINDS:
            command = "CF.MEXISTS" if kind == "rediscuckoo" else "BF.MEXISTS"
            for part in parts:
                answers = connection.ask(command, kind, *keys_of(part))
                pairs = zip(keys_of(part), answers, strict=True)
                lost += [f"{kind} {key}" for key, there in pairs if not there]
        if not connection.ask("BF.EXISTS", "still", "a"):
            lost.append("still a")
    return lost


def flip(path: Path, chance: random.Random) -> None:
    """Change a byte somewhere."""
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    path.write_bytes(data)


def scribble(path: Path, chance: random.Random) -> None:
    """Change a stretch of bytes somewhere."""
    data = bytearray(path.read_bytes())
    start = chance.randrange(len(data))
    data[start : start + 4096] = chance.randbytes(len(data[start : start + 4096]))
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    """Lose the end."""
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def remove(path: Path, chance: random.Random) -> None:
    """Lose it all."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


WAYS: dict[str, Callable[[Path, random.Random], None]] = {
    "flip": flip,
    "scribble": scribble,
    "cut": cut,
    "remove": remove,
}
