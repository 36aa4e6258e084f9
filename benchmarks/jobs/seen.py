"""`seen`: a SeenStore of 100,000 users with 5,000 articles each, and of a million with 500, in a
window of several generations; and what 10 million users would cost, beside hash sets.

Each store is measured in a process of its own, so that what is resident is the store's.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, time_call
from bloomery.apps import SeenStore

ERROR_RATE = 0.01
GENERATIONS = 3
CANDIDATES, LIMIT = 500, 20
ROWS = 4_000_000
"""Marks that are made in one call."""

SAMPLE = 300
BILL_USERS, BILL_ARTICLES = 10_000_000, 5_000
_ODD = np.uint64(0x9E3779B97F4A7C15)
_DAY = 86400.0
Ints = npt.NDArray[np.int64]


def run(settings: Settings) -> list[Record]:
    records: list[Record] = []
    for users, articles in settings.seen_stores:
        progress.step(f"seen: {users:,} users, {articles:,} articles each")
        code = f"from benchmarks.jobs import seen; seen.tell({users}, {articles})"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        records.append(json.loads(done.stdout))
    progress.step("seen: sets of Python and Redis")
    return [*records, _python_sets(settings.seen_sets), _redis_sets(settings.seen_sets)]


def tell(users: int, articles: int) -> None:
    print(json.dumps(_measure(users, articles)))


def _ids(users: Ints, numbers: Ints) -> Ints:
    """What a user had as its n-th: ids under 2**48 in no order, of which users share some."""
    ids = ((users * 7919 + numbers) % (1 << 20)).astype(np.uint64)
    ids *= _ODD
    ids &= np.uint64((1 << 48) - 1)
    return ids.view(np.int64)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _measure(users: int, articles: int) -> Record:
    before, now = _resident(), 1_700_000_000.0
    # All that the store keeps: the window's generations, and the one that leaves it.
    days = GENERATIONS + 1
    with tempfile.TemporaryDirectory() as folder:
        store = SeenStore(
            folder,
            window=GENERATIONS * _DAY,
            generations=GENERATIONS,
            articles_per_user=articles * GENERATIONS // days,
            error_rate=ERROR_RATE,
            clock=lambda: now,
        )
        elapsed = 0
        parts = np.array_split(np.arange(articles, dtype=np.int64), days)
        for day, numbers in enumerate(parts):
            now += _DAY if day else 0.0
            # Articles come over the day, a few of each user at a time.
            for some in np.array_split(numbers, max(1, len(numbers) * users // ROWS)):
                who = np.repeat(np.arange(users, dtype=np.int64), len(some))
                ids = _ids(who, np.tile(some, users))
                elapsed += time_call(store.mark, who, ids)
        del who, ids
        resident = _resident() - before
        rng = np.random.default_rng(1)
        sample = rng.choice(users, min(SAMPLE, users), replace=False).tolist()
        lost, left_out, times = _asked(store, sample, articles)
        flushed = time_call(store.flush)
        marks = users * articles
        record = {
            "table": "stores",
            "users": users,
            "articles": articles,
            "marks": marks,
            "generations": len(store.info()["generations"]),
            "error_rate": ERROR_RATE,
            "nbytes": store.nbytes,
            "bytes_a_mark": store.nbytes / marks,
            "resident_bytes": resident,
            "mark_ns": elapsed / marks,
            "flush_seconds": flushed / 1e9,
            "fresh_us": statistics.median(times) / 1000,
            "lost": lost,
            "left_out": left_out,
        }
        store.close()
        return record


def _asked(store: SeenStore, sample: list[int], articles: int) -> tuple[int, float, list[int]]:
    """Marks that are offered again, the share of new articles left out, and times of `fresh`."""
    lost, absent, times = 0, [], []
    fresh_numbers = np.arange(500_000, 520_000, dtype=np.int64)
    for user in sample:
        who = np.full(1, user, dtype=np.int64)
        own = _ids(who, np.arange(articles, dtype=np.int64))
        lost += len(store.fresh(user, own))
        new = _ids(who, fresh_numbers)
        absent.append(1 - len(store.fresh(user, new)) / len(new))
        half = CANDIDATES // 2
        candidates = np.concatenate([own[:half], new[:half]]).tolist()
        start = time.perf_counter_ns()
        store.fresh(user, candidates, LIMIT)
        times.append(time.perf_counter_ns() - start)
    return lost, statistics.fmean(absent), times


def _python_sets(users: int) -> Record:
    """A set of ints for each of a few users: what they hold, and the ints themselves."""
    seen: dict[int, set[int]] = {}
    for user in range(users):
        who = np.full(1, user, dtype=np.int64)
        seen[user] = set(_ids(who, np.arange(BILL_ARTICLES, dtype=np.int64)).tolist())
    nbytes = sum(sys.getsizeof(ids) + sum(map(sys.getsizeof, ids)) for ids in seen.values())
    marks = sum(map(len, seen.values()))
    return {"table": "sets", "what": "Python set", "bytes_a_mark": nbytes / marks, "users": users}


def _redis_sets(users: int) -> Record:
    """A SET of the ids for each of a few users, weighed by Redis's own count of its memory."""
    from redis import Redis

    from benchmarks.service import servers

    with servers.scratch() as folder, servers.redis(folder) as running:
        client: Any = Redis(port=running.port)
        before = client.info("memory")["used_memory"]
        for user in range(users):
            who = np.full(1, user, dtype=np.int64)
            ids = _ids(who, np.arange(BILL_ARTICLES, dtype=np.int64)).tolist()
            client.sadd(f"seen:{user}", *ids)
        nbytes = client.info("memory")["used_memory"] - before
        client.close()
    marks = users * BILL_ARTICLES
    return {"table": "sets", "what": "Redis SET", "bytes_a_mark": nbytes / marks, "users": users}


