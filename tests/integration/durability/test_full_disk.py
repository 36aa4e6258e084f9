"""A disk that is full: writes are refused and say so, checks go on, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from integration.durability.disks import fill, registry_in
from integration.resp.wire import Connection, Refused
from integration.servers import BloomeryServer, Serve, wait_until
from limits import small_disk

pytestmark = pytest.mark.slow
DISK_BYTES = 12 << 20
REFUSING = "writes are refused: the log cannot be written\n"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few MiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


def add_until_refused(connection: Connection, start: int) -> tuple[list[str], str, str]:
    """Add keys: those that were acknowledged, the one that was not, and why."""
    done: list[str] = []
    for number in range(start, start + 1_000_000):
        key = f"key-{number}"
        try:
            connection.ask("BF.ADD", "filter", key)
        except Refused as refused:
            return done, key, str(refused)
        done.append(key)
    raise AssertionError("the disk is never full")


def lost(connection: Connection, keys: list[str]) -> list[str]:
    """Which of the keys the server does not have."""
    found = []
    for start in range(0, len(keys), 1000):
        part = keys[start : start + 1000]
        answers = connection.ask("BF.MEXISTS", "filter", *part)
        found += [key for key, there in zip(part, answers, strict=True) if not there]
    return found


def takes_writes(connection: Connection) -> bool:
    """Whether the server accepts a write of a new key: one that it has needs no log."""
    try:
        connection.ask("BF.ADD", "filter", f"probe {uuid4()}")
    except Refused:
        return False
    return True


def test_writes_wait_for_room(serve: Serve, disk: Path, tmp_path: Path) -> None:
    """With a full disk writes are refused with the reason and checks go on; with room again writes
    are taken without a restart. After `kill -9`, what was acknowledged is there, and so are keys
    that were refused and then added again."""
    server = serve(*registry_in(tmp_path), data=disk / "data")
    sure: list[str] = []
    with Connection(server.resp_port) as connection:
        connection.ask("BF.RESERVE", "filter", 1e-7, 100_000)
        for turn in range(3):
            ballast = fill(disk, leave=200_000)
            done, refused, why = add_until_refused(connection, turn * 1_000_000)
            sure += done
            assert done
            assert why.startswith("MISCONF"), why
            assert "No space left" in why
            assert connection.info()["refusing_writes"] == "1"
            told = httpx.get(f"{server.url}/readyz")
            assert (told.status_code, told.text) == (503, REFUSING)
            assert httpx.get(f"{server.url}/readyz?writes=false").status_code == 200
            assert lost(connection, sure) == []
            assert connection.ask("BF.EXISTS", "filter", "never") == 0
            for command in (
                ("BF.RESERVE", "other", 0.01, 10),
                ("DEL", "filter"),
                ("CF.ADD", "c", "a"),
            ):
                with pytest.raises(Refused, match="MISCONF"):
                    connection.ask(*command)
            ballast.unlink()
            assert wait_until(lambda: takes_writes(connection)), server.printed()
            connection.ask("BF.ADD", "filter", refused)
            sure.append(refused)
            assert connection.info()["refusing_writes"] == "0"
    server.kill()
    server.start()
    with Connection(server.resp_port) as connection:
        assert lost(connection, sure) == []
        assert connection.info()["recovery_problems"] == "0"


def test_killed_with_a_full_disk(serve: Serve, disk: Path) -> None:
    """Killed while the disk is full, a server starts once there is room, and has all that was
    acknowledged."""
    server = serve(data=disk / "data")
    with Connection(server.resp_port) as connection:
        connection.ask("BF.RESERVE", "filter", 1e-7, 100_000)
        ballast = fill(disk, leave=300_000)
        done, _, _ = add_until_refused(connection, 0)
    server.kill()
    fill(disk)
    stuck = BloomeryServer(server.folder, data=server.data)
    assert "No space left" in (message := stuck.refused()) or "full" in message, message
    ballast.unlink()
    server.start()
    with Connection(server.resp_port) as connection:
        assert lost(connection, done) == []


@pytest.mark.parametrize("leave", [0, 10_000, 40_000, 100_000])
def test_terminated_with_a_full_disk(serve: Serve, disk: Path, leave: int) -> None:
    """SIGTERM with a full disk ends with code 1 and says in a line each what was not done, however
    little room there is; the audit log is closed; with room again, all that was acknowledged is
    there."""
    server = serve(data=disk / "data")
    with Connection(server.resp_port) as connection:
        connection.ask("BF.RESERVE", "filter", 1e-7, 100_000)
        ballast = fill(disk, leave=300_000)
        done, key, _ = add_until_refused(connection, 0)
        ballast.unlink()
        fill(disk, leave=leave)
    before = len(server.printed().splitlines())
    assert server.stop() == 1, server.printed()
    printed = server.printed()
    assert "no snapshot was made" in printed
    assert "Traceback" not in printed
    assert "internal" not in printed
    assert len(printed.splitlines()) - before < 10, printed
    audit = (server.data / "audit.log").read_text()
    assert '"operation": "stop"' in audit or "audit.log: [Errno 28]" in printed, printed
    ballast.unlink()
    server.start()
    with Connection(server.resp_port) as connection:
        assert lost(connection, done) == []
        assert lost(connection, [key]) == [key], printed  # its write was refused


def test_no_room_for_a_snapshot(serve: Serve, disk: Path) -> None:
    """A snapshot that does not fit fails and says so; the one before it stays, the server goes on,
    and with room again the next one is made."""
    server = serve(data=disk / "data")
    snapshots = disk / "data" / "snapshots"
    with Connection(server.resp_port) as connection:
        connection.ask("BF.RESERVE", "filter", 1e-7, 400_000, "KIND", "bloom")
        connection.ask("BF.ADD", "filter", "before")
        connection.ask("SAVE")
        before = sorted(one.name for one in snapshots.glob("0*"))
        ballast = fill(disk, leave=600_000)
        connection.ask("BF.ADD", "filter", "after")
        with pytest.raises(Refused, match=r"No space left|full"):
            connection.ask("SAVE")
        facts = connection.info()
        assert facts["rdb_last_bgsave_status"] == "err"
        assert facts["last_snapshot_problem"]
        assert sorted(one.name for one in snapshots.glob("0*")) == before
        assert not list(snapshots.glob(".*.tmp"))
        assert connection.ask("BF.ADD", "filter", "later") == 1
        ballast.unlink()
        connection.ask("SAVE")
        assert connection.info()["last_snapshot_problem"] == ""
    server.kill()
    server.start()
    with Connection(server.resp_port) as connection:
        assert lost(connection, ["before", "after", "later"]) == []


def test_a_disk_that_cannot_be_written(disk: Path, tmp_path: Path) -> None:
    """A data folder that cannot be written to is refused in one line that names it."""
    rights = [] if os.geteuid() == 0 else ["sudo", "-n"]
    subprocess.run([*rights, "mount", "-o", "remount,ro", str(disk)], check=True)
    message = BloomeryServer(tmp_path, data=disk / "data").refused()
    assert str(disk) in message
    assert "Read-only" in message
