"""A process that has imported the server, and forks one whenever a test starts one.

A `bloomery serve` from scratch spends over a second of a core on imports, and the tests start
hundreds. One that is forked runs the same `main` on the same arguments, and has a pid, descriptors,
limits, signals and an end of its own. Where the process itself is looked at (its arguments, what
is loaded into it), a server is `fresh` (servers/bloomery_server.py).

    test ── order, log, channel ──> nursery ─fork─> keeper ─fork─> server
     ^                                                │
     └────────────── its pid, its exit code ──────────┘
"""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

_TESTS = str(Path(__file__).parents[1])
# What `bloomery serve` always comes to; without the tests' folder, which it does not see either.
_PROGRAM = f"""
import socket, sys
sys.path.insert(0, {_TESTS!r})
from integration.nursery import tend
sys.path.remove({_TESTS!r})
import alembic.command, sqlalchemy.dialects.sqlite, uvloop
import bloomery.cli.app, bloomery.cli.server.serve, bloomery.service.server
tend(socket.socket(fileno=0))
"""
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)


@functools.cache
def _nursery() -> socket.socket:
    """Where to order servers; the process ends with the one who asks here first."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=theirs.fileno(), stdout=subprocess.DEVNULL
        )
    process.returncode = 0  # nobody waits for it
    return ours


class Forked:
    """A server that was forked, to be used as a `Popen`."""

    def __init__(self, arguments: list[str], log: int, folder: Path, environment: dict[str, str]):
        self.returncode: int | None = None
        order = {
            "arguments": arguments,
            "folder": str(folder),
            "environment": environment,
            "limits": [resource.getrlimit(one) for one in _LIMITS],
        }
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(_nursery(), [json.dumps(order).encode()], [theirs.fileno(), log])
        self.pid = int(self._channel.recv(64))

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = int(self._channel.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("bloomery serve", timeout or 0) from None
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


def tend(orders: socket.socket) -> None:
    """Fork a server for each order, until there is nobody to order any."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers, for whom nobody waits
    while True:
        order, (channel, log), _, _ = _received(orders)
        if os.fork() == 0:
            orders.detach()
            _keep(json.loads(order), channel, log)
        os.close(channel)
        os.close(log)


def _received(orders: socket.socket) -> Any:
    found = socket.recv_fds(orders, 1 << 20, 2)
    if not found[0]:
        sys.exit()
    return found


def _keep(order: dict[str, Any], channel: int, log: int) -> None:
    """Fork the server, and tell its pid and, at its end, its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(log, 1)
    os.dup2(log, 2)
    pid = os.fork()
    if pid == 0:
        _serve(order)
    os.write(channel, b"%d" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(channel, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _serve(order: dict[str, Any]) -> NoReturn:
    """Be that server, with nothing open that is not its own."""
    from bloomery.cli import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, 1024)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for one, limit in zip(_LIMITS, order["limits"], strict=True):
        resource.setrlimit(one, tuple(limit))
    sys.argv = ["bloomery", *order["arguments"]]
    sys.exit(main(order["arguments"]))