def bill(records: list[Record]) -> list[tuple[str, float]]:
    """What 10 million users with 5,000 articles each in the window take, in bytes: a store keeps a
    generation more than the window."""
    marks = BILL_USERS * BILL_ARTICLES
    store = next(r for r in records if r["table"] == "stores")
    kept = marks * (GENERATIONS + 1) / GENERATIONS
    found = [("SeenStore, window and a generation", kept * store["bytes_a_mark"])]
    return found + [(r["what"], marks * r["bytes_a_mark"]) for r in records if r["table"] == "sets"]


def judge(records: list[Record]) -> list[Line]:
    what, must = "seen: what was marked in the window", "never offered again; <= 1% left out"
    stores = [r for r in records if r["table"] == "stores"]
    if not stores:
        return [missing(what, must)]
    lost, left_out = sum(r["lost"] for r in stores), max(r["left_out"] for r in stores)
    (ours, *others) = bill(records)
    measured = f"{lost} offered, {left_out:.2%} left out; 10 M users: {ours[1] / 1e9:,.0f} GB, "
    measured += ", ".join(f"{name} {nbytes / 1e9:,.0f} GB" for name, nbytes in others)
    return [Line(what, must, "-", measured, word(lost == 0 and left_out <= ERROR_RATE))]


def render(records: list[Record]) -> str:
    rows = [
        [
            f"{r['users']:,}",
            f"{r['articles']:,}",
            f"{r['nbytes'] / 1e6:,.0f}",
            f"{r['resident_bytes'] / 1e6:,.0f}",
            f"{8 * r['bytes_a_mark']:.2f}",
            f"{r['mark_ns']:.0f}",
            f"{r['fresh_us']:.0f}",
            f"{r['flush_seconds']:.1f}",
            f"{r['left_out']:.3%}",
            str(r["lost"]),
        ]
        for r in records
        if r["table"] == "stores"
    ]
    names = ("users", "articles", "MB", "resident MB", "bits a mark", "mark ns", "fresh µs")
    columns = [Column(name) for name in (*names, "flush s", "left out", "offered again")]
    title = f"SeenStore at 1%, {GENERATIONS + 1} generations; fresh of {CANDIDATES} candidates"
    text = table(title, columns, rows)
    rows = [[name, f"{nbytes / 1e9:,.0f}"] for name, nbytes in bill(records)]
    columns = [Column("10 M users, 5,000 articles each in the window", left=True), Column("GB")]
    return text + "\n\n" + table("the bill", columns, rows)
