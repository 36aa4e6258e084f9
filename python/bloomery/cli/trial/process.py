"""A process of the cluster: started, followed, started again when it dies, and ended.

Each has a thread that reads what it prints and waits for its end. It is in a session of its own:
Ctrl-C at a terminal goes to all processes there, and Redis would be gone before the nodes have
written to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

Tell = Callable[[str], None]

_LONGEST = 4096  # bytes of a line that are shown
_LAST = 3  # lines that are told when it ends,
_TOLD = 200  # and characters of each
_SHORT = 10.0  # seconds: who lives no longer has failed to start
_TRIES = 5  # in a row, of one that has been up
_PAUSES = (0.2, 5.0)  # seconds between them, at first and at most
_POLL = 0.05
_LEFT_OUT = ("BLOOMERY_", "BALANCER_", "NOTIFY_SOCKET", "WATCHDOG_")
# Whoever is started like this ends when we are killed: SIGTERM from the kernel (Linux). By a
# program, since no Python may safely run between fork and exec in a process with threads.
_BOUND = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as problem:
        sys.exit(f"{sys.argv[2]}: {problem.strerror}")
"""


class ManagedProcess(ABC):
    """One process; subclasses say which, and when it is up."""

    tries = 1  # before it has been up once

    def __init__(self, name: str, folder: Path, tell: Tell) -> None:
        """`tell` shows a line to whoever watches; `folder` is made, if need be."""
        self.name = name
        self.folder = folder
        self.failed = ""  # why it was given up
        self.been_up = False
        self.process: subprocess.Popen[bytes] | None = None
        self._tell = tell
        self._last: deque[str] = deque(maxlen=_LAST)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)

    # What subclasses say.

    @abstractmethod
    def command(self) -> list[str]:
        """The program, by its whole path, and its arguments."""

    def environment(self) -> dict[str, str]:
        """The environment variables of the process."""
        return environment()

    def files(self) -> list[int]:
        """Descriptors that it inherits."""
        return []

    @abstractmethod
    def up(self) -> bool:
        """Does it answer?"""

    def heard(self, line: str) -> bool:
        """Take a line that the process has printed; return whether to show it."""
        return True

    # Its life.

    def start(self) -> None:
        """Start it, and let the thread keep it running."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread.start()

    def wait(self, stopped: Callable[[], bool]) -> bool:
        """Return True when it is up, and False if it failed, or we are told to stop."""
        while not stopped() and not self.failed:
            if self.up():
                self.been_up = True
                return True
            time.sleep(_POLL)
        return False

    def stop(self) -> None:
        """Tell it to end, and let it not be started again."""
        with self._lock:
            self._stopping.set()
            if self.process is not None:
                self.process.terminate()

    def kill(self) -> int | None:
        """Kill it as `kill -9` does, so that it is started again; the number that it had."""
        with self._lock:
            if self.process is None:
                return None
            self.process.kill()
            return self.process.pid

    def is_again(self, before: int | None) -> bool:
        """Is it up, as another process than that?"""
        return self.process is not None and self.process.pid != before and self.up()

    def join(self, seconds: float, hurry: Callable[[], bool]) -> None:
        """Wait until it has ended; after so long, or in a hurry, it is killed."""
        until = time.monotonic() + seconds
        while self._thread.is_alive():
            self._thread.join(_POLL)
            late = time.monotonic() > until
            if self.process is not None and (late or hurry()):
                if late:
                    self._tell(f"{self.name} does not end within {seconds:g} s: it is killed")
                self.process.kill()
                self._thread.join()

    def _keep(self) -> None:
        short = 0  # lives in a row
        pause = _PAUSES[0]
        while True:
            began = time.monotonic()
            try:
                how = self._live()
            except OSError as problem:
                how = f"cannot be started: {problem.strerror}"
            if self._stopping.is_set():
                return
            if time.monotonic() - began > _SHORT:
                short, pause = 0, _PAUSES[0]
            short += 1
            text = ": ".join([f"{self.name} {how}", *filter(None, [" / ".join(self._last)])])
            if short >= (_TRIES if self.been_up else self.tries):
                self.failed = text
                return
            self._tell(f"{text}; it is started again")
            self._stopping.wait(pause)
            pause = min(2 * pause, _PAUSES[1])

    def _live(self) -> str:
        """From its start to its end, and how that was."""
        with self._lock:
            if self._stopping.is_set():
                return ""
            self.process = self._spawn()
        assert self.process.stdout is not None
        with self.process.stdout as printed:
            self._follow(printed)
        return how_it_ended(self.process.wait())

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._last.clear()
        command = self.command()
        if sys.platform == "linux":
            command = [sys.executable, "-ISc", _BOUND, str(os.getpid()), *command]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            pass_fds=self.files(),
            start_new_session=True,
        )

    def _follow(self, printed: IO[bytes]) -> None:
        while data := printed.readline(_LONGEST):
            line = data.decode("utf-8", "replace").rstrip()
            if not line:
                continue
            self._last.append(line[:_TOLD])
            if self.heard(line):
                self._tell(f"{self.name} | {line}")


def environment(**more: str) -> dict[str, str]:
    """Ours, without what is meant for another server than those that we start."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_LEFT_OUT)}
    return {**kept, "PYTHONSAFEPATH": "1", **more}


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
