"""A process that has imported the command, and forks one whenever a test starts one.

A `bloomery serve` from scratch spends over a second of a core on imports, another command a quarter
of one, and the tests start a thousand. What is forked runs the same `main` on the same arguments,
and has a pid, descriptors, limits, signals and an end of its own. Where the process itself is
looked at (its arguments, what is loaded into it), a server is `fresh` (servers/bloomery_server.py).

    test ── order, channel, 0, 1, 2 ──> nursery ─fork─> keeper ─fork─> command
     ^                                                    │
     └──────────────── its pid, its exit code ────────────┘
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os import _exit
from pathlib import Path
from typing import Any, NoReturn

_TESTS = str(Path(__file__).parent)
# What a command always comes to; without the tests' folder, which it does not see either.
# Its end is as always, but that nothing is freed that goes with the process anyway: that took half
# a second of a core each time. What is registered first is done last.
_PROGRAM = f"""
import atexit, os
code = []
atexit.register(lambda: code and os._exit(code[0]))
import socket, sys
sys.path.insert(0, {_TESTS!r})
from nursery import tend
sys.path.remove({_TESTS!r})
import bloomery.cli.app
{{imports}}
tend(socket.socket(fileno=0), code)
"""
SERVER = """
import alembic.command, sqlalchemy.dialects.sqlite, uvloop
import bloomery.cli.server.serve, bloomery.service.server
import bloomery.service.http.app, bloomery.service.observe.metrics
import bloomery.service.registry.registry
"""
FILES = """
import bloomery.cli.files.bank, bloomery.cli.files.build, bloomery.cli.files.create
import bloomery.cli.files.info, bloomery.cli.lines.count, bloomery.cli.lines.dedup
import bloomery.cli.lines.diff
import bloomery.cli.files.membership, bloomery.cli.files.merge, bloomery.cli.plan
"""
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)


@functools.cache
def _nursery(imports: str) -> socket.socket:
    """Where to order commands; the process ends with the one who asks here first."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        program = [sys.executable, "-c", _PROGRAM.format(imports=imports)]
        process = subprocess.Popen(program, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
    process.returncode = 0  # nobody waits for it
    atexit.register(ours.close)
    return ours


class Forked:
    """A command that was forked, to be used as a `Popen`; `files` are its 0, 1 and 2."""

    def __init__(
        self,
        arguments: list[str],
        files: tuple[int, int, int],
        folder: Path,
        environment: dict[str, str],
        imports: str = SERVER,
    ):
        self.returncode: int | None = None
        order = {
            "arguments": arguments,
            "folder": str(folder),
            "environment": environment,
            "limits": [resource.getrlimit(one) for one in _LIMITS],
        }
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            sent = [theirs.fileno(), *files]
            socket.send_fds(_nursery(imports), [json.dumps(order).encode()], sent)
        self.pid = int(self._channel.recv(64))

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = int(self._channel.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("bloomery", timeout or 0) from None
            self._channel.close()
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def tend(orders: socket.socket, code: list[int]) -> None:
    """Fork a command for each order, until there is nobody to order any; its exit code goes into
    `code`."""
    gc.freeze()  # or each would look through, and so copy, all that is here
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers, for whom nobody waits
    while True:
        order, (channel, *files), _, _ = _received(orders)
        if os.fork() == 0:
            orders.detach()
            _keep(json.loads(order), channel, files, code)
        for file in (channel, *files):
            os.close(file)


def _received(orders: socket.socket) -> Any:
    message = socket.recv_fds(orders, 1 << 20, 4)
    if not message[0]:
        sys.exit()
    return message


def _keep(order: dict[str, Any], channel: int, files: list[int], code: list[int]) -> None:
    """Fork the command, and tell its pid and, at its end, its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        _become(order, files, code)
    for file in (0, 1, 2, *files):  # or who reads its output would wait for us too
        os.close(file)
    os.write(channel, b"%d" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(channel, b"%d" % os.waitstatus_to_exitcode(status))
    _exit(0)


def _become(order: dict[str, Any], files: list[int], code: list[int]) -> NoReturn:
    """Be that command, with nothing open that is not its own."""
    from bloomery.cli import main

    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1024)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for one, limit in zip(_LIMITS, order["limits"], strict=True):
        resource.setrlimit(one, tuple(limit))
    sys.argv = ["bloomery", *order["arguments"]]
    code.append(main(order["arguments"]))
    sys.exit(code[0])


def run(
    arguments: list[str],
    given: bytes = b"",
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
    imports: str = SERVER,
    timeout: float = 120.0,
) -> subprocess.CompletedProcess[bytes]:
    """Fork a command, and wait for its end, as `subprocess.run` does."""
    (theirs_in, feed), (out, theirs_out), (err, theirs_err) = (os.pipe() for _ in range(3))
    files = (theirs_in, theirs_out, theirs_err)
    around = dict(os.environ) if environment is None else environment
    command = Forked(arguments, files, folder or Path.cwd(), around, imports)
    for file in files:
        os.close(file)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(_feed, feed, given)
        outputs = [pool.submit(_read, file) for file in (out, err)]
        try:
            code = command.wait(timeout)
        finally:
            command.kill()
    return subprocess.CompletedProcess(arguments, code, *(output.result() for output in outputs))


def _feed(file: int, given: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(file, "wb", buffering=0) as pipe:
        while given:
            given = given[pipe.write(given) :]


def _read(file: int) -> bytes:
    with open(file, "rb") as pipe:
        return pipe.read()
