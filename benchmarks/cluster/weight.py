"""The memory that Redis needs for nodes: two snapshots of a filter, and the stream since."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks.cluster.costs import STREAM
from benchmarks.cluster.stage import Stage, stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

NAME = "weighed"
ERROR_RATE = 0.01
MOST = 2.2
SPACING = 0.05  # seconds between two looks at the most that was used
LOOKS = 6  # half a second apart, between which it stays the same
NOISE = 1 << 20  # bytes: buffers of clients


def run(settings: Settings) -> list[Record]:
    """Keys through one node, with the snapshots that it makes by itself, and one at the end."""
    keys = settings.cluster_keys
    with stage() as there:
        [node] = there.start()
        before = _used(there)
        progress.step(f"cluster: Redis's memory for {keys:,} keys")
        with node.wire() as wire, _Most(there) as most:
            wire.call("BF.RESERVE", NAME, ERROR_RATE, keys, "KIND", "bloom")
            about = wire.call("BF.INFO", NAME)
            size = dict(zip(about[::2], about[1::2], strict=True))[b"Size"]
            wire.call("SAVE")
            wire.add(NAME, range(keys))
            wire.call("SAVE")
        _settled(there)
        stream: Any = there.client.memory_usage(STREAM, samples=0)
        used = _used(there) - before
    return [
        {
            "table": "weight",
            "keys": keys,
            "filter_bytes": size,
            "used_bytes": used,
            "stream_bytes": int(stream),
            "most_bytes": most.bytes - before,
            "ratio": (used - int(stream)) / size,
        }
    ]


def _used(there: Stage) -> int:
    memory: dict[str, Any] = there.client.info("memory")
    return int(memory["used_memory"])


def _settled(there: Stage) -> None:
    """Return when what was dropped is gone, which Redis frees in a thread, and no snapshot is being
    written that the node began by itself: then its memory stays the same."""
    until, before, same = time.monotonic() + 60, 0, 0
    while same < LOOKS:
        if time.monotonic() > until:
            raise RuntimeError("Redis does not let go of what was dropped")
        time.sleep(0.5)
        pending = there.client.info("memory")["lazyfree_pending_objects"]
        used = _used(there)
        same = 0 if pending or abs(used - before) > NOISE else same + 1
        before = used


class _Most:
    """The most memory that is used meanwhile."""

    def __init__(self, there: Stage) -> None:
        self._there = there
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.bytes = 0

    def __enter__(self) -> _Most:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SPACING):
            self.bytes = max(self.bytes, _used(self._there))


def render(records: list[Record]) -> str:
    columns = [Column("keys"), Column("filter"), Column("Redis in all"), Column("of it stream")]
    columns += [Column("the rest, to the filter"), Column("at most, while a snapshot is written")]
    rows = [
        [
            f"{r['keys']:,}",
            *(f"{r[f'{what}_bytes'] / 1e6:,.1f} MB" for what in ("filter", "used", "stream")),
            *(f"{r['ratio']:.2f}x", f"{r['most_bytes'] / 1e6:,.1f} MB"),
        ]
        for r in records
    ]
    return table(f"Redis's memory for a plain filter at {ERROR_RATE:.0%}", columns, rows)


def judge(records: list[Record]) -> list[Line]:
    """The line of "How good"."""
    what = f"Redis's memory for 10⁸ keys at {ERROR_RATE:.0%}, to the filter"
    must = f"<= {MOST:g}x, and the stream since"
    found = [r for r in records if r["table"] == "weight"]
    if not found:
        return [missing(what, must)]
    [r] = found
    measured = (
        f"{r['ratio']:.2f}x and {r['stream_bytes'] / 1e6:,.1f} MB of stream ({r['keys']:,} keys); "
        f"{r['most_bytes'] / r['filter_bytes']:.2f}x with the stream while one is written"
    )
    return [Line(what, must, "-", measured, word(r["ratio"] <= MOST))]
