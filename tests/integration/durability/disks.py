"""Disks that are small, and disks that hang."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from conftest import missing
from integration.servers import BloomeryServer


@contextlib.contextmanager
def small_disk(folder: Path, nbytes: int) -> Iterator[Path]:
    """A disk of so many bytes."""
    folder.mkdir()
    rights = [] if os.geteuid() == 0 else ["sudo", "-n"]
    command = ["mount", "-t", "tmpfs", "-o", f"size={nbytes},mode=777", "tmpfs", str(folder)]
    if subprocess.run([*rights, *command], capture_output=True, check=False).returncode != 0:
        missing("the right to mount a small disk (root)")
    try:
        yield folder
    finally:
        subprocess.run([*rights, "umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Put a file on the disk that leaves so many bytes free."""
    ballast = disk / "ballast"
    status = os.statvfs(disk)
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        file.write(bytes(max(0, status.f_bavail * status.f_frsize - leave)))
    return ballast


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
