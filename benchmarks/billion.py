"""`billion`: 10⁹ keys at 1% in one filter, added in chunks, then 10⁸ absent ones asked for.

It runs in a process of its own (`python -m benchmarks.billion KEYS ABSENT CHUNK`), so that its peak
memory is its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress

ERROR_RATE = 0.01


def run(settings: Settings) -> list[Record]:
    keys, absent, chunk = (
        settings.billion_keys,
        settings.billion_absent,
        settings.billion_chunk,
    )
    progress.step(f"billion: {keys:,} keys in a process of their own")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.billion", str(keys), str(absent), str(chunk)],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        return [{"keys": keys, "finished": False, "exit_code": done.returncode}]
    record: Record = json.loads(done.stdout)
    return [record]


def measure(keys: int, absent: int, chunk: int) -> Record:
    import bloomery

    started = time.monotonic()
    filter_ = bloomery.BloomFilter(keys, ERROR_RATE)
    inside = 0.0
    for low in range(0, keys, chunk):
        numbers = np.arange(low, min(low + chunk, keys), dtype=np.int64)
        before = time.monotonic()
        filter_.update(numbers)
        inside += time.monotonic() - before
        del numbers  # before the next is made: one chunk in memory, not two
    added = time.monotonic()
    wrong = 0
    for low in range(keys, keys + absent, chunk):
        numbers = np.arange(low, min(low + chunk, keys + absent), dtype=np.int64)
        wrong += count_true(filter_.contains_many(numbers))
        del numbers
    ended = time.monotonic()
    return {
        "finished": True,
        "keys": keys,
        "absent_keys": absent,
        "chunk_bytes": chunk * 8,
        "add_seconds": added - started,
        "update_seconds": inside,
        "ask_seconds": ended - added,
        "seconds": ended - started,
        "bits_a_key": filter_.nbytes * 8 / keys,
        "observed_error_rate": wrong / absent,
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> int:
    """This program's own peak. ru_maxrss also counts what its parent held before the exec."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def render(records: list[Record]) -> str:
    record = records[0]
    if not record["finished"]:
        return f"{record['keys']:,} keys: did not finish (exit code {record['exit_code']})"
    columns = [
        Column(title)
        for title in (
            "keys",
            "seconds",
            "adding",
            "in update()",
            "asking",
            "ns an add",
            "bits/key",
            "observed",
            "peak memory",
            "of it one chunk",
        )
    ]
    return table(
        f"{record['keys']:,} int64 keys at {ERROR_RATE:.0%}, {record['absent_keys']:,} absent ones",
        columns,
        [
            [
                f"{record['keys']:,}",
                f"{record['seconds']:.1f}",
                f"{record['add_seconds']:.1f}",
                f"{record['update_seconds']:.1f}",
                f"{record['ask_seconds']:.1f}",
                f"{record['update_seconds'] / record['keys'] * 1e9:.1f}",
                f"{record['bits_a_key']:.2f}",
                f"{record['observed_error_rate']:.4%}",
                f"{record['peak_bytes'] / 1e9:.3f} GB",
                f"{record['chunk_bytes'] / 1e9:.3f} GB",
            ]
        ],
    )


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:4]))))
