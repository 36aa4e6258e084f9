"""`hashing`: what a hash costs, by its kind, the length of a key and k; and 100,000 inserts a
second, at their own pace, on one core.

The keys are bytes in a list. The filter for the tables by length fits the processor's cache, so
that the hash is what differs. SHA-256 is the textbooks': k digests a key in Python (`textbook`); or
one digest by hashlib, given to our filter as the key, which is the least that it can cost.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

import bloomery
from benchmarks.library.textbook import TextbookFilter
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, progress, quiet, rotated, time_add, time_call, time_in

DIGEST, TEXTBOOK = "SHA-256, once", "SHA-256, k times"
LENGTHS = (8, 32, 128, 1024)
LENGTH = 32
HASHES = (4, 7, 14)
"""The textbook takes k hashes at an error rate of 2 to the power of -k."""

ERROR_RATE = 0.01
OPERATIONS = ("add", "in", "add_many", "contains_many")
SLOW = 10
"""The textbook's filter gets one in so many keys."""

PACE = 100_000
BATCH = 100
Layout = Literal["blocked", "classic"]
Hasher = Literal["xxh3", "murmur3", "fnv1a", "siphash"]
HASHERS: tuple[Hasher, ...] = ("xxh3", "murmur3", "fnv1a", "siphash")


@dataclass(frozen=True)
class Way:
    """A filter under measurement, and how a key becomes what it is given."""

    name: str
    make: Callable[[], Any]
    digest: bool = False
    slow: bool = False


def run(settings: Settings) -> list[Record]:
    keys = {length: _keys(length, settings.hash_keys) for length in LENGTHS}
    count = settings.hash_keys
    records: list[Record] = []
    for length in LENGTHS:
        progress.step(f"hashing: keys of {length} bytes")
        ways = _by_hasher(count)
        for way, best in zip(ways, _timed(ways, keys[length], settings.three_rounds), strict=True):
            records.append({"table": "length", "way": way.name, "length": length, "ns": best.ns})
    for capacity in (count, settings.hash_large):
        ways = [
            Way(f"{layout}, k={k}", _touched(_plain(capacity, 2.0**-k, layout), capacity))
            for layout in ("classic", "blocked")
            for k in HASHES
        ]
        if capacity == count:
            ways += [
                Way(f"{TEXTBOOK}, k={k}", _textbook(count, 2.0**-k), slow=True) for k in HASHES
            ]
        progress.step(f"hashing: by k, a filter for {capacity:,} keys")
        for way, best in zip(ways, _timed(ways, keys[LENGTH], settings.three_rounds), strict=True):
            made = way.make()
            about = {"num_hashes": made.num_hashes, "nbytes": _nbytes(made)}
            row = {"table": "k", "way": way.name, "capacity": capacity, "ns": best.ns}
            records.append(row | about)
    for way in (Way("nothing", _Nothing), *_by_hasher(settings.hash_paced)):
        for batch in (1, BATCH):
            if batch == 1 or way.name in (HASHERS[0], DIGEST):
                progress.step(f"hashing: {PACE:,} inserts a second, {way.name}, {batch} at once")
                records.append(_paced(way, batch, settings.hash_paced))
    return records


class _Nothing:
    """The pauses of the machine itself."""

    def add(self, key: object) -> None:
        pass


def _keys(length: int, count: int) -> list[bytes]:
    blob = np.random.default_rng(length).bytes(length * count)
    return [blob[at : at + length] for at in range(0, len(blob), length)]


def _plain(
    capacity: int, error_rate: float, layout: Layout = "blocked", hasher: Hasher = "xxh3"
) -> Callable[[], Any]:
    return lambda: bloomery.BloomFilter(capacity, error_rate, layout=layout, hasher=hasher)


