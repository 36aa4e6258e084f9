"""`memory`: bits a key, and the observed error rate at full capacity on many absent keys."""

from __future__ import annotations

import math
from typing import Literal

import bloomery
from benchmarks.keys import ABSENT, int64s
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress

CHUNK = 10_000_000
Layout = Literal["blocked", "classic"]
LAYOUTS: tuple[Layout, ...] = ("blocked", "classic")


def run(settings: Settings) -> list[Record]:
    return [
        _measure(layout, error_rate, settings.memory_keys, settings.memory_absent)
        for layout in LAYOUTS
        for error_rate in (0.01, 0.001)
    ]


def _measure(layout: Layout, error_rate: float, keys: int, absent: int) -> Record:
    progress.step(f"memory: {layout}, {keys:,} keys at {error_rate:.1%}, {absent:,} absent ones")
    filter_ = bloomery.BloomFilter(keys, error_rate, layout=layout)
    for low in range(0, keys, CHUNK):
        filter_.update(int64s(low, min(CHUNK, keys - low)))
    wrong = 0
    for low in range(0, absent, CHUNK):
        wrong += count_true(filter_.contains_many(int64s(ABSENT + low, min(CHUNK, absent - low))))
    observed = wrong / absent
    return {
        "layout": layout,
        "error_rate": error_rate,
        "keys": keys,
        "absent_keys": absent,
        "bits_a_key": filter_.nbytes * 8 / keys,
        "observed_error_rate": observed,
        "off_target": observed / error_rate - 1,
        # One standard deviation of the observed rate, in parts of the rate asked for.
        "sampling_error": math.sqrt(1 / (error_rate * absent)),
        "estimated_error_rate": filter_.estimated_error_rate,
        "num_hashes": filter_.num_hashes,
        "lines_per_key": filter_.lines_per_key,
        "fill_ratio": filter_.fill_ratio,
    }


def render(records: list[Record]) -> str:
    columns = [Column("layout", left=True)]
    columns += [
        Column(title)
        for title in (
            "asked for",
            "bits/key",
            "observed",
            "off target",
            "± (1 sd)",
            "estimated",
            "hashes",
            "fill",
        )
    ]
    rows = [
        [
            r["layout"],
            f"{r['error_rate']:.1%}",
            f"{r['bits_a_key']:.3f}",
            f"{r['observed_error_rate']:.4%}",
            f"{r['off_target']:+.2%}",
            f"{r['sampling_error']:.2%}",
            f"{r['estimated_error_rate']:.4%}",
            str(r["num_hashes"]),
            f"{r['fill_ratio']:.3f}",
        ]
        for r in records
    ]
    return table(
        f"{records[0]['keys']:,} int64 keys, {records[0]['absent_keys']:,} absent ones",
        columns,
        rows,
    )
