"""`batch`: whole lists, int64 arrays and Arrow columns at once, beside the rival's lists."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.keys import Keys, present_and_absent
from benchmarks.library.adapters import OURS, PEERS, RIVAL, Handle
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import Best, count_true, progress, quiet, rotated, time_call, time_in

Entry = Callable[[float, Best], Record]
"""One contender: builds a filter, times its passes into Best, and says what it weighs."""


def run(settings: Settings) -> list[Record]:
    records: list[Record] = []
    for capacity in settings.capacities:
        progress.step(f"batch: making {capacity:,} keys")
        strings = present_and_absent("str", capacity, min(capacity, settings.ask_cap))
        numbers = present_and_absent("int", capacity, min(capacity, settings.ask_cap))
        entries = _entries(strings, numbers, settings.ask_cap)
        for error_rate in settings.error_rates:
            records += _measure(settings, entries, capacity, error_rate)
    present_and_absent.cache_clear()
    return records


def _entries(
    strings: tuple[Keys, Keys], numbers: tuple[Keys, Keys], ask_cap: int
) -> dict[tuple[str, str], Entry]:
    by_name = {peer.name: peer for peer in PEERS if peer.available()}
    entries: dict[tuple[str, str], Entry] = {}
    if RIVAL in by_name:
        for kind, keys in (("str", strings), ("int", numbers)):
            entries[RIVAL, f"list of {kind}"] = _rival(by_name[RIVAL].make, kind, keys, ask_cap)
    if OURS in by_name:
        make = by_name[OURS].make
        entries[OURS, "list of str"] = _ours(make, strings[0].count, *map(_lists, strings))
        entries[OURS, "list of int"] = _ours(make, numbers[0].count, *map(_lists, numbers))
        entries[OURS, "int64 array"] = _ours(
            make, numbers[0].count, numbers[0].array, numbers[1].array
        )
        try:
            arrow = importlib.import_module("pyarrow")
        except ImportError:
            return entries
        columns = [_columns(arrow, keys) for keys in strings]
        entries[OURS, "Arrow string column"] = _ours(make, strings[0].count, *columns)
    return entries


def _lists(keys: Keys) -> Callable[[], list[Any]]:
    return keys.fresh


def _columns(arrow: Any, keys: Keys) -> Callable[[], Any]:
    """A column is made anew for each pass as well, though nothing in it remembers a hash."""
    # large_string: 10 M URLs are under 2 GiB, but only just.
    return lambda: arrow.array(keys.fresh(), type=arrow.large_string())


def _rival(
    make: Callable[[int, float, str], Handle], kind: str, keys: tuple[Keys, Keys], ask_cap: int
) -> Entry:
    def measure(error_rate: float, best: Best) -> Record:
        present, absent = keys
        handle = make(present.count, error_rate, kind)
        fresh = present.fresh()
        assert handle.update is not None
        with quiet():
            best.note("update", time_call(handle.update, fresh), len(fresh))
        for label, source in (("hit", present), ("miss", absent)):
            fresh = source.fresh(ask_cap)
            with quiet():
                best.note(label, time_in(handle.target, fresh), len(fresh))
        wrong = count_true(map(handle.target.__contains__, absent.fresh()))
        return _weight(handle, present.count, wrong, absent.count)

    return measure


def _ours(
    make: Callable[[int, float, str], Handle],
    count: int,
    present: Callable[[], Any],
    absent: Callable[[], Any],
) -> Entry:
    def measure(error_rate: float, best: Best) -> Record:
        for label in ("add_many", "update"):
            handle = make(count, error_rate, "str")
            fresh = present()
            with quiet():
                best.note(label, time_call(getattr(handle.target, label), fresh), len(fresh))
        for label, source in (("hit", present), ("miss", absent)):
            fresh = source()
            with quiet():
                best.note(label, time_call(handle.target.contains_many, fresh), len(fresh))
        fresh = absent()
        wrong = count_true(handle.target.contains_many(fresh))
        return _weight(handle, count, wrong, len(fresh))

    return measure


def _weight(handle: Handle, count: int, wrong: int, asked: int) -> Record:
    return {
        "bits_a_key": handle.nbytes() * 8 / count,
        "observed_error_rate": wrong / asked,
        "absent_keys": asked,
    }


def _measure(
    settings: Settings, entries: dict[tuple[str, str], Entry], capacity: int, error_rate: float
) -> list[Record]:
    best = {label: Best() for label in entries}
    weighed: dict[tuple[str, str], Record] = {}
    rounds = settings.rounds_at(error_rate)
    for number in range(rounds):
        for label in rotated(list(entries), number):
            progress.step(
                f"batch: {capacity:,} at {error_rate:.1%}, round {number + 1}/{rounds}: "
                f"{label[0]}, {label[1]}"
            )
            weighed[label] = entries[label](error_rate, best[label])
    return [
        {
            "peer": peer,
            "door": door,
            "capacity": capacity,
            "error_rate": error_rate,
            "ns": best[peer, door].ns,
            "ratio": _ratios(best[peer, door].ns, _yardstick(best, door)),
            **weighed[peer, door],
        }
        for peer, door in entries
    ]


def _yardstick(best: dict[tuple[str, str], Best], door: str) -> dict[str, float]:
    """The rival takes lists only: a column or an array is held against its list of those keys."""
    kind = "int" if "int" in door else "str"
    rival = best.get((RIVAL, f"list of {kind}"))
    if rival is None:
        return {}
    ns = rival.ns
    # For the array, the issue holds the question too against the rival's update of the list.
    asked = {"hit": ns["update"], "miss": ns["update"]} if door == "int64 array" else ns
    return {
        "add_many": ns["update"],
        "update": ns["update"],
        "hit": asked["hit"],
        "miss": asked["miss"],
    }


def _ratios(ns: dict[str, float], yardstick: dict[str, float]) -> dict[str, float]:
    return {op: value / yardstick[op] for op, value in ns.items() if op in yardstick}


def render(records: list[Record]) -> str:
    operations = ("add_many", "update", "hit", "miss")
    blocks: list[str] = []
    for capacity, error_rate in dict.fromkeys((r["capacity"], r["error_rate"]) for r in records):
        rows = []
        for r in records:
            if (r["capacity"], r["error_rate"]) != (capacity, error_rate):
                continue
            rows.append(
                [r["peer"], r["door"]]
                + [f"{r['ns'][op]:.1f}" if op in r["ns"] else "-" for op in operations]
                + [f"{r['ratio'][op]:.2f}" if op in r["ratio"] else "-" for op in operations]
                + [f"{r['bits_a_key']:.2f}", f"{r['observed_error_rate']:.3%}"]
            )
        columns = [Column("peer", left=True), Column("keys given as", left=True)]
        columns += [Column(op) for op in operations] + [Column(f"x {op}") for op in operations]
        blocks.append(
            table(
                f"{capacity:,} keys at {error_rate:.1%}: ns a key",
                [*columns, Column("bits/key"), Column("observed")],
                rows,
            )
        )
    return "\n\n".join(blocks) + (
        f"\n\nhit and miss: contains_many, for {RIVAL} a loop of `in`. x: ratio to {RIVAL}: "
        "add_many and update to its update of a list; hit and miss to its loop of `in`, but "
        "for the int64 array to its update as well."
    )
