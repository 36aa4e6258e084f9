"""How soon a killed server is back: a filter of 1.24 GB and a log of 10 M adds.

It is killed and started several times, and the quickest start counts: where the machine is a
virtual one, memory that its host has to find first costs more than all that is done with it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.wire import Wire
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

SAMPLE = 100_000
TRIES = 3


def run(settings: Settings) -> list[Record]:
    keys = settings.logged_keys
    # The log is not to be cut short by a snapshot of its own accord.
    quiet = ("--set", "snapshot-seconds=0", "--set", "snapshot-log-bytes=1000gb")
    with servers.scratch() as folder:
        data = folder / "data"
        with servers.bloomery(data, *quiet) as server, server.wire() as wire:
            progress.step(f"service: restart, a snapshot and {keys:,} adds")
            room = max(settings.restart_capacity, 2 * (SAMPLE + keys))
            wire.call("BF.RESERVE", "big", 0.01, room, "KIND", "bloom")
            wire.add("big", range(SAMPLE))
            wire.call("SAVE")
            wire.add("big", range(SAMPLE, SAMPLE + keys))
            about = wire.call("BF.INFO", "big")
        # Killed: the log has what no snapshot has.
        nbytes = dict(zip(about[::2], about[1::2], strict=True))[b"Size"]
        log_bytes = sum(path.stat().st_size for path in (data / "log").iterdir())
        progress.step("service: restart")
        seconds, lost = list[float](), 0
        sampled = range(0, SAMPLE + keys, max(1, keys // SAMPLE))
        for _ in range(TRIES):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            with ThreadPoolExecutor(1) as thread:
                answer = thread.submit(_until_answer, port)
                options = (*quiet, "--resp-port", str(port))
                server, _ = servers.start(data, *options, pinned=False)
                seconds.append(answer.result())
            try:
                with server.wire() as wire:
                    lost = max(lost, len(sampled) - wire.count("big", sampled))
            finally:
                server.stop()
    return [
        {
            "table": "restart",
            "filter_bytes": nbytes,
            "log_bytes": log_bytes,
            "keys": keys,
            "seconds": min(seconds),
            "slowest": max(seconds),
            "sampled": len(sampled),
            "lost_keys": lost,
        }
    ]


def _until_answer(port: int) -> float:
    """Return after how many seconds the Redis port answers."""
    began = time.monotonic()
    while time.monotonic() < began + servers.START_SECONDS:
        with contextlib.suppress(OSError), Wire(port) as wire:
            wire.call("PING")
            break
        time.sleep(0.002)
    return time.monotonic() - began


def render(records: list[Record]) -> str:
    titles = ("filter", "log", "adds in the log", "answers in", "slowest", "keys asked", "lost")
    rows = [
        [
            f"{r['filter_bytes'] / 1e9:.2f} GB",
            f"{r['log_bytes'] / 1e6:.0f} MB",
            f"{r['keys']:,}",
            f"{r['seconds']:.2f} s",
            f"{r.get('slowest', r['seconds']):.2f} s",
            f"{r['sampled']:,}",
            str(r["lost_keys"]),
        ]
        for r in records
    ]
    title = "Start after kill -9, from a snapshot and the log (both still in the page cache)"
    return table(title, [Column(t) for t in titles], rows)
