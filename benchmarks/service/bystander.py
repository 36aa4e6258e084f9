"""A client beside a large request: it asks and adds, one key at a time, and notes its longest wait.

A process of its own, so that who sends the large request takes nothing of its time:
`python -m benchmarks.service.bystander PORT NAME` asks and adds from one line of its input to the
next, and then prints what it saw as JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time

from benchmarks.service.wire import Wire, packed

EVERY = 0.0005
"""Seconds from a reply to the next request: a pause may be longer than it looks by as much."""


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


def _wait(over: threading.Event) -> None:
    sys.stdin.readline()
    over.set()


def _main(port: int, name: str) -> None:
    wire = Wire(port)
    gc.disable()
    print("connected", flush=True)
    while sys.stdin.readline():
        over = threading.Event()
        waiting = threading.Thread(target=_wait, args=(over,))
        print("begun", flush=True)
        waiting.start()
        print(json.dumps(_watch(wire, name, over)), flush=True)
        waiting.join()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
