"""`large`: 100 M int64 keys at 1%, beside a plain C loop that only touches the same lines."""

from __future__ import annotations

import ctypes

import bloomery
from benchmarks.keys import ABSENT, int64s
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, count_true, progress, quiet, rotated, time_call
from benchmarks.touch import Buffer, Int64s, Unbuildable, library

ERROR_RATE = 0.01
CHUNK = 1_000_000
C_ADD, C_ASK = "C write, huge pages", "C read, huge pages"
YARDSTICK = {
    "add_many": C_ADD,
    "update": C_ADD,
    "add_many by 1 M": C_ADD,
    "contains_many hit": C_ASK,
    "contains_many miss": C_ASK,
    "contains_many hit by 1 M": C_ASK,
}
"""The C loop has huge pages too: what the kernel gives for the asking is no merit of either."""


def run(settings: Settings) -> list[Record]:
    count = settings.large_keys
    progress.step(f"large: making {count:,} keys")
    present, absent = int64s(0, count), int64s(ABSENT, count)
    best = Best()
    weight: Record = {}
    try:
        with library() as loaded:
            for number in range(settings.rounds):
                passes = rotated(["ours", "huge", "small"], number)
                for which in passes:
                    progress.step(f"large: round {number + 1}/{settings.rounds}, {which}")
                    if which == "ours":
                        weight = _ours(best, present, absent)
                    else:
                        _touch(best, loaded, weight, present, which == "huge")
    except Unbuildable as failure:
        progress.step(f"large: no C loop to compare with ({failure})")
        weight = _ours(best, present, absent)
    return [
        {
            "pass": label,
            "keys": count,
            "error_rate": ERROR_RATE,
            "ns": ns,
            "against": YARDSTICK.get(label),
            "ratio": ns / best.ns[YARDSTICK[label]] if YARDSTICK.get(label) in best.ns else None,
            **(weight if label in YARDSTICK else {}),
        }
        for label, ns in best.ns.items()
    ]


def _ours(best: Best, present: Int64s, absent: Int64s) -> Record:
    count = len(present)
    for label in ("update", "add_many by 1 M", "add_many"):
        # Made outside the clock and paged in inside it, as the C loop's buffer is.
        filter_ = bloomery.BloomFilter(count, ERROR_RATE)
        with quiet():
            if label.endswith("by 1 M"):
                best.note(label, time_call(_by_chunks, filter_.add_many, present), count)
            else:
                best.note(label, time_call(getattr(filter_, label), present), count)
    with quiet():
        best.note("contains_many hit", time_call(filter_.contains_many, present), count)
        best.note("contains_many miss", time_call(filter_.contains_many, absent), count)
        best.note(
            "contains_many hit by 1 M",
            time_call(_by_chunks, filter_.contains_many, present),
            count,
        )
    wrong = count_true(filter_.contains_many(absent))
    return {"bits_a_key": filter_.nbytes * 8 / count, "observed_error_rate": wrong / count}


def _by_chunks(call: object, keys: Int64s) -> None:
    assert callable(call)
    for low in range(0, len(keys), CHUNK):
        call(keys[low : low + CHUNK])


def _touch(best: Best, loaded: ctypes.CDLL, weight: Record, present: Int64s, huge: bool) -> None:
    count = len(present)
    bits = weight.get("bits_a_key") or bloomery.BloomFilter(count, ERROR_RATE).nbytes * 8 / count
    buffer = Buffer(loaded, round(bits * count / 8), huge)
    pages = "huge pages" if huge else "4 KiB pages"
    try:
        with quiet():
            best.note(f"C write, {pages}", time_call(buffer.write, present), count)
            # Only after the writes: pages never written to are all one page of zeros, in cache.
            best.note(f"C read, {pages}", time_call(buffer.read, present), count)
    finally:
        buffer.close()


def render(records: list[Record]) -> str:
    rows = [
        [
            r["pass"],
            f"{r['ns']:.2f}",
            f"{r['ratio']:.2f}" if r["ratio"] else "-",
            f"{r['bits_a_key']:.2f}" if "bits_a_key" in r else "-",
            f"{r['observed_error_rate']:.3%}" if "observed_error_rate" in r else "-",
        ]
        for r in sorted(records, key=lambda r: not r["pass"].startswith("C "))
    ]
    columns = [Column("pass", left=True), Column("ns a key"), Column("x C"), Column("bits/key")]
    return table(
        f"{records[0]['keys']:,} int64 keys at {ERROR_RATE:.0%}; x C: ratio to the C loop with "
        "huge pages (write for adds, read for questions)",
        [*columns, Column("observed")],
        rows,
    )
