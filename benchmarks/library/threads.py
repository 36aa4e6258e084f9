"""`threads`: contains_many from two Python threads on disjoint halves; add_many(threads=2)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bloomery
from benchmarks.keys import ABSENT, int64s
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, count_true, progress, quiet, time_call
from benchmarks.touch import Int64s

ERROR_RATE = 0.01


def run(settings: Settings) -> list[Record]:
    records: list[Record] = []
    with ThreadPoolExecutor(2) as pool:
        for count in settings.thread_keys:
            records += _measure(settings, pool, count)
    return records


def _measure(settings: Settings, pool: ThreadPoolExecutor, count: int) -> list[Record]:
    progress.step(f"threads: making {count:,} keys")
    present, absent = int64s(0, count), int64s(ABSENT, count)
    best = Best()
    for number in range(settings.rounds):
        progress.step(f"threads: {count:,} keys, round {number + 1}/{settings.rounds}")
        for threads in (1, 2):
            filter_ = bloomery.BloomFilter(count, ERROR_RATE)
            with quiet():
                elapsed = time_call(lambda f, n: f.add_many(present, threads=n), filter_, threads)
            best.note(f"add_many {threads}", elapsed, count)
        for name, keys in (("hit", present), ("miss", absent)):
            with quiet():
                elapsed = time_call(filter_.contains_many, keys)
                best.note(f"contains_many {name} 1", elapsed, count)
                elapsed = time_call(_halves, pool, filter_, keys)
                best.note(f"contains_many {name} 2", elapsed, count)
                elapsed = time_call(lambda f, k: f.contains_many(k, threads=2), filter_, keys)
                best.note(f"contains_many threads=2 {name} 2", elapsed, count)
    for name in ("hit", "miss"):
        best.ns[f"contains_many threads=2 {name} 1"] = best.ns[f"contains_many {name} 1"]
    wrong = count_true(filter_.contains_many(absent))
    labels = {
        "contains_many hit": "contains_many, two Python threads, hit",
        "contains_many miss": "contains_many, two Python threads, miss",
        "contains_many threads=2 hit": "contains_many(threads=2), hit",
        "contains_many threads=2 miss": "contains_many(threads=2), miss",
        "add_many": "add_many(threads=2)",
    }
    return [
        {
            "pass": text,
            "keys": count,
            "ns_one": best.ns[f"{label} 1"],
            "ns_two": best.ns[f"{label} 2"],
            "speedup": best.ns[f"{label} 1"] / best.ns[f"{label} 2"],
            "bits_a_key": filter_.nbytes * 8 / count,
            "observed_error_rate": wrong / count,
        }
        for label, text in labels.items()
    ]


def _halves(pool: ThreadPoolExecutor, filter_: Any, keys: Int64s) -> None:
    middle = len(keys) // 2
    futures = [pool.submit(filter_.contains_many, half) for half in (keys[:middle], keys[middle:])]
    for future in futures:
        future.result()


def render(records: list[Record]) -> str:
    rows = [
        [
            r["pass"],
            f"{r['keys']:,}",
            f"{r['ns_one']:.2f}",
            f"{r['ns_two']:.2f}",
            f"{r['speedup']:.2f}x",
            f"{r['bits_a_key']:.2f}",
            f"{r['observed_error_rate']:.3%}",
        ]
        for r in records
    ]
    columns = [Column("pass", left=True), Column("keys"), Column("ns a key, one")]
    columns += [Column("two"), Column("faster"), Column("bits/key"), Column("observed")]
    return table(f"int64 keys at {ERROR_RATE:.0%}, one thread and two", columns, rows)
