"""A byte of a data folder that changed, anywhere: it is said, or it does not matter."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.storage.operations import Op
from bloomery.storage.recovery import Recovery, recover
from bloomery.storage.state import State
from conftest import effort
from unit.storage.serving import SETTINGS, Server, assert_same, hashes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, State]]:
    """Two generations, a closed segment and an open one, as a killed server left them."""
    path = tmp_path_factory.mktemp("damage")
    server = Server(path / "live")
    numbers = [server.create(kind) for kind in SETTINGS]
    for round in range(5):
        for number, kind in zip(numbers, SETTINGS, strict=True):
            for part in range(6):
                server.do(Op.ADD, number, hashes(100 * round + part, 10, kind))
        server.wait(10)
        if round in (1, 2):
            server.snapshot()
        else:
            server.log.cut()
            server.log.sync()
    server.do(Op.ADD, numbers[0], hashes(9, 9))
    yield server.killed(path / "killed"), server.state
    server.log.close()


def flipped(path: Path, chance: random.Random) -> None:
    """Change one byte."""
    raw = bytearray(path.read_bytes())
    at = chance.randrange(len(raw))
    raw[at] ^= chance.randrange(1, 256)
    path.write_bytes(raw)


def blanked(path: Path, chance: random.Random) -> None:
    """Overwrite a page."""
    raw = bytearray(path.read_bytes())
    at = chance.randrange(len(raw)) // 512 * 512
    raw[at : at + 512] = chance.randbytes(min(512, len(raw) - at))
    path.write_bytes(raw)


def cut_off(path: Path, chance: random.Random) -> None:
    """Take the end away."""
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def recovered(data: Path) -> Recovery | None:
    """What comes back; None if it was refused with one of our errors."""
    with contextlib.suppress(errors.CorruptData, errors.LogUnavailable):
        return recover(data)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flipped, blanked, cut_off])
def test_no_damage_is_silent(
    folder: tuple[Path, State], tmp_path: Path, damage: Callable[[Path, random.Random], None]
) -> None:
    """After damage to any file, either something is said or the filters are as they were; and what
    is then there is found whole by the next start."""
    killed, state = folder
    chance = random.Random(damage.__name__)
    for round in range(effort(40, 150, 5000)):
        data = tmp_path / str(round)
        shutil.copytree(killed, data)
        choices = [path for path in data.rglob("*") if path.is_file() and path.stat().st_size]
        # The index beside a write-ahead file is made anew.
        path = chance.choice([p for p in choices if p.suffix not in ("", ".sqlite-shm")])
        damage(path, chance)
        found = recovered(data)
        if found is not None:
            if not found.problems:
                assert_same(found.state, state)
            again = recover(data)
            assert again.problems == []
            assert_same(again.state, found.state)
        shutil.rmtree(data)
