"""A client beside a large request: it asks and adds, one key at a time, and notes its longest wait.

A process of its own, so that who sends the large request takes nothing of its time:
`python -m benchmarks.service.bystander PORT NAME` asks and adds from one line of its input to the
next, and then prints what it saw as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from benchmarks.service.wire import Wire, packed

EVERY = 0.0005
"""Seconds from a reply to the next request: a pause may be longer than it looks by as much."""


@contextlib.contextmanager
def beside(port: int, name: str) -> Iterator[Bystander]:
    """A bystander that uses a filter of that name."""
    command = [sys.executable, "-m", "benchmarks.service.bystander", str(port), name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Bystander(process)
    finally:
        process.kill()
        process.communicate()


class Bystander:
    """The process, as who measures has it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._line()  # it is connected

    def begin(self) -> None:
        self._say()
        self._line()

    def end(self) -> dict[str, float]:
        """Seconds of the longest `read` and of the longest `write` since `begin`, and how many."""
        self._say()
        found: dict[str, float] = json.loads(self._line())
        return found

    def _say(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the client beside the request has ended")
        return line


def _watch(wire: Wire, name: str, over: threading.Event) -> dict[str, float]:
    longest = {"read": 0.0, "write": 0.0}
    count, clock, last = 0, time.perf_counter, False
    while not last:
        last = over.is_set()  # one more after it: what it left to do counts too
        for what, command in (("read", "BF.EXISTS"), ("write", "BF.ADD")):
            count += 1
            request = packed((command, name, f"bystander {count}"))
            began = clock()
            wire.socket.sendall(request)
            wire.reply()
            longest[what] = max(longest[what], clock() - began)
        time.sleep(EVERY)
    return {**longest, "requests": count}


def _main(port: int, name: str) -> None:
    wire = Wire(port)
    gc.disable()
    print("connected", flush=True)
    while sys.stdin.readline():
        over = threading.Event()
        waiting = threading.Thread(target=lambda: (sys.stdin.readline(), over.set()))  # noqa: B023
        print("begun", flush=True)
        waiting.start()
        print(json.dumps(_watch(wire, name, over)), flush=True)
        waiting.join()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
