"""The servers that are measured: Debian's redis-server and ours, each on the servers' core."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import schedstat
from benchmarks.service.wire import Wire

NEEDED = ("redis-server", "redis-benchmark", "taskset")
START_SECONDS = 120


def cores() -> tuple[str, str]:
    """One core for the servers and one for who asks them; the same one where there is but one."""
    found = sorted(os.sched_getaffinity(0))
    return str(found[0]), str(found[-1])


def check_tools() -> None:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise RuntimeError(f"this part needs {', '.join(missing)}: see scripts/servers")


class Running:
    """A server that runs, and what the kernel knows about it."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], port: int, http_port: int = 0
    ) -> None:
        self.name = name
        self.process = process
        self.port = port
        self.http_port = http_port

    def wire(self) -> Wire:
        return Wire(self.port)

    def cpu_seconds(self) -> float:
        """Time on the processor until now, of all its threads."""
        return schedstat.cpu_seconds(self.process.pid)

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self, number: int = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for data, gone at the end; TMPDIR says on which disk."""
    with tempfile.TemporaryDirectory(prefix="bloomery-bench-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Running]:
    """Redis as fast as it gets: it writes nothing to the disk."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]
    command += ["--dir", str(folder), "--logfile", str(folder / "redis.log")]
    server = Running("redis", subprocess.Popen(["taskset", "-c", cores()[0], *command]), port)
    try:
        _wait(server)
        yield server
    finally:
        server.stop()


def start(data: Path, *options: str, pinned: bool = True) -> tuple[Running, float]:
    """Our server, and how many seconds it took to say that it is ready."""
    command = [sys.executable, "-m", "bloomery", "serve", "--data", str(data)]
    command += ["--resp-port", "0", "--http-port", "0", *options]
    if pinned:
        command = ["taskset", "-c", cores()[0], *command]
    with (data.parent / f"{data.name}.stderr").open("ab") as said:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    seconds = time.monotonic() - began
    if not line.startswith("bloomery ready: resp="):
        process.kill()
        process.wait()
        process.stdout.close()
        said_text = (data.parent / f"{data.name}.stderr").read_text()
        raise RuntimeError(f"the server did not start: {line!r}\n{said_text[-2000:]}")
    resp, http = (int(port) for port in re.findall(r"(?:resp|http)=\S*:(\d+)", line))
    return Running("bloomery", process, resp, http), seconds


@contextlib.contextmanager
def bloomery(data: Path, *options: str, pinned: bool = True) -> Iterator[Running]:
    server, _ = start(data, *options, pinned=pinned)
    try:
        yield server
    finally:
        server.stop()


def _wait(server: Running) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with server.wire() as wire:
                wire.call("PING")
            return
        except OSError:
            if server.process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.02)
