"""What all servers of the tests share: a process, its log, free ports, and waiting."""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from nursery import Forked
from waiting import PATIENCE, wait_until


def free_port() -> int:
    """A port that nobody has at this moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them, no two the same, none of them given before.

    From below those that the system gives to whoever takes any: a server that is killed and comes
    back to its port would now and then find one of another test there.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def _own_ports() -> Iterator[int]:
    """Those of this test worker, again and again, from anywhere on: there may be another run."""
    last = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]) - 1
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = max(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), worker + 1)
    ports = range(10_000 + worker, max(last, 20_000), workers)
    start = random.randrange(len(ports))
    return itertools.cycle([*ports[start:], *ports[:start]])


_PORTS = _own_ports()


class Server:
    """What all of them share; a subclass gives `command`, and `ready` once it can be used."""

    stop_signal = signal.SIGTERM
    tries = 5

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.frozen = False

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it takes connections."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """What it sees of ours."""
        return dict(os.environ)

    def start(self) -> None:
        """Start it, on the data that is there, and return when it is ready.

        A port can be taken between choosing and binding it, and PostgreSQL refuses its data while
        a child of one that was killed still ends: both have passed at the second try.
        """
        assert self.process is None, "it runs already"
        for _ in range(self.tries):
            self.spawn()
            wait_until(lambda: self._ended() or self.ready())
            if not self._ended() and self.ready():
                return
            self.kill()
            time.sleep(0.5)
        raise AssertionError(f"{self.command()} did not come up:\n{self.printed()}")

    def spawn(self) -> None:
        """Start the process and do not wait for it."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment(),
            )

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def printed(self) -> str:
        """What it printed since it was last started."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def _end(self, with_signal: signal.Signals) -> int:
        running, self.process, self.frozen = self.process, None, False
        if running is None:
            return 0
        running.send_signal(with_signal)
        try:
            return running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            raise AssertionError(f"{with_signal.name} did not end it:\n{self.printed()}") from None

    def stop(self) -> int:
        """End it in good order; its exit code."""
        return self._end(self.stop_signal)

    def kill(self) -> None:
        """`kill -9`: it learns nothing of it."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP, to its children too: it takes connections, and answers nothing."""
        self._signal_all(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Let it go on, if it was frozen."""
        self.frozen = False
        if self.process is not None:
            self._signal_all(signal.SIGCONT)

    def _signal_all(self, with_signal: signal.Signals) -> None:
        os.kill(self.pid, with_signal)  # before its children: it starts no more of them
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), with_signal)

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same data."""
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self.process is not None, "it does not run"
        return self.process.pid
