"""A client beside a large request: it asks and adds, one key at a time, and notes its longest wait.

A process of its own, so that who sends the large request takes nothing of its time:
`python -m benchmarks.service.bystander PORT NAME PID` asks and adds from one line of its input to
the next, and then prints what it saw as JSON. On a busy machine it and the thread that serves wait
for a processor, which says nothing of the server: what the kernel counts of that is taken off.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from io import FileIO
from typing import Any

from benchmarks import schedstat
from benchmarks.service.wire import Wire, packed

EVERY = 0.0005
"""Seconds from a reply to the next request: a pause may be longer than it looks by as much."""

LONG = 0.002
"""A wait of more seconds is told with its time, to be held against when the machine stood still."""


def _waited(threads: list[FileIO]) -> float:
    """Seconds that these threads have waited for a processor."""
    return sum(map(schedstat.waited, threads))


def _watch(wire: Wire, name: str, threads: list[FileIO], over: threading.Event) -> dict[str, Any]:
    longest = {"read": 0.0, "write": 0.0, "wall": 0.0}
    long: list[tuple[str, float, float, float]] = []
    count, clock, last = 0, time.perf_counter, False
    while not last:
        last = over.is_set()  # one more after it: what it left to do counts too
        for what, command in (("read", "BF.EXISTS"), ("write", "BF.ADD")):
            count += 1
            request = packed((command, name, f"bystander {count}"))
            waited, began = _waited(threads), clock()
            wire.socket.sendall(request)
            wire.reply()
            ended = clock()
            waited = _waited(threads) - waited
            longest["wall"] = max(longest["wall"], ended - began)
            if ended - began - waited > LONG:
                long.append((what, began, ended, waited))
            else:
                longest[what] = max(longest[what], ended - began - waited)
        time.sleep(EVERY)
    return {**longest, "long": long, "requests": count}


def _wait(over: threading.Event) -> None:
    sys.stdin.readline()
    over.set()


def _main(port: int, name: str, pid: int) -> None:
    wire = Wire(port)
    threads = [schedstat.opened(pid), schedstat.opened()]  # the one that serves, and this one
    gc.disable()
    print("connected", flush=True)
    while sys.stdin.readline():
        over = threading.Event()
        waiting = threading.Thread(target=_wait, args=(over,))
        print("begun", flush=True)
        waiting.start()
        print(json.dumps(_watch(wire, name, threads, over)), flush=True)
        waiting.join()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
