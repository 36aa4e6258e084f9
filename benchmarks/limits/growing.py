"""The scalable and the cuckoo filter beside the plain one: time to add and to ask, bits a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import bloomery
from benchmarks.keys import ABSENT, int64s
from benchmarks.limits.rows import Work, best, ready, row
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress
from benchmarks.touch import Int64s

RATE = 0.01
FIRST = 1_000
"""The first capacity of a filter that grows."""

CHUNK = 4_000_000
PASSES = 10
"""Over keys in the cache, so that one timing is milliseconds: one pass is a third of one, most of
which is what the collection before it threw out of the cache."""

Make = Callable[[], Any]


def run(settings: Settings) -> Iterator[Record]:
    yield from _adds(settings)
    yield from _questions(settings)
    yield from _bits(settings)


def _grown() -> Any:
    return bloomery.ScalableBloomFilter(FIRST, RATE)


def _adding(make: Make, keys: Int64s) -> Callable[[], object]:
    return partial(make().add_many, keys)


def _adds(settings: Settings) -> Iterator[Record]:
    for count in map(settings.size, (1_000_000, 4_000_000, 10_000_000)):
        keys = int64s(0, count)
        makes: dict[str, Make] = {
            "plain": partial(bloomery.BloomFilter, count, RATE),
            "cuckoo": partial(bloomery.CuckooFilter, count, RATE),
            "scalable": _grown,
        }
        works: dict[str, Work] = {
            name: partial(_adding, make, keys) for name, make in makes.items()
        }
        seconds = best(settings, f"adding {count:,} keys", works)
        for kind, must, aim in (("cuckoo", 4, 2.5), ("scalable", 12, 6)):
            if kind == "scalable" and count == settings.size(1_000_000):
                continue
            grown = f" grown from {FIRST:,}" if kind == "scalable" else ""
            yield row(
                f"{kind}{grown}, add_many of {count:,} int64, to BloomFilter's",
                seconds[kind] / seconds["plain"],
                must,
                aim,
                f"{seconds[kind] / count * 1e9:.1f} and {seconds['plain'] / count * 1e9:.1f} ns",
            )


def _questions(settings: Settings) -> Iterator[Record]:
    """Out of cache, and for the static filter in cache too."""
    large, small = settings.size(10_000_000), settings.size(100_000)
    filters: dict[str, Any]
    for count in (large, small):
        keys, absent = int64s(0, count), int64s(ABSENT, count)
        filters = {
            "plain": bloomery.BloomFilter(count, RATE),
            "cuckoo": bloomery.CuckooFilter(count, RATE),
            "scalable": _grown(),
        }
        for f in filters.values():
            f.update(keys)
        filters["static"] = bloomery.StaticFilter.build(keys, RATE)
        for name, asked in (("hit", keys), ("miss", absent)):
            passes = 1 if count == large else PASSES
            works = {kind: ready(partial(_asking, f, asked, passes)) for kind, f in filters.items()}
            seconds = best(settings, f"asking {count:,} keys, {name}", works)
            limits = {"cuckoo": (3, 2), "scalable": (3, 2)} if count == large else {}
            for kind, (must, aim) in {**limits, "static": (1.0, None)}.items():
                yield row(
                    f"{kind}, contains_many of {count:,} ({name}), to BloomFilter's",
                    seconds[kind] / seconds["plain"],
                    must,
                    aim,
                    f"{seconds[kind] / passes / count * 1e9:.1f} and "
                    f"{seconds['plain'] / passes / count * 1e9:.1f} ns",
                )


def _asking(filter_: Any, keys: Int64s, passes: int) -> None:
    for _ in range(passes):
        filter_.contains_many(keys)


def _bits(settings: Settings) -> Iterator[Record]:
    count = settings.size(1_000_000)
    cuckoo = bloomery.CuckooFilter(count, RATE)
    yield row(
        "cuckoo at 1%, bits a key",
        cuckoo.nbytes * 8 / count,
        9.9,
        None,
        f"BloomFilter {bloomery.BloomFilter(count, RATE).nbytes * 8 / count:.2f}",
        unit=" bits",
    )
    grown, done = _grown(), 0
    for count, must in ((10_000_000, 14), (100_000_000, 16)):
        count = settings.size(count // 10 if settings.quick else count)
        while done < count:
            progress.step(f"limits: growing, {done:,} of {count:,} keys")
            some = min(CHUNK, count - done)
            grown.update(int64s(done, some))
            done += some
        absent = int64s(ABSENT, min(count, 2_000_000))
        wrong = count_true(grown.contains_many(absent)) / len(absent)
        yield row(
            f"scalable grown to {count:,} keys at 1%, bits a key",
            grown.nbytes * 8 / count,
            must,
            13,
            f"observed {wrong:.3%}",
            unit=" bits",
        )
