"""`peers`: one key at a time and in bulk, every peer, every kind of key, in interleaved rounds."""

from __future__ import annotations

from benchmarks.keys import Keys, present_and_absent
from benchmarks.library.adapters import CONTENDERS, PEERS, RIVAL, Handle, Peer
from benchmarks.report import Column, table
from benchmarks.settings import KINDS, Record, Settings
from benchmarks.timing import (
    Best,
    count_true,
    progress,
    quiet,
    rotated,
    time_add,
    time_call,
    time_empty,
    time_in,
)

OPERATIONS = ("add", "hit", "miss", "bulk_add", "bulk_hit", "bulk_miss")
FLOOR = "empty loop"


def run(settings: Settings) -> list[Record]:
    records: list[Record] = []
    available = [peer for peer in PEERS if peer.available()]
    for capacity in settings.capacities:
        for kind in KINDS:
            progress.step(f"peers: making {capacity:,} {kind} keys")
            keys = present_and_absent(kind, capacity, min(capacity, settings.ask_cap))
            for error_rate in settings.error_rates:
                some = [p for p in available if _timed(settings, p, kind)]
                records += _measure(settings, some, keys, kind, error_rate)
    present_and_absent.cache_clear()
    return records + [_patterned(peer, settings) for peer in available if peer.name == "rbloom"]


def _patterned(peer: Peer, settings: Settings) -> Record:
    """How often a peer errs for keys that differ in their upper bits alone, which ids often do."""
    count = settings.size(100_000)
    handle = peer.make(count, 0.01, "int")
    for number in range(count):
        handle.add(number << 40)
    wrong = count_true((count + at) << 40 in handle.target for at in range(count))
    about = {"peer": peer.name, "fact": "i << 40", "keys": count}
    return about | {"observed_error_rate": wrong / count}


def _measure(
    settings: Settings, peers: list[Peer], keys: tuple[Keys, Keys], kind: str, error_rate: float
) -> list[Record]:
    present, absent = keys
    capacity = present.count
    many = capacity >= settings.many and not settings.quick
    if many:  # the slow ones say at 1 M what they would say here
        peers = [
            p
            for p in peers
            if p.cap is None and (p.name in CONTENDERS or error_rate == settings.error_rates[0])
        ]
    best = {peer.name: Best() for peer in peers}
    best[FLOOR] = Best()
    weighed: dict[str, Record] = {}
    for number in range(settings.rounds):
        _floor(best[FLOOR], present)
        for peer in rotated(peers, number):
            if number >= _rounds(settings, peer):
                continue
            progress.step(
                f"peers: {capacity:,} {kind} at {error_rate:.1%}, "
                f"round {number + 1}/{settings.rounds}: {peer.name}"
            )
            size = min(capacity, peer.cap or capacity)
            handle = peer.make(size, error_rate, kind)
            one_by_one(handle, best[peer.name], present, absent, size, settings.ask_cap)
            if peer.name not in weighed:
                weighed[peer.name] = _weigh(handle, absent, size)
            del handle
            bulk(peer.make(size, error_rate, kind), best[peer.name], present, absent, size)
    rows: list[Record] = [
        {"peer": FLOOR, "ns": best[FLOOR].ns, "keys": capacity, "rounds": settings.rounds}
    ]
    rows += [
        {
            "peer": p.name,
            "ns": best[p.name].ns,
            "rounds": best[p.name].passes["add"],
            **weighed[p.name],
        }
        for p in peers
    ]
    rival = best[RIVAL].ns if RIVAL in best else {}
    for row in rows:
        row |= {
            "capacity": capacity,
            "kind": kind,
            "error_rate": error_rate,
            "ratio": {op: ns / rival[op] for op, ns in row["ns"].items() if op in rival},
        }
    return rows


def _timed(settings: Settings, peer: Peer, kind: str) -> bool:
    return kind in settings.kinds_of_all or peer.name in CONTENDERS


def _rounds(settings: Settings, peer: Peer) -> int:
    """Ours and those that a *must* names run every round."""
    return settings.rounds if peer.name in CONTENDERS else settings.few_rounds


def _floor(best: Best, present: Keys) -> None:
    keys = present.fresh()
    with quiet():
        best.note("add", time_empty(keys), len(keys))


