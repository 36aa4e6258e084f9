"""Who answers: the share of the reads that reach the database, as the server itself counts them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import redis

from benchmarks.guard.batches import KEYS, MIX, Times
from benchmarks.guard.stage import EXPONENT, Mix, Stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress
from bloomery.guard import Guard, LocalCache, RedisCache

TTL, NEGATIVE_TTL = 300.0, 30.0
ABSENT_MOST, ALL_MOST, ALL_AIM = 0.011, 0.10, 0.05
BATCH = 1000  # of the warm-up
ENTRY_BYTES = 330  # of an entry in Redis, about: its keys are URLs
ORDERS = 100  # of popularity


@dataclass(frozen=True)
class Case:
    """A way to guard: `cache` is the share of the table's keys that it holds at most."""

    name: str
    cache: float = 0.1
    shared: bool = False  # in Redis
    filter: bool = True
    negative_ttl: float = NEGATIVE_TTL


CASES = (
    Case("local"),
    Case("local, twice the size", cache=0.2),
    Case("Redis", shared=True),
    Case("local, absent keys not cached", negative_ttl=0),
    Case("local, no filter", filter=False),
    Case("no cache", cache=0),
    Case("neither", cache=0, filter=False),
)
DEFAULT, TWICE, SHARED, NOT_CACHED = (case.name for case in CASES[:4])


class Everything:
    """No filter at all: maybe, whatever is asked."""

    blocking = False

    def __contains__(self, key: object) -> bool:
        return True

    def contains_many(self, keys: list[Any]) -> list[bool]:
        return [True] * len(keys)


def run(stage: Stage, settings: Settings) -> list[Record]:
    mix = Mix(stage)
    records = [record for case in CASES for record in _case(case, stage, mix, settings)]
    absent = np.asarray(stage.filter.contains_many(stage.absent))
    shares = mix.shuffled(absent, ORDERS)
    records.append(
        {
            "table": "orders",
            "keys": len(stage.present),
            "bits_a_key": 8 * stage.filter.nbytes / len(stage.present),
            "wrong": float(absent.mean()),
            "mean": float(shares.mean()),
            "median": float(np.median(shares)),
            "worst": float(shares.max()),
        }
    )
    return records


def _case(case: Case, stage: Stage, mix: Mix, settings: Settings) -> list[Record]:
    keys, source = len(stage.present), stage.source()
    cache = _cache(case, stage, int(case.cache * keys))
    filter_ = stage.filter if case.filter else Everything()
    guard = Guard(
        filter_, source, cache=cache, ttl=TTL, negative_ttl=case.negative_ttl, window=3600.0
    )
    warm = 3 * keys if cache is not None else 0
    progress.step(f"guard: {case.name}, {warm:,} reads of warm-up")
    began = time.monotonic()
    for _ in range(0, warm, BATCH):
        guard.get_many(mix.reads(BATCH))
    warm_seconds = time.monotonic() - began
    source.close()
    before = stage.looked_up()
    source.keys.clear()
    count = settings.guard_reads if cache is not None else settings.guard_reads // 10
    progress.step(f"guard: {case.name}, {count:,} reads")
    reads = mix.reads(count)
    answers = dict.fromkeys(("filter", "cache", "source"), 0)
    began = time.monotonic()
    for key in reads:
        answers[guard.get(key).by] += 1
    seconds = time.monotonic() - began
    source.close()  # its connections: whoever asks again gets new ones
    looked_up, transactions = (b - a for a, b in zip(before, stage.looked_up(), strict=True))
    absent = set(stage.absent)
    absent_asked = sum(key in absent for key in source.keys)
    absent_reads = sum(key in absent for key in reads)
    info = guard.info()
    record: Record = {
        "table": "reads",
        "case": case.name,
        "keys": keys,
        "held": _held(cache, stage) / keys,
        "negative_ttl": case.negative_ttl,
        "reads": count,
        "absent_reads": absent_reads,
        "answers": answers,
        "asked": len(source.keys),  # by our own count
        "looked_up": looked_up,  # by the server's
        "transactions": transactions,
        "seconds": seconds,
        "warm_reads": warm,
        "warm_seconds": warm_seconds,
        "reach": looked_up / count,
        "absent_reach": absent_asked / absent_reads,
        "observed": [info[f"observed_{name}"] for name in ("error_rate", "low", "high")],
        "observed_keys": info["false_positives"] + info["true_negatives"],
    }
    if case.name not in (DEFAULT, SHARED):
        return [record]
    times = Times(case.name, MIX)
    for _ in range(settings.guard_rounds):
        times.take(guard, mix.reads(KEYS), mix.reads(KEYS))
    source.close()
    return [record, times.record()]


