"""`add_many(threads=2)` and `update(threads=2)`, to one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import bloomery
from benchmarks.keys import int64s
from benchmarks.limits.rows import Work, best, row
from benchmarks.settings import Record, Settings
from benchmarks.touch import Int64s

RATE = 0.01


def run(settings: Settings) -> Iterator[Record]:
    count = settings.size(10_000_000)
    keys = int64s(0, count)
    works: dict[str, Work] = {
        f"{method} {threads}": partial(_ready, method, keys, threads)
        for method in ("add_many", "update")
        for threads in (1, 2)
    }
    seconds = best(settings, "two threads", works, wall=True)
    for method, must, aim in (("add_many", 1.7, 1.9), ("update", 1.8, None)):
        one, two = seconds[f"{method} 1"], seconds[f"{method} 2"]
        yield row(
            f"{method}(threads=2) of {count:,} int64, to one thread",
            one / two,
            must,
            aim,
            f"{one / count * 1e9:.1f} and {two / count * 1e9:.1f} ns",
            unit="x faster",
            better="more",
        )


def _ready(method: str, keys: Int64s, threads: int) -> Callable[[], object]:
    filter_ = bloomery.BloomFilter(len(keys), RATE)
    return partial(getattr(filter_, method), keys, threads=threads)