def one_by_one(
    handle: Handle, best: Best, present: Keys, absent: Keys, size: int, ask_cap: int
) -> None:
    keys = present.fresh(size)
    with quiet():
        best.note("add", time_add(handle.add, keys), size)
    del keys
    for label, source in (("hit", present), ("miss", absent)):
        keys = source.fresh(min(size, ask_cap))
        with quiet():
            if handle.contains is not None:  # the loop of add, since it has no `in`
                best.note(label, time_add(handle.contains, keys), len(keys))
            else:
                best.note(label, time_in(handle.target, keys), len(keys))
        del keys


def bulk(handle: Handle, best: Best, present: Keys, absent: Keys, size: int) -> None:
    if handle.update is None:
        return
    keys = present.fresh(size)
    with quiet():
        best.note("bulk_add", time_call(handle.update, keys), size)
    del keys
    if handle.contains_many is None:
        return
    for label, source in (("bulk_hit", present), ("bulk_miss", absent)):
        keys = source.fresh(size)
        with quiet():
            best.note(label, time_call(handle.contains_many, keys), len(keys))
        del keys


def _weigh(handle: Handle, absent: Keys, size: int) -> Record:
    """Bits a key, the observed error rate, and the time to make bytes of it: outside the loops."""
    # Also for a peer filled with fewer: at 1% 2,000 of them err, one deviation is 2% of the rate.
    asked = absent.fresh(min(absent.count, 200_000))
    ask = handle.contains or handle.target.__contains__
    wrong = count_true(map(ask, asked))
    weight: Record = {
        "keys": size,
        "bits_a_key": handle.nbytes() * 8 / size,
        "observed_error_rate": wrong / len(asked),
        "absent_keys": len(asked),
    }
    if handle.serialise is not None:
        with quiet():
            weight["serialise_ms"] = time_call(handle.serialise) / 1e6
    return weight


def render(records: list[Record]) -> str:
    blocks: list[str] = []
    groups: dict[tuple[int, str, float], list[Record]] = {}
    facts = [record for record in records if "fact" in record]
    for record in records:
        if "fact" in record:
            continue
        group = (record["capacity"], record["kind"], record["error_rate"])
        groups.setdefault(group, []).append(record)
    for (capacity, kind, error_rate), rows in groups.items():
        columns = [Column("peer", left=True)]
        columns += [Column(op.replace("_", " ")) for op in OPERATIONS]
        columns += [Column(f"x {op}") for op in ("add", "hit", "miss", "bulk")]
        columns += [Column("bits/key"), Column("observed"), Column("to bytes"), Column("keys")]
        columns.append(Column("best of"))
        blocks.append(
            table(
                f"{kind} keys, {capacity:,} at {error_rate:.1%}: ns a key; x: ratio to {RIVAL}",
                columns,
                [_cells(row, capacity) for row in rows],
            )
        )
    notes = [f"  {p.name}: {p.note}" for p in PEERS if p.note]
    notes += [
        f"  {p.name}: slow, so (*) made for and filled with {p.cap:,} keys; the ns stand for more"
        for p in PEERS
        if p.cap
    ]
    notes.append("  from 10 M keys on, hit and miss ask for 2 M of them; slow peers are left out")
    notes += [
        f"  {r['peer']}: keys {r['fact']}: {r['observed_error_rate']:.0%} wrong" for r in facts
    ]
    notes += [f"  {p.name}: not installed, left out" for p in PEERS if not p.available()]
    return "\n\n".join(blocks) + "\n\nNotes\n" + "\n".join(notes)


def _cells(row: Record, capacity: int) -> list[str]:
    ns, ratio = row["ns"], row["ratio"]
    cells = [row["peer"]]
    cells += [f"{ns[op]:.1f}" if op in ns else "-" for op in OPERATIONS]
    cells += [
        f"{ratio[op]:.2f}" if op in ratio else "-" for op in ("add", "hit", "miss", "bulk_add")
    ]
    if "bits_a_key" in row:
        cells += [f"{row['bits_a_key']:.2f}", f"{row['observed_error_rate']:.3%}"]
    else:
        cells += ["-", "-"]
    cells.append(f"{row['serialise_ms']:.2f} ms" if "serialise_ms" in row else "-")
    cells.append(f"{row['keys']:,}" + ("" if row["keys"] == capacity else " *"))
    cells.append(str(row["rounds"]))
    return cells
