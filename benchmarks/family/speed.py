"""Every kind that is filled key by key, beside the plain filter and its peers, in one run."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

from benchmarks.family.contenders import CONTENDERS, PLAIN
from benchmarks.keys import Keys, present_and_absent
from benchmarks.library.adapters import Handle, Peer
from benchmarks.library.peers import bulk, one_by_one
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, count_true, progress, quiet, rotated, time_add, time_call

SINGLE = ("add", "hit", "miss", "remove")
BULK = ("bulk_build", "bulk_add", "bulk_hit", "bulk_miss", "bulk_remove")
ARRAY = ("array_build", "array_add", "array_hit", "array_miss")
OPERATIONS = (*SINGLE, *BULK, *ARRAY)
SLOW_ABSENT = 20_000
"""Absent keys that a slow peer is asked for: at 1%, one deviation is 7% of the rate."""

Entry = tuple[str, Peer]


def run(settings: Settings) -> list[Record]:
    records: list[Record] = []
    size = settings.family_timed
    for keys_of in ("str", "int"):
        progress.step(f"family: making {size:,} {keys_of} keys")
        keys = present_and_absent(keys_of, size, size)
        for error_rate in settings.error_rates:
            records += _measure(settings, _entries(keys_of, error_rate), keys, error_rate)
    present_and_absent.cache_clear()
    return records


def _entries(keys_of: str, error_rate: float) -> list[Entry]:
    """Below 1% only the cuckoo filter has a *must* to hold."""
    return [
        (kind, peer)
        for kind, peers in CONTENDERS.items()
        for peer in peers
        if peer.available()
        and keys_of in peer.takes
        and (error_rate >= 0.01 or (kind in ("plain", "cuckoo") and peer.module == "bloomery"))
    ]


def _measure(
    settings: Settings, entries: list[Entry], keys: tuple[Keys, Keys], error_rate: float
) -> list[Record]:
    """A contender that fails is told and left out; the others go on."""
    present = keys[0]
    best = {(kind, peer.name): Best() for kind, peer in entries}
    weighed: dict[tuple[str, str], Record] = {}
    failed: dict[tuple[str, str], Record] = {}
    for number in range(settings.family_rounds):
        for kind, peer in rotated(entries, number):
            label = (kind, peer.name)
            if label in failed or (peer.cap is not None and number >= settings.few_rounds):
                continue
            where = f"{kind}, {peer.name}, {present.count:,} {present.kind} at {error_rate:.1%}"
            progress.step(f"family: round {number + 1}/{settings.family_rounds}: {where}")
            try:
                weight = _round(settings, peer, best[label], keys, error_rate, label in weighed)
                weighed[label] = weighed.get(label) or weight
            except Exception:  # noqa: BLE001 (whatever a peer raises)
                failed[label] = {
                    "table": "failed",
                    "step": where,
                    "failure": traceback.format_exc(),
                }
    records = [
        {
            "table": "speed",
            "kind": kind,
            "peer": peer.name,
            "ours": peer.module == "bloomery",
            "keys_of": present.kind,
            "error_rate": error_rate,
            "rounds": best[kind, peer.name].passes["add"],
            "ns": best[kind, peer.name].ns,
            **weighed[kind, peer.name],
        }
        for kind, peer in entries
        if (kind, peer.name) not in failed
    ]
    return [*records, *failed.values()]


def _round(
    settings: Settings,
    peer: Peer,
    best: Best,
    keys: tuple[Keys, Keys],
    error_rate: float,
    weighed: bool,
) -> Record:
    """Every pass of one contender, and what it weighs before keys are removed, once."""
    present, absent = keys
    size = min(present.count, peer.cap or present.count)
    handle = peer.make(size, error_rate, present.kind)
    one_by_one(handle, best, present, absent, size, settings.ask_cap)
    asked = absent.count if peer.cap is None else SLOW_ABSENT
    weight = {} if weighed else weigh(handle, present, absent, size, asked)
    if handle.remove is not None:
        fresh = present.fresh(size)
        with quiet():
            best.note("remove", time_add(handle.remove, fresh), size)
    _batches(peer.make(size, error_rate, present.kind), best, present, absent, size)
    if present.kind == "int" and peer.module == "bloomery":
        _arrays(peer.make(size, error_rate, present.kind).target, best, present, absent)
    return weight


def _batches(handle: Handle, best: Best, present: Keys, absent: Keys, size: int) -> None:
    bulk(handle, best, present, absent, size)
    if handle.remove_many is not None:
        keys = present.fresh(size)
        with quiet():
            best.note("bulk_remove", time_call(handle.remove_many, keys), size)


def _arrays(filter_: Any, best: Best, present: Keys, absent: Keys) -> None:
    """Ours alone: no peer takes an array as it is."""
    for label, call, source in (
        ("array_add", filter_.add_many, present),
        ("array_hit", filter_.contains_many, present),
        ("array_miss", filter_.contains_many, absent),
    ):
        keys = source.array()
        with quiet():
            best.note(label, time_call(call, keys), len(keys))


def weigh(handle: Handle, present: Keys, absent: Keys, size: int, asked: int) -> Record:
    """Bits a key, the observed error rate, and keys that were added and are denied."""

    def ask(keys: list[Any]) -> Iterable[object]:
        if handle.contains_many is not None:
            answers: Iterable[object] = handle.contains_many(keys)
            return answers
        return map(handle.contains or handle.target.__contains__, keys)

    others = absent.fresh(asked)
    return {
        "keys": size,
        "bits_a_key": handle.nbytes() * 8 / size,
        "observed_error_rate": count_true(ask(others)) / len(others),
        "absent_keys": len(others),
        "lost_keys": size - count_true(ask(present.fresh(size))),
    }


def like(records: list[Record], row: Record, kind: str) -> list[Record]:
    """The rows of a kind that were measured with the same keys and rate as this one."""
    same = ("table", "keys_of", "error_rate")
    return [r for r in records if r["kind"] == kind and all(r.get(f) == row[f] for f in same)]


def to_plain(records: list[Record], row: Record) -> dict[str, float]:
    """How many times the plain filter's time, for each operation that both have."""
    plain = {op: ns for r in like(records, row, "plain") for op, ns in r["ns"].items()}
    return {op: ns / plain[op] for op, ns in row["ns"].items() if op in plain}


