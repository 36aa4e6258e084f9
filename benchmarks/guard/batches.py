"""Many keys at once: `get_many` of 1,000 beside as many times `get`."""

from __future__ import annotations

import random
import time
from statistics import median
from typing import Any

import redis

from benchmarks.guard.stage import SEED, Stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress
from bloomery.guard import Guard, LocalCache, RedisCache

KEYS = 1000
LEAST = 10.0
CACHES = ("local", "Redis")
MIX = "read mix"
WHEN = (MIX, "cold", "warm")


def run(stage: Stage, settings: Settings) -> list[Record]:
    """Other keys each round, half of them absent: of a cold cache, then again of a warm one."""
    records = []
    for name in CACHES:
        progress.step(f"guard: batches, {name} cache")
        source = stage.source()
        guard = Guard(stage.filter, source, cache=_cache(name, stage))
        picked = random.Random(SEED)
        found = Times(name, "cold"), Times(name, "warm")
        for _ in range(settings.guard_rounds):
            singly, together = _pick(picked, stage), _pick(picked, stage)
            for times in found:
                times.take(guard, singly, together)
        source.close()
        records += [times.record() for times in found]
    return records


class Times:
    """What some rounds took, one by one and as a batch."""

    def __init__(self, cache: str, when: str) -> None:
        self.cache, self.when = cache, when
        self.taken: list[tuple[float, float]] = []

    def take(self, guard: Guard, singly: list[str], together: list[str]) -> None:
        began = time.perf_counter()
        for key in singly:
            guard.get(key)
        between = time.perf_counter()
        guard.get_many(together)
        self.taken.append((between - began, time.perf_counter() - between))

    def record(self) -> Record:
        return {
            "table": "batches",
            "cache": self.cache,
            "when": self.when,
            "rounds": len(self.taken),
            "singly": median(a for a, _ in self.taken),
            "together": median(b for _, b in self.taken),
            "ratio": median(a / b for a, b in self.taken),
        }


def _cache(name: str, stage: Stage) -> Any:
    if name == "local":
        return LocalCache(len(stage.present))
    with redis.Redis.from_url(stage.redis_url) as server:
        server.flushall()
    return RedisCache(stage.redis_url, "bench:")


def _pick(picked: random.Random, stage: Stage) -> list[str]:
    keys = picked.sample(stage.present, KEYS // 2) + picked.sample(stage.absent, KEYS // 2)
    picked.shuffle(keys)
    return keys


def render(records: list[Record]) -> str:
    columns = [Column("cache", left=True), Column("it is", left=True)]
    columns += [Column(t) for t in ("rounds", "1,000 x get, ms", "get_many, ms", "ratio")]
    rows = [
        [
            *(r["cache"], r["when"], str(r["rounds"])),
            *(f"{1000 * r[n]:.2f}" for n in ("singly", "together")),
            f"{r['ratio']:.1f}x",
        ]
        for r in records
    ]
    title = (
        f"{KEYS:,} keys, half of them absent, medians of the rounds: of the read mix, after its\n"
        "warm-up; of keys that no cache holds; of keys that it holds all"
    )
    return table(title, columns, rows)


def judge(records: list[Record]) -> list[Line]:
    """The *must* of the issue, for each state that the cache may be in."""
    what, must = f"get_many of {KEYS:,} keys, to get one by one", f">= {LEAST:g}x"
    found = [r for r in records if r["table"] == "batches"]
    lines = []
    for when in WHEN:
        ratios = {r["cache"]: r["ratio"] for r in found if r["when"] == when}
        if not ratios:
            lines.append(missing(f"{what}, {when}", must))
            continue
        measured = ", ".join(f"{ratio:.1f}x ({name})" for name, ratio in ratios.items())
        lines.append(
            Line(f"{what}, {when}", must, "-", measured, word(min(ratios.values()) >= LEAST))
        )
    return lines
