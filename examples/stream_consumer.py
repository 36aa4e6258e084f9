"""Consumers of a Redis Stream are killed, and Redis delivers again: each order is booked once.

A consumer books, records the order's id, and acknowledges it. Killed before the acknowledgement,
the order goes to another consumer, who finds the id recorded. Killed between booking and record, it
would be booked again: that moment is the *ish* of once-ish, and nobody is killed in it here. Ids
are forgotten after a day, by when no queue delivers them any more.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from bloomery import RotatingBloomFilter
from bloomery.apps import Deduplicator, DiskSet

ORDERS = 100
STREAM, GROUP = "orders", "booking"


@contextmanager
def server(folder: str) -> Iterator[str]:
    """A Redis of our own; elsewhere it runs already, and has a URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def consume(url: str, folder: str, number: int) -> None:
    """Book orders until all are done; be killed now and then, as processes are."""
    luck = random.Random(number)
    client = redis.Redis.from_url(url, decode_responses=True)
    window = RotatingBloomFilter(capacity=100_000, window="1d")
    with DiskSet(Path(folder, "booked.sqlite"), window) as booked:
        dedup: Deduplicator[dict[str, str]] = Deduplicator(booked, key=lambda order: order["id"])
        while True:
            # What another consumer left unacknowledged comes first; then what is new.
            _, entries, _ = client.xautoclaim(STREAM, GROUP, str(number), min_idle_time=0, count=9)
            if not entries:
                fresh = client.xreadgroup(GROUP, str(number), {STREAM: ">"}, count=9)
                if not fresh:
                    return
                entries = fresh[0][1]
            for entry, order in entries:
                with dedup.once(order) as first:
                    if luck.random() < 0.02:
                        os.kill(os.getpid(), signal.SIGKILL)  # before the work: it is not done
                    if first:
                        client.hincrby("booked", order["id"])
                if luck.random() < 0.05:
                    os.kill(os.getpid(), signal.SIGKILL)  # after it: it is done, and comes again
                client.xack(STREAM, GROUP, entry)


def main() -> None:
    assert shutil.which("redis-server"), "this example starts a redis-server: install one"
    with (
        tempfile.TemporaryDirectory() as folder,
        server(folder) as url,
        redis.Redis.from_url(url) as client,
    ):
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        for number in range(ORDERS):
            client.xadd(STREAM, {"id": f"order {number}"})
        killed = 0
        command = [sys.executable, __file__, url, folder]
        while subprocess.run([*command, str(killed)], check=False).returncode:
            killed += 1
        booked = [int(times) for times in client.hvals("booked")]
    assert booked == [1] * ORDERS, "each order is booked, and once"
    print(f"{ORDERS} orders booked once by a consumer that was killed {killed} times")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        consume(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
