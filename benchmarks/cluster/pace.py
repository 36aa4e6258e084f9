"""A load at its own pace, whatever the servers do: `python -m benchmarks.cluster.pace JSON`.

A process of its own. It says `ready` once it is connected, begins at the first line of its standard
input, ends at the second, and then prints what came of it. Requests do not come all at once: each
burst has its moment, and the next one goes to the next connection, of the next server.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from benchmarks.service.wire import packed
from benchmarks.settings import Record

MOST_WAITING = 1000  # requests on one connection: beyond it nothing is sent, and that is told


@dataclass(frozen=True)
class Pace:
    """What is sent: `burst` requests at once on a connection, `rate` a second in all."""

    ports: list[int]
    command: str
    name: str
    rate: float
    burst: int = 1
    connections: int = 50  # of each port
    keys: int = 10**12  # random numbers below this


class Load:
    """The connections, and what is under way on each."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        one = packed((pace.command, pace.name, "%012d")).replace(b"$5\r\n%012d", b"$12\r\n%012d")
        self.template = one * pace.burst
        self.random = random.Random(7)
        self.sockets = [
            socket.create_connection(("127.0.0.1", port))
            for _ in range(pace.connections)
            for port in pace.ports
        ]
        self.poll = select.epoll()
        self.waiting: dict[int, int] = {}
        self.by_number = {one.fileno(): one for one in self.sockets}
        for one_socket in self.sockets:
            one_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one_socket.setblocking(False)
            self.poll.register(one_socket, select.EPOLLIN)
            self.waiting[one_socket.fileno()] = 0
        self.replies = self.errors = self.left_out = 0

    def send(self, number: int) -> None:
        """A burst on the connection whose turn it is."""
        one, burst = self.sockets[number % len(self.sockets)], self.pace.burst
        if self.waiting[one.fileno()] >= MOST_WAITING:
            self.left_out += burst
            return
        draw, keys = self.random.random, self.pace.keys
        one.sendall(self.template % tuple([int(draw() * keys) for _ in range(burst)]))
        self.waiting[one.fileno()] += burst

    def receive(self) -> None:
        for number, _ in self.poll.poll(0):
            data = self.by_number[number].recv(1 << 16)
            if not data:
                raise ConnectionError("a server closed a connection")
            replies = data.count(b"\n")
            self.waiting[number] -= replies
            self.replies += replies
            self.errors += data.count(b"-")

    def run(self) -> Record:
        pause, number = self.pace.burst / self.pace.rate, 0
        began = due = time.monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            now = time.monotonic()
            while due <= now:
                self.send(number)
                number, due = number + 1, due + pause
            self.receive()
            time.sleep(max(0.0, due - time.monotonic()))
        seconds = time.monotonic() - began
        until = time.monotonic() + 5
        while any(self.waiting.values()) and time.monotonic() < until:
            self.receive()
        return {
            "seconds": seconds,
            "replies": self.replies,
            "rate": self.replies / seconds,
            "errors": self.errors,
            "left_out": self.left_out,
            "cpu_seconds": time.process_time(),
        }


class Running:
    """The process."""

    def __init__(self, pace: Pace, process: subprocess.Popen[bytes]) -> None:
        self.pace = pace
        self.process = process
        self.found: Record = {}

    def start(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def end(self) -> Record:
        printed, _ = self.process.communicate(b"end\n", timeout=60)
        self.found = json.loads(printed)
        return self.found


@contextlib.contextmanager
def load(pace: Pace, core: str = "") -> Iterator[Running]:
    """The process, connected; on this core, if one is named."""
    command = [sys.executable, "-m", "benchmarks.cluster.pace", json.dumps(asdict(pace))]
    if core:
        command = ["taskset", "-c", core, *command]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("the load did not start")
        yield Running(pace, process)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    made = Load(Pace(**json.loads(sys.argv[1])))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(made.run()))
