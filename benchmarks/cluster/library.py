"""`RedisFilter` beside the pipeline that people write by hand: 1,000 keys a call, and one."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import redis

from benchmarks.cluster import by_hand
from benchmarks.cluster.stage import pinned
from benchmarks.cluster.ways import ERROR_RATE, MUST, Way, ways
from benchmarks.keys import present_and_absent
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress, quiet, rotated

AT_ONCE = 1000
BATCHES = 5  # a round
SINGLY = 500  # keys, a round
LEAST, AIM, LEAST_ONE = 10.0, 25.0, 1.5
WHATS = ("add_many", "contains_many", "add")

Times = dict[str, list[float]]  # keys a second, a round each


def run(settings: Settings) -> list[Record]:
    """Redis on one core, this process on the other; by hand and ours in turn."""
    servers.check_tools()
    capacity = max(20_000, settings.size(1_000_000))  # a round needs some
    rounds = settings.cluster_rounds
    with (
        servers.scratch() as folder,
        servers.redis(folder) as store,
        redis.Redis(port=store.port) as client,
        ways(f"redis://127.0.0.1:{store.port}/0", capacity) as all_ways,
        pinned(),
    ):
        present, absent = (k.fresh() for k in present_and_absent("str", capacity, capacity))
        times: dict[str, Times] = {}
        start = 0
        for number in range(rounds):
            progress.step(f"cluster: the library, round {number + 1} of {rounds}")
            passes = _round(client, all_ways, present, absent, start)
            for name, what, work in rotated(passes, number):
                with quiet():
                    began = time.perf_counter()
                    keys = work()
                    taken = time.perf_counter() - began
                times.setdefault(name, {}).setdefault(what, []).append(keys / taken)
            start = (start + AT_ONCE * BATCHES + SINGLY) % (capacity // 2)
        return [_record(way, times, present, absent) for way in all_ways]


Pass = tuple[str, str, Callable[[], int]]


def _round(
    client: redis.Redis, all_ways: list[Way], present: list[str], absent: list[str], start: int
) -> list[Pass]:
    """Every pass of a round: the same keys for all, new ones each round. Half of the keys that are
    asked for are among those that were added first."""
    whole = present[start : start + AT_ONCE * BATCHES]
    batches = [whole[at : at + AT_ONCE] for at in range(0, len(whole), AT_ONCE)]
    half = AT_ONCE // 2
    asked = [(present[:half] + absent[i * half : (i + 1) * half]) for i in range(BATCHES)]
    after = start + AT_ONCE * BATCHES
    singly = present[after : after + SINGLY]
    passes: list[Pass] = []
    num_bits = all_ways[0].nbytes * 8
    for num_hashes in sorted({way.num_hashes for way in all_ways}):
        add, ask, one = (
            [by_hand.positions(some, num_bits, num_hashes) for some in given]
            for given in (batches, asked, [[key] for key in singly])
        )
        hand = _hand(num_hashes)
        passes.append((hand, "add_many", lambda p=add: _by_hand(client, by_hand.added, p)))  # type: ignore[misc]
        passes.append((hand, "contains_many", lambda p=ask: _by_hand(client, by_hand.found, p)))  # type: ignore[misc]
        passes.append((hand, "add", lambda p=one: _by_hand(client, by_hand.added, p)))  # type: ignore[misc]
    for way in all_ways:
        passes.append((way.name, "add_many", lambda w=way: _many(w.add_many, batches)))  # type: ignore[misc]
        passes.append((way.name, "contains_many", lambda w=way: _many(w.contains_many, asked)))  # type: ignore[misc]
        passes.append((way.name, "add", lambda w=way: _one(w.add, singly)))  # type: ignore[misc]
    return passes


def _hand(num_hashes: int) -> str:
    return f"by hand, k={num_hashes}"


def _by_hand(
    client: redis.Redis,
    work: Callable[[redis.Redis, list[list[int]]], object],
    batches: list[list[list[int]]],
) -> int:
    for places in batches:
        work(client, places)
    return sum(map(len, batches))


def _many(work: Callable[[list[str]], object], batches: list[list[str]]) -> int:
    for batch in batches:
        work(batch)
    return sum(map(len, batches))


def _one(work: Callable[[str], object], keys: list[str]) -> int:
    for key in keys:
        work(key)
    return len(keys)


def _record(way: Way, times: dict[str, Times], present: list[str], absent: list[str]) -> Record:
    """What was found; then the filter is filled, to see how often it errs."""
    progress.step(f"cluster: the library, filling {way.name}")
    for at in range(0, len(present), 100_000):
        way.add_many(present[at : at + 100_000])
    lost = len(present) - count_true(way.contains_many(present))
    wrong = count_true(way.contains_many(absent))
    rates = {what: median(times[way.name][what]) for what in WHATS}
    hand = {what: median(times[_hand(way.num_hashes)][what]) for what in WHATS}
    return {
        "table": "library",
        "way": way.name,
        "rounds": len(times[way.name]["add"]),
        "num_hashes": way.num_hashes,
        "rates": rates,
        "by_hand": hand,
        "ratio": {what: rates[what] / hand[what] for what in WHATS},
        "bits_a_key": way.nbytes * 8 / len(present),
        "observed_error_rate": wrong / len(absent),
        "lost_keys": lost,
    }


def render(records: list[Record]) -> str:
    columns = [Column("filter", left=True), Column("k")]
    for what in WHATS:
        columns += [Column(f"{what}/s"), Column("by hand"), Column("ratio")]
    columns += [Column(t) for t in ("bits a key", f"observed, of {ERROR_RATE:.0%}", "lost")]
    rows = [
        [
            *(r["way"], str(r["num_hashes"])),
            *(
                cell
                for what in WHATS
                for cell in (
                    f"{r['rates'][what]:,.0f}",
                    f"{r['by_hand'][what]:,.0f}",
                    f"{r['ratio'][what]:.1f}x",
                )
            ),
            f"{r['bits_a_key']:.2f}",
            f"{r['observed_error_rate']:.3%}",
            str(r["lost_keys"]),
        ]
        for r in records
    ]
    title = (
        f"Keys a second of RedisFilter, {AT_ONCE:,} keys a call (add: one), beside k SETBITs or "
        f"GETBITs a key\nin a pipeline of redis-py with hiredis; one connection, a core each, "
        f"medians of {records[0]['rounds']} rounds in turn"
    )
    return table(title, columns, rows)


def judge(records: list[Record]) -> list[Line]:
    found = [r for r in records if r["table"] == "library" and r["way"] == MUST]
    lines = []
    for what in WHATS:
        one = what == "add"
        text = "add, one key a call" if one else f"{what} of {AT_ONCE:,}"
        text += f", to k {'GET' if what == 'contains_many' else 'SET'}BITs by hand"
        least = LEAST_ONE if one else LEAST
        must, aim = f">= {least:g}x", "-" if one else f">= {AIM:g}x"
        if not found:
            lines.append(missing(text, must, aim))
            continue
        (r,) = found
        ratio = r["ratio"][what]
        measured = f"{ratio:.1f}x ({r['rates'][what]:,.0f} to {r['by_hand'][what]:,.0f} keys/s)"
        verdict = word(ratio >= least, None if one else ratio >= AIM)
        lines.append(Line(text, must, aim, measured, verdict))
    return lines
