"""Disks that are small, and disks that hang."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

from conftest import missing
from integration.servers import BloomeryServer


def fill(disk: Path, leave: int = 0) -> Path:
    """Extend a file on the disk until at most `leave` bytes are free, also if a server frees some
    in the meantime."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        while (excess := _free(disk) - leave) > 0:
            try:
                file.write(bytes(excess))
            except OSError as problem:  # another process took the room
                if problem.errno != errno.ENOSPC:
                    raise
    return ballast


def _free(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def registry_in(folder: Path) -> tuple[str, str]:
    """Return options that keep the registry off the disk of the log.

    SQLite creates and deletes two files for each of its transactions. On a disk that is full they
    give room to the log at any moment.
    """
    return "--registry", f"sqlite:///{folder / 'registry.sqlite'}"


class Hung:
    """A disk that hangs when told to: `fsync` and `fdatasync` of the log do not return."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            missing("a C compiler")
        folder.mkdir()
        self.library = folder / "hung_disk.so"
        source = Path(__file__).with_name("hung_disk.c")
        command = [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            "-o",
            str(self.library),
            str(source),
            "-ldl",
        ]
        subprocess.run(command, check=True)
        self.flag = folder / "hung"

    def hang(self) -> None:
        """Let nobody who syncs return, from now on."""
        self.flag.touch()

    def release(self) -> None:
        """Let all of them return."""
        self.flag.unlink(missing_ok=True)

    def waiting(self) -> int:
        """How many threads wait for the disk."""
        return len(list(self.flag.parent.glob("hung.*")))

    def server(self, folder: Path, *arguments: str, data: Path | None = None) -> BloomeryServer:
        """A server on this disk, to be started."""
        return _OnHungDisk(self, folder, *arguments, data=data)


class _OnHungDisk(BloomeryServer):
    """The library is loaded by a process from scratch alone: the first one."""

    def __init__(self, disk: Hung, folder: Path, *arguments: str, data: Path | None) -> None:
        super().__init__(folder, *arguments, data=data)
        self.disk = disk
        self.fresh = True

    def spawn(self) -> None:
        super().spawn()
        self.fresh = False

    def environment(self) -> dict[str, str]:
        library = str(self.disk.library)
        more = {"LD_PRELOAD": library, "HUNG_DISK": str(self.disk.flag), "HUNG_NAMES": "/log/"}
        return super().environment() | more
