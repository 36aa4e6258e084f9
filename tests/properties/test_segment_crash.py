"""A store whose process is killed, or whose disk is full: nothing that was acknowledged is lost."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bloomery.segments import SegmentStore
from conftest import effort
from integration.durability.disks import fill
from limits import small_disk

# Puts numbers under keys that come again and again, deletes every seventh, and says how far it is.
WRITER = """
import sys
from bloomery.segments import SegmentStore
store = SegmentStore(sys.argv[1], memtable_bytes=20_000, fsync=False)
number = int(sys.argv[2])
while True:
    key = f"key {number * 7919 % 500}"
    if number % 7 == 0:
        store.delete(key)
    else:
        store.put(key, f"{number}:" + "x" * (number % 90))
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
"""


def expected(upto: int) -> dict[bytes, bytes]:
    """What the writer has put once it has said so."""
    held: dict[bytes, bytes] = {}
    for number in range(upto + 1):
        key = b"key %d" % (number * 7919 % 500)
        held.pop(key, None)
        if number % 7:
            held[key] = b"%d:" % number + b"x" * (number % 90)
    return held


def killed_after(folder: Path, start: int, lines: int) -> int:
    """Run the writer until it has said so many numbers, kill it, and return the last it said."""
    command = [sys.executable, "-c", WRITER, str(folder), str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines)]
        os.kill(writer.pid, signal.SIGKILL)
        said += writer.stdout.readlines()
    return int([line for line in said if line.endswith(b"\n")][-1])


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    """Under load, at random points, again and again on the same store."""
    chance = random.Random(18)
    folder, number = tmp_path / "store", 0
    for _ in range(effort(2, 5, 150)):
        last = killed_after(folder, number, chance.choice([1, 50, 300, 1500, 4000]))
        with SegmentStore(folder) as store:
            found = dict(store.scan())
            # The write that was under way may be in it.
            assert found in (expected(last), expected(last + 1))
            number = last + 1 if found == expected(last) else last + 2
            assert all(store.get(key) == value for key, value in found.items())


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_on_a_full_disk(tmp_path: Path) -> None:
    """Puts fail while it is full; all that were taken are there, and it goes on with room."""
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        store = SegmentStore(disk / "store", memtable_bytes=100_000)
        held: dict[bytes, bytes] = {}

        def put(start: int) -> None:
            for number in range(start, start + 20_000):
                key, value = b"key %d" % number, bytes(500)
                store.put(key, value)
                held[key] = value

        ballast = fill(disk, leave=1 << 20)
        with pytest.raises(OSError, match=r"No space|full"):
            put(0)
        assert held
        assert dict(store.scan()) == held
        ballast.unlink()
        more = {b"more %d" % number: b"x" for number in range(100)}
        store.put_many(more)
        store.flush()
        store.close()
        with SegmentStore(disk / "store") as store:
            assert dict(store.scan()) == held | more
