"""A cheap client: prepared requests of BF.MEXISTS, and replies that are counted by their bytes.

A separate process (`python -m benchmarks.service.batches PORT NAME KEYS REQUESTS CONNECTIONS
NUMBERS`). redis-benchmark writes new keys into each request: two of them took 60% of two cores, so
a second worker could not add much.
"""

from __future__ import annotations

import random
import select
import socket
import sys

from benchmarks.service.wire import packed_many

PIPELINE = 64
VARIANTS = 64  # blocks of requests, with different keys


def main(port: int, name: str, keys: int, requests: int, connections: int, numbers: int) -> None:
    def request() -> bytes:
        return packed_many(["BF.MEXISTS", name], random.choices(range(numbers), k=keys))

    blocks = [b"".join(request() for _ in range(PIPELINE)) for _ in range(VARIANTS)]
    size = PIPELINE * (len(b"*%d\r\n" % keys) + keys * len(b":0\r\n"))
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    left = dict.fromkeys(sockets, size)
    poll, by_number = select.epoll(), {one.fileno(): one for one in sockets}
    for one in sockets:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(one, select.EPOLLIN)
    print("ready", flush=True)
    sys.stdin.readline()
    sent = 0
    for one in sockets:
        one.sendall(blocks[sent % VARIANTS])
        sent += 1
    while left:
        for number, _ in poll.poll():
            one = by_number[number]
            left[one] -= len(data := one.recv(1 << 18))
            if not data or left[one] < 0 or b"-" in data:
                raise ConnectionError(f"the server replied {data[:80]!r}")
            if left[one] == 0 and sent * PIPELINE < requests:
                one.sendall(blocks[sent % VARIANTS])
                sent, left[one] = sent + 1, size
            elif left[one] == 0:
                del left[one]
    print(sent * PIPELINE)


if __name__ == "__main__":
    port, name, *counts = sys.argv[1:]
    keys, requests, connections, numbers = map(int, counts)
    main(int(port), name, keys, requests, connections, numbers)