def _cache(case: Case, stage: Stage, entries: int) -> Any:
    if not entries:
        return None
    if not case.shared:
        return LocalCache(entries)
    with redis.Redis.from_url(stage.redis_url) as server:
        server.flushall()
        empty = server.info("memory")["used_memory"]
        server.config_set("maxmemory-policy", "allkeys-lru")
        server.config_set("maxmemory", empty + (1 << 20) + ENTRY_BYTES * entries)
    return RedisCache(stage.redis_url, "bench:")


def _held(cache: Any, stage: Stage) -> int:
    if cache is None:
        return 0
    if isinstance(cache, LocalCache):
        return len(cache)
    with redis.Redis.from_url(stage.redis_url) as server:
        size: int = server.dbsize()
        server.config_set("maxmemory", 0)
        server.flushall()
    return size


def render(records: list[Record]) -> str:
    first = records[0]
    titles = ("cached", "reads", "by filter", "by cache", "at the database", "of absent keys")
    columns = [Column("guard", left=True), *(Column(t) for t in titles)]
    columns += [Column(t) for t in ("reads/s", "queries/s")]
    rows = [
        [
            *(r["case"], f"{r['held']:.0%}", f"{r['reads']:,}"),
            *(f"{r['answers'][by] / r['reads']:.2%}" for by in ("filter", "cache")),
            *(f"{r['reach']:.2%}", f"{r['absent_reach']:.2%}"),
            *(f"{r['reads'] / r['seconds']:,.0f}", f"{r['transactions'] / r['seconds']:,.0f}"),
        ]
        for r in records
    ]
    title = (
        f"Zipf({EXPONENT:g}) reads, one by one in one thread, half of them of absent keys, after "
        f"{first['warm_reads']:,} to warm up; TTL {TTL:g} s, of absent keys {NEGATIVE_TTL:g} s.\n"
        "Cached: what the cache holds, as a share of the table; at the database: by its own count"
    )
    return table(title, columns, rows)


def render_orders(records: list[Record]) -> str:
    r = records[0]
    return (
        f"The filter: {r['keys']:,} keys, {r['bits_a_key']:.2f} bits a key; it lets "
        f"{r['wrong']:.3%} of as many absent keys through.\nIf those are not cached, which keys "
        f"are popular decides how many of their reads reach the database: over {ORDERS} orders\n"
        f"{r['mean']:.2%} on average, {r['median']:.2%} in the middle, {r['worst']:.2%} at "
        "worst (a popular key is let through)."
    )


def render_observed(records: list[Record]) -> str:
    rows = [
        [
            r["case"],
            f"{r['observed_keys']:,}",
            f"{r['observed'][0]:.3%}",
            f"{r['observed'][1]:.3%} to {r['observed'][2]:.3%}",
        ]
        for r in records
        if r["answers"]["filter"]
    ]
    columns = [Column("guard", left=True)]
    columns += [Column(t) for t in ("distinct absent keys", "observed error rate", "95% interval")]
    return table("The error rate that the guard observed, by itself", columns, rows)


def judge(records: list[Record]) -> list[Line]:
    """The first two musts of the issue."""
    found = {r["case"]: r for r in records if r["table"] == "reads"}
    orders = [r for r in records if r["table"] == "orders"]
    most = f"<= {ABSENT_MOST:.1%}"
    what = "absent keys that reach the database"
    lines = []
    for name, how in ((DEFAULT, f"cached {NEGATIVE_TTL:g} s"), (SHARED, "the same in Redis")):
        if name in found:
            share = found[name]["absent_reach"]
            lines.append(
                Line(f"{what}, {how}", most, "-", f"{share:.2%}", word(share <= ABSENT_MOST))
            )
        else:
            lines.append(missing(f"{what}, {how}", most))
    if orders and NOT_CACHED in found:
        r = orders[0]
        measured = (
            f"{r['mean']:.2%} on average of {ORDERS} orders of popularity; in this run "
            f"{found[NOT_CACHED]['absent_reach']:.2%}"
        )
        lines.append(
            Line(f"{what}, not cached", most, "-", measured, word(r["mean"] <= ABSENT_MOST))
        )
    what = "reads that reach the database"
    for name in (DEFAULT, TWICE, SHARED):
        limits = f"<= {ALL_MOST:.0%}", f"<= {ALL_AIM:.0%}"
        if name not in found:
            lines.append(missing(f"{what}, {name}", *limits))
        else:
            r = found[name]
            measured = f"{r['reach']:.2%} (the cache holds {r['held']:.0%} of the table)"
            verdict = word(r["reach"] <= ALL_MOST, r["reach"] <= ALL_AIM)
            lines.append(Line(f"{what}, {name}", *limits, measured, verdict))
    return lines
