"""The load under which a snapshot is made: 50 connections, 80% BF.EXISTS and 20% BF.ADD.

A process of its own (`python -m benchmarks.service.load PORT NAME RATE`) that sends bursts at its
own pace, whatever the server does, until its standard input ends; then it prints what came of it.
With a rate of `inf`, each connection sends its next burst when the last was answered: what the
server, the machine and this process can do together.
"""

from __future__ import annotations

import json
import math
import random
import select
import socket
import sys
import time

from benchmarks.service.wire import packed

CONNECTIONS = 50
BURST = 10  # requests on one connection at once
TICK = 0.001
MOST_WAITING = 100 * BURST  # on one connection: beyond it nothing more is sent, and that is told
ANY = 10**12


def template(name: str) -> bytes:
    """A burst, but for its keys; every fifth request adds one."""
    words = [("BF.ADD" if i % 5 == 0 else "BF.EXISTS", name, "%012d") for i in range(BURST)]
    return b"".join(packed(one).replace(b"$5\r\n%012d", b"$12\r\n%012d") for one in words)


class Load:
    """The connections, and what is under way on each."""

    def __init__(self, port: int, name: str, rate: float) -> None:
        self.template = template(name)
        self.closed = math.isinf(rate)
        self.bursts = rate * TICK / BURST  # a tick
        self.random = random.Random()  # other keys each time: one that is there is not logged
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
        self.poll = select.epoll()
        self.waiting = dict.fromkeys((one.fileno() for one in self.sockets), 0)
        self.by_number = {one.fileno(): one for one in self.sockets}
        for one in self.sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self.poll.register(one, select.EPOLLIN)
        self.sent = self.replies = self.errors = self.left_out = 0

    def send(self, number: int) -> None:
        """A burst on the connection whose turn it is."""
        one = self.sockets[number % CONNECTIONS]
        if self.waiting[one.fileno()] >= MOST_WAITING:
            self.left_out += BURST
            return
        draw = self.random.random
        keys = tuple([int(draw() * ANY) for _ in range(BURST)])
        one.sendall(self.template % keys)  # what is under way always fits the buffer
        self.waiting[one.fileno()] += BURST
        self.sent += BURST

    def receive(self) -> None:
        for number, _ in self.poll.poll(0):
            data = self.by_number[number].recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed a connection")
            replies = data.count(b"\n")
            self.waiting[number] -= replies
            self.replies += replies
            self.errors += data.count(b"-")

    def run(self) -> dict[str, float]:
        began = time.monotonic()
        if self.closed:
            self._as_answered()
        else:
            self._on_time()
        seconds = time.monotonic() - began
        return {
            "seconds": seconds,
            "rate": self.replies / seconds,
            "errors": self.errors,
            "left_out": self.left_out,
        }

    def _on_time(self) -> None:
        due, number, owed = time.monotonic(), 0, 0.0
        while not _told_to_end():
            owed += self.bursts
            while owed >= 1:
                self.send(number)
                number, owed = number + 1, owed - 1
            self.receive()
            due += TICK
            time.sleep(max(0.0, due - time.monotonic()))

    def _as_answered(self) -> None:
        while not _told_to_end():
            for number, one in enumerate(self.sockets):
                if not self.waiting[one.fileno()]:
                    self.send(number)
            self.receive()


def _told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    load = Load(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
    print("ready", flush=True)
    print(json.dumps(load.run()))
