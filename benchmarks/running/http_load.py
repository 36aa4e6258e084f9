"""The load on HTTP: connections that each send the next request when the last was answered.

A process of its own (`python -m benchmarks.running.http_load PORT PATH KEYS CONNECTIONS SECONDS`);
it prints requests and seconds as JSON. Requests are made before the clock starts, and of an answer
only its status and its end are looked at: who asks should not be what is measured.
"""

from __future__ import annotations

import json
import random
import select
import socket
import sys
import time

VARIANTS = 64  # requests, so that the same keys do not come again at once
ANY = 10**12


def requests(path: str, keys: int) -> list[bytes]:
    draw = random.Random(5)
    made = []
    for _ in range(VARIANTS):
        some = [f"key-{draw.randrange(ANY)}" for _ in range(keys)]
        body = json.dumps({"key": some[0]} if keys == 1 else {"keys": some}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        made.append(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    return made


def run(port: int, path: str, keys: int, connections: int, seconds: float) -> dict[str, float]:
    made, poll = requests(path, keys), select.epoll()
    sockets: dict[int, socket.socket] = {}
    for number in range(connections):
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[one.fileno()] = one
        poll.register(one, select.EPOLLIN)
        one.sendall(made[number % VARIANTS])
    done, began = 0, time.perf_counter()
    until = began + seconds
    begun = dict.fromkeys(sockets, False)  # has the answer begun?
    while time.perf_counter() < until:
        for number, _ in poll.poll(1):
            one = sockets[number]
            data = one.recv(1 << 18)
            if not begun[number] and not data.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"not answered with 200: {data[:500]!r}")
            begun[number] = True
            if data.endswith(b"}"):
                done += 1
                begun[number] = False
                one.sendall(made[done % VARIANTS])
    return {"requests": done, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    port, path, keys, connections, seconds = sys.argv[1:]
    print(json.dumps(run(int(port), path, int(keys), int(connections), float(seconds))))
