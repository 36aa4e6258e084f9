"""The bank of filters: one a user, all of the planned size, spread widely, or a million of them,
beside Python sets.

A user has seen a run of articles out of 2**20; where it starts differs from user to user, so most
articles are known to some users and not to others.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bloomery
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress, quiet, time_call

ERROR_RATE = 0.01
PLANNED = 5_000
FEW = 200
"""Keys of each of a million users."""

CANDIDATES = 500
MEDIAN, LEAST, MOST = 1_000, 10, 100_000
"""The spread: log-normal about the median, the bounds three deviations away."""

STEP = 40
"""Articles that a user reads at a time, at most."""

AT_ONCE = 100_000
"""Users whose rows are made together: a million would take gigabytes of columns."""

ABSENT_OF_A_USER = 20_000
SAMPLE = 500
_ARTICLES = 1 << 20
_ODD = np.uint64(0x9E3779B97F4A7C15)
Ints = npt.NDArray[np.int64]


def run(settings: Settings) -> list[Record]:
    """Each bank in a process of its own, so that what is resident is the bank's."""
    records: list[Record] = []
    # The spread gives as good a figure with fewer users, in which large ones still are.
    for shape, users in (
        ("even", settings.bank_users),
        ("spread", settings.bank_users // 5),
        ("many", settings.bank_many),
    ):
        progress.step(f"family: bank, {shape}, {users:,} users")
        code = f"from benchmarks.family import bank; bank.tell({shape!r}, {users})"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        records.append(json.loads(done.stdout))
    return records


def tell(shape: str, users: int) -> None:
    print(json.dumps(measure(shape, users)))


def measure(shape: str, users: int) -> Record:
    if shape != "spread":
        planned, limit = (PLANNED, 1.15) if shape == "even" else (FEW, 1.8)
        sizes = np.full(users, planned, dtype=np.int64)
        if shape == "even":
            return _measure(f"{planned:,} keys each", sizes, planned, limit)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "users.bank"
            return _measure(f"{planned:,} keys each, in a file", sizes, planned, limit, path)
    spread = math.log(MOST / MEDIAN) / 3
    drawn = np.random.default_rng(1).lognormal(math.log(MEDIAN), spread, users)
    sizes = np.clip(drawn, LEAST, MOST).astype(np.int64)
    return _measure(f"log-normal, {LEAST} to {MOST:,}", sizes, MEDIAN, 1.8)


def _articles(users: Ints, numbers: Ints) -> Ints:
    """What a user saw as its n-th, as ids under 2**48 in no order."""
    ids = ((users * 7919 + numbers) % _ARTICLES).astype(np.uint64)
    ids *= _ODD
    ids &= np.uint64((1 << 48) - 1)
    return ids.view(np.int64)


def _rows(sizes: Ints) -> Iterator[tuple[str, Ints, Ints]]:
    """Columns of users and articles, a few articles of every user who is not yet done; most with
    the rows of a user together, every tenth with those of all users in turns."""
    step = min(STEP, max(1, int(sizes.max()) // 10))
    for turn, done in enumerate(range(0, int(sizes.max()), step)):
        numbers = np.arange(done, done + step, dtype=np.int64)
        for first in range(0, len(sizes), AT_ONCE):
            some = sizes[first : first + AT_ONCE]
            if turn % 10 == 5:
                order = "in turns"
                number, user = np.nonzero(numbers[:, None] < some)
            else:
                order = "together"
                user, number = np.nonzero(numbers < some[:, None])
            user += first
            yield order, user, _articles(user, number + done)


def _resident() -> int:
    """What the process has in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _measure(
    what: str, sizes: Ints, planned: int, limit: float, path: Path | None = None
) -> Record:
    keys = int(sizes.sum())
    before = _resident()
    bank = bloomery.FilterBank(error_rate=ERROR_RATE, keys_per_filter=planned, path=path)
    elapsed, rows = Counter[str](), Counter[str]()
    for order, users, articles in _rows(sizes):
        elapsed[order] += time_call(bank.add_many, users, articles)
        rows[order] += len(users)
    del users, articles
    resident = _resident() - before
    if path is not None:  # asked from the file, as another process would
        bank.close()
        bank = bloomery.FilterBank.open(path)
    sample = np.random.default_rng(2).choice(len(sizes), min(SAMPLE, len(sizes)), replace=False)
    rates, lost = _rates(bank, sizes, sample)
    plain = bloomery.BloomFilter(1_000_000, ERROR_RATE).nbytes * 8 / 1_000_000
    bits = bank.nbytes * 8 / keys
    deviation = math.sqrt(ERROR_RATE / ABSENT_OF_A_USER)
    return {
        "table": "bank",
        "kind": "bank",
        "what": what,
        "users": len(sizes),
        "keys": keys,
        "keys_per_filter": planned,
        "error_rate": ERROR_RATE,
        "bits_a_key": bits,
        "limit_bits": limit * plain,
        "to_plain": bits / plain,
        "resident_bits_a_key": resident * 8 / keys,
        "limit": limit,
        "add_ns": {order: elapsed[order] / rows[order] for order in rows},
        "lost_keys": lost,
        "observed_error_rate": statistics.fmean(rates),
        "worst_rate": max(rates),
        "sampling_error": deviation,
        "unseen_us": _unseen(bank, sizes, sample),
        **_sets(sizes, sample),
    }


def _rates(bank: Any, sizes: Ints, sample: Ints) -> tuple[list[float], int]:
    """The rate of each user in the sample, and keys of theirs that are denied."""
    rates: list[float] = []
    lost = 0
    absent = np.arange(2 * MOST, 2 * MOST + ABSENT_OF_A_USER, dtype=np.int64)
    for user in sample.tolist():
        who = np.full(1, user, dtype=np.int64)
        rates.append(count_true(bank.contains_many(user, _articles(who, absent))) / len(absent))
        own = _articles(who, np.arange(sizes[user], dtype=np.int64))
        lost += len(own) - count_true(bank.contains_many(user, own))
    return rates, lost


def _candidates(user: int, size: int) -> Ints:
    """Half of them seen, if the user has seen as many."""
    seen = min(size, CANDIDATES // 2)
    fresh = np.arange(2 * MOST, 2 * MOST + CANDIDATES - seen, dtype=np.int64)
    numbers = np.concatenate([np.arange(seen, dtype=np.int64), fresh])
    return _articles(np.full(1, user, dtype=np.int64), numbers)


def _unseen(bank: Any, sizes: Ints, sample: Ints) -> dict[str, float]:
    """Microseconds a call, the median over users: each is asked for once, so none is in cache."""
    forms: dict[str, Callable[[Ints], Any]] = {
        "int64 array": lambda ids: ids,
        "list of int": lambda ids: ids.tolist(),
        "list of str": lambda ids: [f"article-{id_}" for id_ in ids.tolist()],
    }
    medians: dict[str, float] = {}
    for form, (name, cut) in enumerate(forms.items()):
        part = sample[form :: len(forms)].tolist()
        asked = [(user, cut(_candidates(user, int(sizes[user])))) for user in part]
        times: list[int] = []
        with quiet():
            for user, candidates in asked:
                start = time.perf_counter_ns()
                bank.unseen(user, candidates)
                times.append(time.perf_counter_ns() - start)
        medians[name] = statistics.median(times) / 1000
    return medians


def _sets(sizes: Ints, sample: Ints) -> Record:
    """A dict of sets of the same ids: what the sample weighs, and how long it takes to ask it."""
    seen: dict[int, set[int]] = {}
    for user in sample[:50].tolist():
        own = _articles(np.full(1, user, dtype=np.int64), np.arange(sizes[user], dtype=np.int64))
        seen[user] = set(own.tolist())
    nbytes = sys.getsizeof(seen)
    nbytes += sum(sys.getsizeof(ids) + sum(map(sys.getsizeof, ids)) for ids in seen.values())
    times: list[int] = []
    for user, ids in seen.items():
        candidates = _candidates(user, len(ids)).tolist()
        start = time.perf_counter_ns()
        [id_ for id_ in candidates if id_ not in ids]
        times.append(time.perf_counter_ns() - start)
    return {
        "sets_bits_a_key": nbytes * 8 / sum(map(len, seen.values())),
        "sets_unseen_us": statistics.median(times) / 1000,
    }


def render(records: list[Record]) -> str:
    columns = [Column("users and keys", left=True)]
    titles = (
        "users",
        "keys",
        "bits/key",
        "resident",
        "x plain",
        "limit",
        "observed",
        "worst user",
        "± (1 sd)",
    )
    columns += [
        Column(title) for title in (*titles, "lost", "add ns", "in turns", "sets: bits/key")
    ]
    rows = [
        [
            r["what"],
            f"{r['users']:,}",
            f"{r['keys']:,}",
            f"{r['bits_a_key']:.2f}",
            f"{r['resident_bits_a_key']:.2f}",
            f"{r['to_plain']:.3f}",
            f"{r['limit']:.2f}",
            f"{r['observed_error_rate']:.3%}",
            f"{r['worst_rate']:.3%}",
            f"{r['sampling_error']:.3%}",
            str(r["lost_keys"]),
            f"{r['add_ns']['together']:.1f}",
            f"{r['add_ns']['in turns']:.1f}",
            f"{r['sets_bits_a_key']:.0f}",
        ]
        for r in records
    ]
    lines = [table("bank of filters at 1%; rates of a sample of users, each alone", columns, rows)]
    lines += [
        f"  unseen({CANDIDATES}) of {r['what']}, µs: "
        + ", ".join(f"{form} {us:.1f}" for form, us in r["unseen_us"].items())
        + f"; a loop over a Python set {r['sets_unseen_us']:.1f}"
        for r in records
    ]
    return "\n".join(lines)