def times_faster(row: Record, peer: Record) -> dict[str, float]:
    """How many times faster than the peer. A batch stands against the peer's own way to do many
    keys: its batch, or its loop where it has none; an array against the same, with those keys."""
    theirs = peer["ns"]
    faster: dict[str, float] = {}
    for op, ns in row["ns"].items():
        single = op.split("_")[-1]
        ways = (op,) if op in SINGLE else (f"bulk_{single}", single)
        found = next((theirs[way] for way in ways if way in theirs), None)
        if found is not None:
            faster[op] = found / ns
    return faster


def render(records: list[Record]) -> str:
    return render_kinds(
        records,
        {
            kind: [f"  {p.name}: {p.note}" for p in peers if p.note]
            + [f"  {p.name}: not installed, left out" for p in peers if not p.available()]
            for kind, peers in CONTENDERS.items()
            if kind != "plain"
        },
    )


def render_kinds(records: list[Record], notes: dict[str, list[str]]) -> str:
    """A table for each kind, sort of keys and rate, with the plain filter last; then the notes."""
    blocks: list[str] = []
    for kind, lines in notes.items():
        groups: dict[tuple[str, float], Record] = {}
        for r in records:
            if r["kind"] == kind:
                groups.setdefault((r["keys_of"], r["error_rate"]), r)
        for first in groups.values():
            rows = [*like(records, first, kind), *like(records, first, "plain")]
            blocks.append(_block(rows))
        blocks += ["\n".join(lines)] if lines else []
    return "\n\n".join(blocks)


def _block(rows: list[Record]) -> str:
    first = rows[0]
    operations = [op for op in OPERATIONS if any(op in r["ns"] for r in rows)]
    columns = [Column("filter", left=True)]
    columns += [Column(op.replace("_", " ")) for op in operations]
    columns += [Column(t) for t in ("bits/key", "observed", "lost", "keys", "best of")]
    cells = [
        [r["peer"]]
        + [f"{r['ns'][op]:.1f}" if op in r["ns"] else "-" for op in operations]
        + [
            f"{r['bits_a_key']:.2f}",
            f"{r['observed_error_rate']:.3%}",
            str(r["lost_keys"]),
            f"{r['keys']:,}",
            str(r["rounds"]),
        ]
        for r in rows
    ]
    title = f"{first['kind']}, {first['keys_of']} keys at {first['error_rate']:.2g}: ns a key"
    lines = [table(title, columns, cells)]
    ours = [r for r in rows if r["ours"] and r["kind"] != "plain"]
    lines += [f"  {r['peer']}: times {PLAIN}'s: " + _listed(to_plain(rows, r)) for r in ours]
    lines += [
        f"  {mine['peer']}: times faster than {r['peer']}: " + _listed(times_faster(mine, r))
        for mine in ours[:1]
        for r in rows
        if not r["ours"]
    ]
    return "\n".join(lines)


def _listed(ratios: dict[str, float]) -> str:
    return ", ".join(
        f"{op.replace('_', ' ')} {ratios[op]:.2f}" for op in OPERATIONS if op in ratios
    )
