"""`billion`: 10⁹ keys at 1% in one filter, added in chunks, then 10⁸ absent ones asked for.

Once they are int64 numbers in arrays, once URLs in lines of text, 60 bytes on average, which go
the way of a crawler: chunks of a megabyte through `add_lines`, as `bloomery dedup` has them. Each
runs in a process of its own (`python -m benchmarks.library.billion WHAT KEYS ABSENT CHUNK`), so
that peak memory is its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress

ERROR_RATE = 0.01


def run(settings: Settings) -> list[Record]:
    return [_in_process(what, settings) for what in ("int64", "urls")]


def _in_process(what: str, settings: Settings) -> Record:
    keys, absent = settings.billion_keys, settings.billion_absent
    progress.step(f"billion: {keys:,} {what} in a process of their own")
    numbers = map(str, (keys, absent, settings.billion_chunk))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.library.billion", what, *numbers],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        return {"what": what, "keys": keys, "finished": False, "exit_code": done.returncode}
    record: Record = json.loads(done.stdout)
    return {"what": what, **record}


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


class UrlLines:
    """Lines of URLs, a megabyte at a time: the same text again, with another number in each line.

    Lines of one form stand together, as rows of a table, so that a number is written into all of
    them as a column: to make a line takes 3 ns, a thirtieth of what it takes to add it.
    """

    _FORMS = tuple(
        f"https://{host}/{section}/{{}}-{word}.html{query}\n"
        for host, section, word, query in zip(
            ("www.meadow-times.example", "shop.ironbridge.example", "en.wiki.example") * 16,
            ("news", "iron", "rivers", "tools", "people", "maps", "history", "weather") * 6,
            ("bridge", "furnace", "ore", "slag", "anvil", "forge", "market") * 7,
            ("", "", "", "?ref=top") * 12,
            strict=False,
        )
    )
    _EACH = 340  # lines of a form, in a chunk

    def __init__(self) -> None:
        self.lines = self._EACH * len(self._FORMS)
        blocks = []
        for form in self._FORMS:
            lines = [form.format(f"{number:010d}") for number in range(self._EACH)]
            blocks.append(np.frombuffer("".join(lines).encode(), np.uint8))
        self.data = np.concatenate(blocks)
        self._tables = []
        start = 0
        for form, block in zip(self._FORMS, blocks, strict=True):
            rows = self.data[start : start + len(block)].reshape(self._EACH, -1)
            place = form.index("{}")
            numbers = rows[:, place : place + 7]  # the three digits behind tell the rows apart
            self._tables.append(numbers)
            start += len(block)

    def number(self, chunk: int) -> Any:
        """The text of that chunk: no line of it is in another one."""
        digits = np.frombuffer(b"%07d" % chunk, np.uint8)
        for numbers in self._tables:
            numbers[:] = digits
        return self.data


def measure_urls(keys: int, absent: int, _: int) -> Record:
    import bloomery

    source = UrlLines()
    chunks, others = -(-keys // source.lines), -(-absent // source.lines)
    keys, absent = chunks * source.lines, others * source.lines
    filter_ = bloomery.BloomFilter(keys, ERROR_RATE)
    inside = making = 0.0
    started = time.monotonic()
    for chunk in range(chunks):
        before = time.monotonic()
        text = source.number(chunk)
        made = time.monotonic()
        filter_.add_lines(text, final=True)
        inside += time.monotonic() - made
        making += made - before
    added = time.monotonic()
    wrong = 0
    for chunk in range(chunks, chunks + others):
        wrong += filter_.contains_lines(source.number(chunk), final=True)[3]
    ended = time.monotonic()
    return {
        "finished": True,
        "keys": keys,
        "absent_keys": absent,
        "chunk_bytes": len(source.data),
        "bytes_a_line": len(source.data) / source.lines,
        "add_seconds": added - started,
        "making_seconds": making,
        "update_seconds": inside,
        "ask_seconds": ended - added,
        "seconds": ended - started,
        "estimated_count": filter_.estimated_count,
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
    return "\n\n".join(map(_render, records))


def _render(record: Record) -> str:
    if not record["finished"]:
        return f"{record['keys']:,} keys: did not finish (exit code {record['exit_code']})"
    columns = [
        Column(title)
        for title in (
            "keys",
            "seconds",
            "adding",
            "in the filter",
            "asking",
            "ns an add",
            "bits/key",
            "observed",
            "peak memory",
            "of it one chunk",
        )
    ]
    what = "int64 keys"
    if record.get("what") == "urls":
        what = f"URLs in lines of {record['bytes_a_line']:.1f} bytes"
        making = f"; adding has {record['making_seconds']:.1f} s in which the lines were made"
    else:
        making = ""
    return table(
        f"{record['keys']:,} {what} at {ERROR_RATE:.0%}, {record['absent_keys']:,} absent ones"
        f"{making}",
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
    measured = {"int64": measure, "urls": measure_urls}[sys.argv[1]]
    print(json.dumps(measured(*map(int, sys.argv[2:5]))))
