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


def run(stage: Stage, settings: Settings) -> list[Record]:
    """Other keys each round, half of them absent: asked of a cold cache, then again of a warm one."""
    records = []
    for name in CACHES:
        progress.step(f"guard: batches, {name} cache")
        source = stage.source()
        guard = Guard(stage.filter, source, cache=_cache(name, stage))
        picked = random.Random(SEED)
        found: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
        for _ in range(settings.guard_rounds):
            together, singly = _pick(picked, stage), _pick(picked, stage)
            for when in found:
                found[when].append((_singly(guard, singly), _together(guard, together)))
        source.close()
        records += [
            {
                "table": "batches",
                "cache": name,
                "when": when,
                "rounds": len(times),
                "singly": median(a for a, _ in times),
                "together": median(b for _, b in times),
                "ratio": median(a / b for a, b in times),
            }
            for when, times in found.items()
        ]
    return records


def _cache(name: str, stage: Stage) -> Any:
    if name == "local":
        return LocalCache(len(stage.present))
    with redis.Redis.from_url(stage.redis_url) as server:
        server.flushall()
    return RedisCache(stage.redis_url)


def _pick(picked: random.Random, stage: Stage) -> list[str]:
    keys = picked.sample(stage.present, KEYS // 2) + picked.sample(stage.absent, KEYS // 2)
    picked.shuffle(keys)
    return keys


def _singly(guard: Guard, keys: list[str]) -> float:
    began = time.perf_counter()
    for key in keys:
        guard.get(key)
    return time.perf_counter() - began


def _together(guard: Guard, keys: list[str]) -> float:
    began = time.perf_counter()
    guard.get_many(keys)
    return time.perf_counter() - began


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
    return table(f"{KEYS:,} keys, half of them absent, medians of the rounds", columns, rows)


def judge(records: list[Record]) -> list[Line]:
    """By what a batch is for: the database is asked. From a warm cache there is less to save."""
    what, must = f"get_many of {KEYS:,} keys, to get one by one", f">= {LEAST:g}x"
    found = [r for r in records if r["table"] == "batches"]
    if not found:
        return [missing(what, must)]
    lines = []
    for when in ("cold", "warm"):
        ratios = {r["cache"]: r["ratio"] for r in found if r["when"] == when}
        measured = ", ".join(f"{ratio:.1f}x ({name})" for name, ratio in ratios.items())
        verdict = word(min(ratios.values()) >= LEAST)
        lines.append(Line(f"{what}, {when} cache", must, "-", measured, verdict))
    return lines
