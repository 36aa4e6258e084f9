"""`admission`: caches that keep what is asked for twice, on a trace of which 75% of the objects are
asked for once; and three edges that know by summaries what the others hold."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from cachetools import LRUCache

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet
from bloomery import RotatingBloomFilter
from bloomery.apps import AdmissionCache, EdgeSummaries, edge_summary
from bloomery.apps.caching.traces import LruSizes, TraceComparison, TraceRequest

ONE_HIT = 0.75
SKEW = 0.9
"""Of Zipf's law, by which the other objects are asked for."""

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Sizes of the cache, as shares of the bytes of all objects."""

EDGES = 3
PUBLISHED = (100, 1_000, 10_000, 100_000)
"""Requests to an edge between two summaries of it."""


def run(settings: Settings) -> list[Record]:
    return [*_traces(settings), *_edges(settings), _cost(settings)]


def trace(objects: int, seed: int = 1) -> Iterator[TraceRequest]:
    """Requests for so many objects: three quarters of them once, the others by Zipf's law, at least
    twice each; sizes log-normal about 16 kB, as on the web."""
    rng = np.random.default_rng(seed)
    popular = round(objects * (1 - ONE_HIT))
    weights = 1 / np.arange(1, popular + 1) ** SKEW
    drawn = rng.choice(popular, 20 * popular, p=weights / weights.sum())
    twice = np.tile(np.arange(popular), 2)
    requests = np.concatenate([drawn, twice, np.arange(popular, objects)])
    rng.shuffle(requests)
    sizes = np.clip(rng.lognormal(np.log(16_000), 1.5, objects), 100, 50e6).astype(int)
    for number, key in enumerate(requests.tolist()):
        yield TraceRequest(float(number), b"/object/%d" % key, int(sizes[key]))


def _traces(settings: Settings) -> list[Record]:
    objects = settings.admission_objects
    progress.step(f"admission: a trace of {objects:,} objects")
    total = sum({request.key: request.size for request in trace(objects)}.values())
    sizes = [round(total * share) for share in SHARES]
    capacity = objects // 2
    comparison = TraceComparison(sizes, capacity=capacity)
    for request in trace(objects):
        comparison.ask(request)
    facts = comparison.as_dict()
    outcomes = {(each.cache_bytes, each.admission): each for each in comparison.outcomes()}
    about = {name: facts[name] for name in ("requests", "objects", "one_hit_share")}
    records: list[Record] = []
    for share, size in zip(SHARES, sizes, strict=True):
        plain, admitted = (outcomes[size, way].as_dict() for way in (False, True))
        records.append(
            {
                "table": "trace",
                "share": share,
                "cache_bytes": size,
                "remembered": capacity,
                "without": plain,
                "with": admitted,
                "fewer_writes": 1 - admitted["writes"] / plain["writes"],
                "more_hits": admitted["hit_ratio"] - plain["hit_ratio"],
                **about,
            }
        )
    return records


class _Edge:
    """The cache of an edge, and what it knows of the others."""

    def __init__(self, nbytes: int) -> None:
        self.cache = LruSizes(nbytes)
        self.neighbours = EdgeSummaries(max_age=1e9)
        self.asked = 0


def _edges(settings: Settings) -> Iterator[Record]:
    objects = settings.admission_objects // 4
    requests = list(trace(objects, seed=2))
    nbytes = round(0.05 * sum({r.key: r.size for r in requests}.values()))
    rng = np.random.default_rng(3)
    turns = rng.integers(0, EDGES, len(requests)).tolist()
    for every in (None, *PUBLISHED):
        progress.step(f"admission: three edges, a summary every {every} requests")
        yield _shared(requests, turns, nbytes, every)


def _shared(
    requests: list[TraceRequest], turns: list[int], nbytes: int, every: int | None
) -> Record:
    edges = [_Edge(nbytes) for _ in range(EDGES)]
    counts = {"hits": 0, "neighbour": 0, "wasted": 0, "origin": 0}
    published = 0
    for request, turn in zip(requests, turns, strict=True):
        edge = edges[turn]
        edge.asked += 1
        if every is not None and edge.asked % every == 0:
            data = edge_summary(edge.cache.keys())
            published += len(data)
            for other in edges:
                if other is not edge:
                    other.neighbours.receive(str(turn), data)
        if request.key in edge.cache:
            edge.cache[request.key]
            counts["hits"] += 1
            continue
        source = "origin"
        for holder in edge.neighbours.holders(request.key):
            held = request.key in edges[int(holder)].cache
            edge.neighbours.report(holder, held)
            counts["wasted"] += not held
            source = "neighbour" if held else source
        counts[source] += 1
        if request.size <= nbytes:
            edge.cache[request.key] = request.size
    return {
        "table": "edges",
        "every": every,
        "requests": len(requests),
        "cache_bytes": nbytes,
        "published_bytes": published,
        **counts,
    }


def _cost(settings: Settings) -> Record:
    """What admission adds to a look-up: a hit, and a miss whose value is there at once."""
    count = settings.admission_calls
    medians: dict[str, list[float]] = {"hit": [], "miss": [], "plain hit": [], "plain miss": []}
    for _ in range(settings.rounds):
        ways: dict[str, Any] = {
            "": AdmissionCache(LRUCache(count), RotatingBloomFilter(2 * count, window=None)),
            "plain ": LRUCache(count),
        }
        for name, cache in ways.items():
            for what, passes in (("miss", 1), ("hit", 3)):
                keys = [f"/object/{n}" for n in range(count)]
                for _ in itertools.repeat(None, passes - 1):
                    _timed(cache, keys)
                medians[name + what].append(_timed(cache, keys) / count)
    return {
        "table": "cost",
        "calls": count,
        "ns": {name: statistics.median(times) for name, times in medians.items()},
    }


def _timed(cache: Any, keys: list[str]) -> int:
    """As `@cached` uses a cache: look, and keep what was missing."""
    with quiet():
        start = time.perf_counter_ns()
        for key in keys:
            try:
                cache[key]
            except KeyError:
                cache[key] = key
        return time.perf_counter_ns() - start


def judge(records: list[Record]) -> list[Line]:
    what = "admission, 75% of the objects asked for once"
    must = ">= 20% fewer writes, higher hit ratio"
    rows = [r for r in records if r["table"] == "trace"]
    if not rows:
        return [missing(what, must)]
    fewer = min(rows, key=lambda r: r["fewer_writes"])
    more = min(rows, key=lambda r: r["more_hits"])
    measured = (
        f"worst {fewer['fewer_writes']:.0%} fewer ({fewer['share']:.0%} cached), "
        f"{more['more_hits'] * 100:+.1f} points of hits ({more['share']:.0%} cached)"
    )
    met = fewer["fewer_writes"] >= 0.2 and more["more_hits"] > 0
    return [Line(what, must, "-", measured, word(met))]


def render(records: list[Record]) -> str:
    rows = [
        [
            f"{r['share']:.0%}",
            f"{r['cache_bytes'] / 1e6:,.0f}",
            f"{r[way]['filter_bytes'] / 1e6:.2f}",
            way,
            f"{r[way]['hit_ratio']:.2%}",
            f"{r[way]['byte_hit_ratio']:.2%}",
            f"{r[way]['writes']:,}",
            f"{r[way]['bytes_written'] / 1e6:,.0f}",
        ]
        for r in records
        if r["table"] == "trace"
        for way in ("without", "with")
    ]
    names = ("of the bytes", "cache MB", "filter MB", "admission", "hits", "byte hits", "writes")
    first = next(r for r in records if r["table"] == "trace")
    title = (
        f"{first['requests']:,} requests for {first['objects']:,} objects, "
        f"{first['one_hit_share']:.1%} of them asked for once; least recently used goes first"
    )
    text = table(title, [Column(name) for name in (*names, "MB written")], rows)
    rows = [
        [
            "none" if r["every"] is None else f"{r['every']:,}",
            f"{r['hits']:,}",
            f"{r['neighbour']:,}",
            f"{r['wasted']:,}",
            f"{r['origin']:,}",
            f"{r['published_bytes'] / 1e6:,.1f}",
        ]
        for r in records
        if r["table"] == "edges"
    ]
    titles = ("summary every", "own hits", "neighbours' hits", "asked in vain", "to the origin")
    columns = [Column(title) for title in (*titles, "MB published")]
    text += "\n\n" + table("three edges, each with a cache of 5% of the bytes", columns, rows)
    (cost,) = (r for r in records if r["table"] == "cost")
    shown = ", ".join(f"{name} {ns:,.0f}" for name, ns in cost["ns"].items())
    return f"{text}\n\nns a look-up in a cache of cachetools, with admission and plain: {shown}"
