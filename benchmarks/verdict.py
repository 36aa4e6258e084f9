"""The "How good" table: each line with its *must*, its *aim*, the figure and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from benchmarks.family import verdict as family
from benchmarks.library.adapters import OURS
from benchmarks.lines import Line, missing, word
from benchmarks.parts import module_of
from benchmarks.report import Column, table
from benchmarks.service import verdict as service
from benchmarks.settings import Record, Settings

Parts = dict[str, list[Record]]
PEAK_LIMIT = 1.4e9


def judge(parts: Parts, settings: Settings) -> list[Line]:
    for r in parts.get("library", []):  # those two parts at a million keys
        parts = {**parts, r["table"]: [*parts.get(r["table"], []), r]}
    batch, memory, threads = (parts.get(name, []) for name in ("batch", "memory", "threads"))
    named = [
        _large(parts.get("large", [])),
        _billion(parts.get("billion", [])),
        _billion_urls(parts.get("billion", [])),
        _dedup(parts.get("dedup", [])),
    ]
    if settings.quick or settings.scale != 1:
        named = [replace(line, verdict=f"{line.verdict} (smaller)") for line in named]
    return [
        _single(parts.get("peers", [])),
        _list_of_str(batch, "add_many, update: list of str", ("add_many", "update"), 0.7, 0.5),
        _list_of_str(batch, "contains_many: list of str", ("hit", "miss"), 0.5, 0.3),
        _array(batch, settings.size(1_000_000)),
        _memory(memory, 0.01, 10.0),
        _memory(memory, 0.001, 15.7),
        _threads(threads, "two Python threads", "contains_many, two threads", 1.7),
        _threads(threads, "add_many(threads=2)", "add_many(threads=2)", 1.5),
        *named,
        *(family.judge(parts["family"], settings) if "family" in parts else []),
        *(service.judge(parts["service"], settings) if "service" in parts else []),
        *(line for name, records in parts.items() for line in _by_itself(name, records)),
    ]


def _by_itself(name: str, records: list[Record]) -> list[Line]:
    """The lines of a part that judges its own records."""
    judge_part: Callable[[list[Record]], list[Line]] | None
    judge_part = getattr(module_of(name), "judge", None)
    return judge_part(records) if judge_part else []


def _single(records: list[Record]) -> Line:
    what, must, aim = "add, in: one key at a time", "<= 1.0x abloom", "<= 0.8x"
    ratios = [
        (r["ratio"][op], f"{op} {r['kind']} {r['capacity']:,} at {r['error_rate']:.1%}")
        for r in records
        if r["peer"] == OURS and "ratio" in r
        for op in ("add", "hit", "miss")
        if op in r["ratio"]
    ]
    if not ratios:
        return missing(what, must, aim)
    worst, where = max(ratios)
    middle = median(ratio for ratio, _ in ratios)
    return Line(
        what,
        must,
        aim,
        f"worst {worst:.2f}x ({where}); median {middle:.2f}x",
        word(worst <= 1.0, worst <= 0.8),
    )


def _list_of_str(
    records: list[Record], what: str, operations: tuple[str, ...], limit: float, hoped: float
) -> Line:
    other = "its update" if "update" in operations else "its loop of in"
    must, aim = f"<= {limit}x {other}", f"<= {hoped}x"
    ratios = [
        (r["ratio"][op], f"{op} {r['capacity']:,} at {r['error_rate']:.1%}")
        for r in records
        if r["peer"] == OURS and r["door"] == "list of str"
        for op in operations
        if op in r["ratio"]
    ]
    if not ratios:
        return missing(what, must, aim)
    worst, where = max(ratios)
    return Line(
        what,
        must,
        aim,
        f"worst {worst:.2f}x ({where}); best {min(ratios)[0]:.2f}x",
        word(worst <= limit, worst <= hoped),
    )


def _array(records: list[Record], capacity: int) -> Line:
    what, must, aim = "int64 array, 1 M keys", "<= 0.2x its update of the list", "<= 6 ns a key"
    rows = [r for r in records if r["door"] == "int64 array" and r["capacity"] == capacity]
    operations = ("add_many", "hit", "miss")
    if not any(r["ratio"] for r in rows):
        return missing(what, must, aim)
    ratio = max(r["ratio"][op] for r in rows for op in operations)
    worst, op = max((r["ns"][op], op) for r in rows for op in operations)
    return Line(
        what,
        must,
        aim,
        f"worst {ratio:.2f}x, {worst:.1f} ns ({op})",
        word(ratio <= 0.2, worst <= 6),
    )


def _memory(records: list[Record], error_rate: float, limit: float) -> Line:
    what = f"memory at {error_rate:.1%}, blocked"
    must = f"<= {limit} bits a key, observed within 2%"
    for r in records:
        if r["layout"] == "blocked" and r["error_rate"] == error_rate:
            measured = (
                f"{r['bits_a_key']:.2f} bits, {r['observed_error_rate']:.4%} "
                f"({r['off_target']:+.2%} ± {r['sampling_error']:.2%})"
            )
            met = r["bits_a_key"] <= limit and abs(r["off_target"]) <= 0.02
            return Line(what, must, "-", measured, word(met))
    return missing(what, must)


def _large(records: list[Record]) -> Line:
    what, must = "100 M int64 keys at 1%", "<= 1.3x a C loop that touches the lines"
    wanted = ("add_many", "contains_many hit", "contains_many miss")
    ratios = [(r["ratio"], r["pass"]) for r in records if r["pass"] in wanted and r["ratio"]]
    if not ratios:
        return missing(what, must)
    worst = max(ratios)[0]
    return Line(
        what,
        must,
        "-",
        ", ".join(f"{name} {ratio:.2f}x" for ratio, name in ratios),
        word(worst <= 1.3),
    )


def _threads(records: list[Record], label: str, what: str, limit: float) -> Line:
    must = f">= {limit}x one"
    rows = [r for r in records if label in r["pass"] and "contains_many(" not in r["pass"]]
    if not rows:
        return missing(what, must)
    worst = min(r["speedup"] for r in rows)
    return Line(
        what,
        must,
        "-",
        f"worst {worst:.2f}x, best {max(r['speedup'] for r in rows):.2f}x",
        word(worst >= limit),
    )


def _billion(records: list[Record]) -> Line:
    what, aim = "10^9 keys at 1%", "< 60 s"
    must = "finishes; <= 1.02%; peak <= 1.4 GB + a chunk"
    if not records:
        return missing(what, must, aim)
    r = records[0]
    if not r["finished"]:
        return Line(what, must, aim, f"exit code {r['exit_code']}", word(False))
    met = r["observed_error_rate"] <= 0.0102 and r["peak_bytes"] <= PEAK_LIMIT + r["chunk_bytes"]
    measured = (
        f"{r['seconds']:.0f} s, {r['observed_error_rate']:.3%}, peak "
        f"{r['peak_bytes'] / 1e9:.2f} GB ({r['keys']:,} keys)"
    )
    return Line(what, must, aim, measured, word(met, r["seconds"] < 60))


def _billion_urls(records: list[Record]) -> Line:
    what = "10^9 URLs at 1%, from lines in memory"
    must = "<= 180 s; <= 1.02%; peak <= 1.4 GB"
    found = [r for r in records if r.get("what") == "urls"]
    if not found:
        return missing(what, must)
    (r,) = found
    if not r["finished"]:
        return Line(what, must, "-", f"exit code {r['exit_code']}", word(False))
    met = r["add_seconds"] <= 180 and r["observed_error_rate"] <= 0.0102
    measured = (
        f"{r['add_seconds']:.0f} s, {r['making_seconds']:.0f} s of them to make lines of "
        f"{r['bytes_a_line']:.0f} bytes; {r['observed_error_rate']:.3%}, peak "
        f"{r['peak_bytes'] / 1e9:.2f} GB ({r['keys']:,} URLs)"
    )
    return Line(what, must, "-", measured, word(met and r["peak_bytes"] <= PEAK_LIMIT))


def _dedup(records: list[Record]) -> Line:
    what, must = "bloomery dedup, 10 M URL lines", ">= 4x faster than awk, <= 1/10 memory"
    by_mix: dict[str, dict[str, Record]] = {}
    for r in records:
        by_mix.setdefault(r["mix"], {})["awk" if r["command"].startswith("awk") else OURS] = r
    pairs = [(mix, sides) for mix, sides in by_mix.items() if len(sides) == 2]
    if not pairs:
        return missing(what, must)
    if any(sides[OURS]["exit_code"] for _, sides in pairs):
        return Line(what, must, "-", "the command failed", word(False))
    faster = [sides["awk"]["seconds"] / sides[OURS]["seconds"] for _, sides in pairs]
    smaller = [sides["awk"]["peak_bytes"] / sides[OURS]["peak_bytes"] for _, sides in pairs]
    measured = "; ".join(
        f"{mix}: {f:.1f}x faster, 1/{s:.1f} memory"
        for (mix, _), f, s in zip(pairs, faster, smaller, strict=True)
    )
    return Line(what, must, "-", measured, word(min(faster) >= 4 and min(smaller) >= 10))


def render(lines: list[Line], settings: Settings) -> str:
    columns = [Column(t, left=True) for t in ("what", "must", "aim", "measured", "verdict")]
    title = "How good"
    if settings.quick or settings.scale != 1:
        title += " (a quick run: smaller sizes than the lines name, so verdicts are a hint)"
    return table(
        title,
        columns,
        [[line.what, line.must, line.aim, line.measured, line.verdict] for line in lines],
    )
