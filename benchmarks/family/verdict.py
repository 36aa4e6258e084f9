"""The lines of "How good" for the family: every *must* that its issue states."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.family.speed import ARRAY, BULK, SINGLE, like, times_faster, to_plain
from benchmarks.lines import Line, missing, word
from benchmarks.settings import Record, Settings

FASTER = 5.0
"""How many times faster than each peer."""

DEVIATIONS = 3
"""An observed rate may be above the one asked for by as much as chance explains."""

ASKED = ("hit", "miss")


def judge(records: list[Record], settings: Settings) -> list[Line]:
    lines, banks = _filters(records), _banks(records)
    if settings.scale != 1:
        lines = [replace(line, verdict=f"{line.verdict} (smaller)") for line in lines]
    if settings.quick or settings.scale != 1:
        banks = [replace(line, verdict=f"{line.verdict} (smaller)") for line in banks]
    return [*lines, *banks]


def _filters(records: list[Record]) -> list[Line]:
    speeds = [r for r in records if r["table"] in ("speed", "static")]
    weights = [r for r in records if r["table"] == "weights"]
    return [
        _grown(weights),
        _rates(weights, "scalable", "at 1, 3, 10, 100, 1000 times its first size"),
        _to_plain(speeds, "scalable", "in", ASKED, 2.5),
        _peer(speeds, "scalable", "pybloom-live"),
        _peer(speeds, "scalable", "pyprobables"),
        _rates(weights, "counting", "4 and 8 bits, full"),
        _peer(speeds, "counting", "fastbloom-rs"),
        _peer(speeds, "counting", "pyprobables"),
        _removable(weights),
        _bits(weights, "cuckoo", "<= 1.15 (log2(1/p) + 3) bits at 95% load"),
        _jump(weights),
        _rates(weights, "cuckoo", "full, at 1%, 0.1%, 0.01%"),
        _to_plain(speeds, "cuckoo", "one key at a time", ("add", *ASKED), 2.0),
        _to_plain(speeds, "cuckoo", "batches", (*BULK, *ARRAY), 2.0),
        _peer(speeds, "cuckoo", "cuckoopy"),
        _peer(speeds, "cuckoo", "cuckoofilter"),
        _peer(speeds, "cuckoo", "pyprobables"),
        _rates(weights, "rotating", "after three windows"),
        _peer(speeds, "rotating", "pyprobables"),
        _bits(weights, "static", "<= 1.13 log2(1/p) bits, 8, 16 and 32"),
        _build(speeds),
        _fastest(speeds),
        _peer(speeds, "static", "pyfusefilter"),
        _peer(speeds, "static", "pyxorfilter"),
        _lost(speeds),
    ]


def _grown(weights: list[Record]) -> Line:
    what, must, aim = "scalable, grown 1000 times at 1%", "<= 18 bits a key", "<= 14"
    grown = [r for r in weights if r["kind"] == "scalable" and "limit_bits" in r]
    if not grown:
        return missing(what, must, aim)
    bits = grown[0]["bits_a_key"]
    published = [r["bits_a_key"] for r in weights if "published" in r["what"]]
    measured = f"{bits:.2f} (RedisBloom, published: " + ", ".join(map(str, published)) + ")"
    return Line(what, must, aim, measured, word(bits <= 18, bits <= 14))


def _rates(weights: list[Record], kind: str, when: str) -> Line:
    what, must = f"{kind}, observed rate", f"<= asked for, {when}"
    rows = [r for r in weights if r["kind"] == kind and "observed_error_rate" in r]
    if not rows:
        return missing(what, must)
    worst = max(rows, key=lambda r: r["observed_error_rate"] / r["error_rate"])
    met = all(
        r["observed_error_rate"] <= r["error_rate"] + DEVIATIONS * r["sampling_error"] for r in rows
    )
    measured = (
        f"worst {worst['observed_error_rate']:.3%} of {worst['error_rate']:.3g} "
        f"± {worst['sampling_error']:.3%} ({worst['what']})"
    )
    return Line(what, must, "-", measured, word(met))


def _to_plain(
    speeds: list[Record], kind: str, way: str, operations: tuple[str, ...], limit: float
) -> Line:
    what, must = f"{kind}, {way}", f"<= {limit}x BloomFilter's time"
    worst: dict[str, float] = {}
    for r in speeds:
        if r["kind"] == kind and r["ours"]:
            for op, ratio in to_plain(speeds, r).items():
                if op in operations:
                    worst[op] = max(ratio, worst.get(op, ratio))
    if not worst:
        return missing(what, must)
    measured = "worst " + ", ".join(f"{op.replace('_', ' ')} {x:.2f}x" for op, x in worst.items())
    return Line(what, must, "-", measured, word(max(worst.values()) <= limit))


def _peer(speeds: list[Record], kind: str, name: str) -> Line:
    what, must = f"{kind} beside {name}", f">= {FASTER:g}x faster, one by one and in batches"
    pairs = [
        (mine, peer)
        for peer in speeds
        if peer["kind"] == kind and peer["peer"] == name
        for mine in [r for r in like(speeds, peer, kind) if r["ours"]][:1]
    ]
    ratios = [
        (ratio, f"{op} {mine['keys_of']}", op in SINGLE)
        for mine, peer in pairs
        for op, ratio in times_faster(mine, peer).items()
    ]
    if not ratios:
        return missing(what, must)
    single = min(r for r in ratios if r[2])
    many = min(r for r in ratios if not r[2])
    measured = f"worst {single[0]:.1f}x ({single[1]}); batches {many[0]:.1f}x ({many[1]})"
    return Line(what, must, "-", measured, word(min(single[0], many[0]) >= FASTER))


def _bits(weights: list[Record], kind: str, must: str) -> Line:
    what = f"{kind}, bits a key"
    rows = [r for r in weights if r["kind"] == kind and "limit_bits" in r]
    if not rows:
        return missing(what, must)
    measured = ", ".join(f"{r['bits_a_key']:.2f} of {r['limit_bits']:.2f}" for r in rows)
    return Line(
        what, must, "-", measured, word(all(r["bits_a_key"] <= r["limit_bits"] for r in rows))
    )


def _jump(weights: list[Record]) -> Line:
    what, must = "cuckoo, 10% more keys", "no power-of-two jump: <= 1.03x the bits a key"
    bits = [r["bits_a_key"] for r in weights if r["kind"] == "cuckoo" and r["error_rate"] == 0.01]
    if len(bits) < 2:
        return missing(what, must)
    ratio = max(bits) / min(bits)
    return Line(what, must, "-", f"{ratio:.3f}x", word(ratio <= 1.03))


def _removable(weights: list[Record]) -> Line:
    what, must = "deletable, share that can be removed", "as sizing predicts, within 0.01"
    rows = [r for r in weights if "predicted_share" in r]
    if not rows:
        return missing(what, must)
    off = max(abs(r["predicted_share"] - r["removed_share"]) for r in rows)
    shares = ", ".join(f"{r['removed_share']:.2%}" for r in rows)
    return Line(what, must, "-", f"{shares}; worst {off:.4f} off", word(off <= 0.01))


def _build(speeds: list[Record]) -> Line:
    what, must = "static, build", ">= 5 M keys/s a core"
    ns = [
        (r["ns"]["array_build"], r["ns"]["bulk_build"])
        for r in speeds
        if r["kind"] == "static" and "array_build" in r["ns"]
    ]
    if not ns:
        return missing(what, must)
    array, listed = (1000 / value for value in ns[0])
    measured = f"{array:.1f} M/s from an int64 array, {listed:.1f} from a list of int"
    return Line(what, must, "-", measured, word(array >= 5))


def _fastest(speeds: list[Record]) -> Line:
    what, must = "static, contains_many of int64", "the fastest of all kinds"
    found = {
        r["table"] + r["peer"]: (max(r["ns"][f"array_{op}"] for op in ASKED), r["peer"])
        for r in speeds
        if "array_hit" in r["ns"] and (r["error_rate"] == 0.01 or r["table"] == "static")
    }
    mine = found.pop("staticStaticFilter", None)
    if mine is None:
        return missing(what, must)
    next_best = min(found.values())
    measured = f"{mine[0]:.1f} ns a key; next {next_best[1]} {next_best[0]:.1f}"
    return Line(what, must, "-", measured, word(mine[0] <= next_best[0]))


def _lost(speeds: list[Record]) -> Line:
    what, must = "every kind: a no is certain", "no key that was added is denied"
    ours = [r["lost_keys"] for r in speeds if r["ours"]]
    if not ours:
        return missing(what, must)
    return Line(what, must, "-", f"{sum(ours)} lost", word(sum(ours) == 0))


def _banks(records: list[Record]) -> list[Line]:
    banks = [r for r in records if r["table"] == "bank"]
    if not banks:
        return [missing("bank", "<= 1.15x plain bits, 1.8x spread; unseen(500) <= 50 µs")]
    lines = [_bank(r) for r in banks]
    even = banks[0]
    gigabytes = 10_000_000 * 5_000 * even["bits_a_key"] / 8e9
    lines.append(
        Line(
            "bank, 10 M users of 5,000 keys",
            "<= 70 GB",
            "-",
            f"{gigabytes:.0f} GB at these bits a key; Python sets "
            f"{gigabytes * even['sets_bits_a_key'] / even['bits_a_key']:,.0f} GB",
            word(gigabytes <= 70),
        )
    )
    slowest, form = max((us, form) for r in banks for form, us in r["unseen_us"].items())
    what, must = "bank, unseen of 500", "<= 50 µs"
    lines.append(Line(what, must, "-", f"worst {slowest:.1f} µs ({form})", word(slowest <= 50)))
    return lines


def _bank(r: Record) -> Line:
    # The worst of 500 users is three deviations up by chance alone.
    worst = r["worst_rate"] <= r["error_rate"] + 4 * r["sampling_error"]
    met = r["to_plain"] <= r["limit"] and r["observed_error_rate"] <= r["error_rate"] and worst
    return Line(
        f"bank, {r['what']}",
        f"<= {r['limit']}x plain bits; each user within 1%",
        "-",
        f"{r['to_plain']:.3f}x ({r['bits_a_key']:.2f} bits), {r['observed_error_rate']:.3%}, "
        f"worst user {r['worst_rate']:.3%}",
        word(met and r["lost_keys"] == 0),
    )