def _touched(make: Callable[[], Any], capacity: int) -> Callable[[], Any]:
    """A filter with some keys in each page of its memory: a new page is the kernel's work."""

    def touched() -> Any:
        filter_ = make()
        filter_.update(np.arange(capacity // 40))
        return filter_

    return touched


def _textbook(count: int, error_rate: float) -> Callable[[], Any]:
    return lambda: TextbookFilter(count // SLOW, error_rate)


def _by_hasher(count: int) -> list[Way]:
    ways = [Way(name, _plain(count, ERROR_RATE, hasher=name)) for name in HASHERS]
    ways.append(Way(DIGEST, _plain(count, ERROR_RATE), digest=True))
    return [*ways, Way(TEXTBOOK, _textbook(count, ERROR_RATE), slow=True)]


def _nbytes(filter_: Any) -> int:
    return len(filter_.bits) if isinstance(filter_, TextbookFilter) else int(filter_.nbytes)


def _timed(ways: list[Way], keys: list[bytes], rounds: int) -> list[Best]:
    """The best of the rounds, another way first in each."""
    best = {way.name: Best() for way in ways}
    for number in range(rounds):
        for way in rotated(ways, number):
            asked = keys[: len(keys) // SLOW] if way.slow else keys
            _pass(way, asked, best[way.name])
    return [best[way.name] for way in ways]


def _pass(way: Way, keys: list[bytes], best: Best) -> None:
    filter_, sha = way.make(), hashlib.sha256
    count = len(keys)
    with quiet():
        if way.digest:
            add, ask = filter_.add, filter_.__contains__
            best.note("add", time_add(lambda key: add(sha(key).digest()), keys), count)
            best.note("in", time_add(lambda key: ask(sha(key).digest()), keys), count)
        else:
            best.note("add", time_add(filter_.add, keys), count)
            best.note("in", time_in(filter_, keys), count)
        if way.slow:  # it has no batches
            return
        filter_ = way.make()
        for what, call in (("add_many", filter_.update), ("contains_many", filter_.contains_many)):
            if way.digest:
                call = partial(_digested, call)
            best.note(what, time_call(call, keys), count)


def _digested(call: Callable[[list[bytes]], object], keys: list[bytes]) -> object:
    sha = hashlib.sha256
    return call([sha(key).digest() for key in keys])


def _paced(way: Way, batch: int, count: int) -> Record:
    """Open-loop: each key is due at its time, and its wait counts from then, on one core."""
    count -= count % batch
    keys, filter_, sha = _keys(LENGTH, count), way.make(), hashlib.sha256
    add: Callable[[Any], object]
    if batch > 1:
        add = partial(_digested, filter_.update) if way.digest else filter_.update
    else:
        one = filter_.add
        add = (lambda key: one(sha(key).digest())) if way.digest else one
    given: list[Any] = (
        keys if batch == 1 else [keys[at : at + batch] for at in range(0, count, batch)]
    )
    step = batch * 1_000_000_000 // PACE
    clock, done, spent = time.perf_counter_ns, np.zeros(len(given), dtype=np.int64), 0
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if allowed:
        os.sched_setaffinity(0, {max(allowed)})
    try:
        with quiet():
            began = clock() + step
            # A batch is complete when its last key has come.
            due = began
            for at, some in enumerate(given):
                while (start := clock()) < due:
                    pass
                add(some)
                end = clock()
                done[at] = end
                spent += end - start
                due += step
                if end - began > 4 * count * 1_000_000_000 // PACE:  # it falls behind for good
                    done = done[: at + 1]
                    break
    finally:
        if allowed:
            os.sched_setaffinity(0, allowed)
    number = np.arange(len(done) * batch)
    came = began - (batch - 1 - number % batch) * (step // batch) + number // batch * step
    waits = np.sort(np.repeat(done, batch) - came) / 1000
    elapsed = (int(done[-1]) - began) / 1e9 + step / 1e9
    return {
        "table": "paced",
        "way": way.name,
        "batch": batch,
        "keys": len(number),
        "rate": len(number) / elapsed,
        "share": spent / 1e9 / elapsed,
        "ns": spent / len(number),
        **{
            f"{name}_us": float(waits[min(len(waits) - 1, int(share * len(waits)))])
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
        },
    }


def render(records: list[Record]) -> str:
    return "\n\n".join([_lengths(records), _hashes(records), _pace(records)])


def _of(records: list[Record], name: str) -> list[Record]:
    return [r for r in records if r["table"] == name]


def _ns(r: Record) -> list[str]:
    return [f"{r['ns'][what]:.1f}" if what in r["ns"] else "-" for what in OPERATIONS]


def _lengths(records: list[Record]) -> str:
    rows = [[r["way"], str(r["length"]), *_ns(r)] for r in _of(records, "length")]
    columns = [Column("hash", left=True), *map(Column, ("bytes", *OPERATIONS))]
    return table(f"By length of the key, at {ERROR_RATE:.0%}: ns a key", columns, rows)


def _hashes(records: list[Record]) -> str:
    rows = [
        [
            r["way"],
            f"{r['capacity']:,}",
            str(r["num_hashes"]),
            f"{r['nbytes'] / 1e6:,.1f} MB",
            *_ns(r),
        ]
        for r in _of(records, "k")
    ]
    columns = [Column("filter for an error rate of 2^-k", left=True)]
    columns += map(Column, ("made for", "hashes", "memory", *OPERATIONS))
    return table(f"By k, xxh3, keys of {LENGTH} bytes: ns a key", columns, rows)


def _pace(records: list[Record]) -> str:
    rows = [
        [
            r["way"],
            str(r["batch"]),
            f"{r['rate']:,.0f}",
            f"{r['share']:.1%}",
            *(f"{r[name]:,.1f}" for name in ("p50_us", "p99_us", "p999_us", "max_us")),
        ]
        for r in _of(records, "paced")
    ]
    titles = ("at once", "inserts/s", "of a core", "p50 µs", "p99 µs", "p99.9 µs", "max µs")
    columns = [Column("hash", left=True), *map(Column, titles)]
    return table(
        f"{PACE:,} inserts a second on one core, keys of {LENGTH} bytes; from when a key is due",
        columns,
        rows,
    )
