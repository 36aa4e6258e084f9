"""Bits a key and observed error rates of each kind: grown, full, turned over, at other rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import bloomery
from benchmarks.family.contenders import GROWTH
from benchmarks.keys import ABSENT, int64s
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress

# What the issue states of RedisBloom: grown to 1 M keys at 1%, from 1,000 and from its default 100.
PUBLISHED = {"from 1,000": 23.3, "from 100, its default": 46.9}
GENERATIONS = 8
_CHUNK = 5_000_000


def _record(
    kind: str,
    what: str,
    filter_: Any,
    keys: int,
    error_rate: float,
    settings: Settings,
    **more: Any,
) -> Record:
    progress.step(f"family: bits and rates, {kind}, {what}")
    absent, wrong = settings.family_absent, 0
    for low in range(0, absent, _CHUNK):
        wrong += count_true(filter_.contains_many(int64s(ABSENT + low, min(_CHUNK, absent - low))))
    return {
        "table": "weights",
        "kind": kind,
        "what": what,
        "keys": keys,
        "error_rate": error_rate,
        "bits_a_key": filter_.nbytes * 8 / keys,
        "observed_error_rate": wrong / absent,
        "absent_keys": absent,
        "sampling_error": math.sqrt(error_rate / absent),
        **more,
    }


def _scalable(settings: Settings) -> Iterator[Record]:
    start = max(1, settings.family_keys // GROWTH)
    filter_ = bloomery.ScalableBloomFilter(start, 0.01)
    filled = 0
    for times in (1, 3, 10, 100, GROWTH):
        filter_.update(int64s(filled, start * times - filled))
        filled = start * times
        what = f"grown from {start:,} to {filled:,}"
        more = {"limit_bits": 18.0} if times == GROWTH else {}
        yield _record("scalable", what, filter_, filled, 0.01, settings, times=times, **more)
    for what, bits in PUBLISHED.items():
        yield {
            "table": "weights",
            "kind": "scalable",
            "what": f"RedisBloom, published: 1,000,000 {what}",
            "keys": 1_000_000,
            "error_rate": 0.01,
            "bits_a_key": bits,
        }


def _counting(settings: Settings) -> Iterator[Record]:
    size = settings.family_keys
    for counter_bits in (4, 8):
        filter_ = bloomery.CountingBloomFilter(size, 0.01, counter_bits=counter_bits)
        filter_.update(int64s(0, size))
        yield _record("counting", f"{counter_bits} bits a counter", filter_, size, 0.01, settings)


def _deletable(settings: Settings) -> Iterator[Record]:
    """A region that has seen two keys stays marked, so the share that can be removed is what one
    pass of removals takes out."""
    size = settings.family_keys
    usual = bloomery.DeletableBloomFilter(size, 0.01).regions
    for regions in (usual // 4, usual):
        for load in (0.5, 1.0):
            filter_ = bloomery.DeletableBloomFilter(size, 0.01, regions=regions)
            keys = int64s(0, int(size * load))
            filter_.update(keys)
            what = f"{filter_.regions / size:.2f} regions a key, {load:.0%} full"
            record = _record("deletable", what, filter_, len(keys), 0.01, settings)
            predicted = bloomery.sizing.removable_share(size, 0.01, regions=regions, load=load)
            removed = count_true(filter_.remove_many(keys)) / len(keys)
            yield record | {"predicted_share": predicted, "removed_share": removed}


def _cuckoo(settings: Settings) -> Iterator[Record]:
    size = settings.family_keys
    # 1.1 M is past 2**20, where tables of a power of two double.
    for keys, error_rate in ((size, 1e-2), (size * 11 // 10, 1e-2), (size, 1e-3), (size, 1e-4)):
        filter_ = bloomery.CuckooFilter(keys, error_rate)
        filter_.update(int64s(0, keys))
        what = f"{keys:,} keys, load {filter_.fill_ratio:.1%}"
        limit = 1.15 * (math.log2(1 / error_rate) + 3)
        yield _record("cuckoo", what, filter_, keys, error_rate, settings, limit_bits=limit)


def _rotating(settings: Settings) -> Iterator[Record]:
    """After three windows: what a filter weighs that has forgotten two of them."""
    size = settings.family_keys
    each = size // GENERATIONS
    now = 0.0
    timed = bloomery.RotatingBloomFilter(
        size, 0.01, window=float(GENERATIONS), generations=GENERATIONS, clock=lambda: now
    )
    filled = bloomery.RotatingBloomFilter(size, 0.01, window=None, generations=GENERATIONS)
    for turn in range(3 * GENERATIONS):
        now = float(turn)
        for filter_ in (timed, filled):
            filter_.update(int64s(turn * each, each))
    window = each * GENERATIONS
    for what, filter_ in (("by time, after 3 windows", timed), ("by fill, after 3", filled)):
        yield _record("rotating", what, filter_, window, 0.01, settings)


def _static(settings: Settings) -> Iterator[Record]:
    size = settings.family_keys
    for bits in (8, 16, 32):
        filter_ = bloomery.StaticFilter.build(int64s(0, size), 2.0**-bits)
        limit = 1.13 * bits
        what = f"{bits} bits a fingerprint"
        yield _record("static", what, filter_, size, 2.0**-bits, settings, limit_bits=limit)


MEASURES: dict[str, Callable[[Settings], Iterator[Record]]] = {
    "scalable": _scalable,
    "counting": _counting,
    "deletable": _deletable,
    "cuckoo": _cuckoo,
    "rotating": _rotating,
    "static": _static,
}


def render(records: list[Record]) -> str:
    columns = [Column("kind", left=True), Column("what", left=True)]
    titles = (
        "keys",
        "bits/key",
        "limit",
        "asked for",
        "observed",
        "± (1 sd)",
        "removable",
        "predicted",
    )
    columns += [Column(title) for title in titles]
    shown: tuple[tuple[str, Callable[[Any], str]], ...] = (
        ("keys", lambda v: f"{v:,}"),
        ("bits_a_key", lambda v: f"{v:.2f}"),
        ("limit_bits", lambda v: f"{v:.2f}"),
        ("error_rate", _rate),
        ("observed_error_rate", _rate),
        ("sampling_error", _rate),
        ("removed_share", lambda v: f"{v:.2%}"),
        ("predicted_share", lambda v: f"{v:.2%}"),
    )
    rows = [
        [r["kind"], r["what"], *(form(r[name]) if name in r else "-" for name, form in shown)]
        for r in records
    ]
    return table("bits a key and observed error rates, int64 keys", columns, rows)


def _rate(value: float) -> str:
    return f"{value:.3%}" if value >= 1e-4 or value == 0 else f"{value:.1e}"
