"""The lines of "How good" for the server: every *must* that its issue states."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from benchmarks.lines import Line, missing, word
from benchmarks.service import pauses
from benchmarks.service.cases import CASES, Case
from benchmarks.service.rates import shown
from benchmarks.settings import Record, Settings


def judge(records: list[Record], settings: Settings) -> list[Line]:
    by_table: dict[str, list[Record]] = {}
    for r in records:
        by_table.setdefault(r["table"], []).append(r)
    large = [
        _latency(by_table.get("latency", [])),
        _slower(by_table.get("latency", [])),
        pauses.judge(by_table.get("pauses", [])),
        _restart(by_table.get("restart", [])),
        *_workers(by_table.get("workers", [])),
        _idle(by_table.get("idle", [])),
    ]
    if settings.quick or settings.scale != 1:
        large = [replace(line, verdict=f"{line.verdict} (smaller)") for line in large]
    return [
        *(_rate(case, by_table.get("rates", [])) for case in CASES if case.must is not None),
        *large,
        _memory(by_table.get("memory", [])),
        _lost(by_table.get("filters", [])),
    ]


def _rate(case: Case, rates: list[Record]) -> Line:
    assert case.must is not None
    assert case.aim is not None
    what = f"{case.what}, " + (
        "no pipeline" if case.pipeline == 1 else f"pipeline of {case.pipeline}"
    )
    must, aim = f">= {shown(case.must)}", f">= {shown(case.aim)}"
    found = [
        r
        for r in rates
        if (r["server"], r["what"], r["pipeline"]) == (case.server, case.what, case.pipeline)
    ]
    if not found:
        return missing(what, must, aim)
    r = found[0]
    if case.keys > 1:
        measured = f"{r['rate'] / 1e6:.2f} M keys/s"
        return Line(what, must, aim, measured, word(r["rate"] >= case.must, r["rate"] >= case.aim))
    must = f"{must} Redis {r['peer']}"
    measured = f"{r['ratio']:.2f}x ({r['rate']:,.0f} to {r['peer_rate']:,.0f} a second)"
    return Line(what, must, aim, measured, word(r["ratio"] >= case.must, r["ratio"] >= case.aim))


def _latency(phases: list[Record]) -> Line:
    what = "p99 of BF.EXISTS under half the load it can take, snapshot of 1 GB"
    must, aim = "<= 10 ms", "<= 2 ms"
    during = [r for r in phases if r["when"].endswith("snapshot") and "after" not in r["when"]]
    if not during:
        return missing(what, must, aim)
    worst = max(during, key=lambda r: r["p99_ms"])
    load = worst["load"]
    measured = (
        f"{worst['p99_ms']:.2f} ms ({worst['when']}; before it {phases[0]['p99_ms']:.2f}) "
        f"at {load['rate']:,.0f}/s"
    )
    # A server that does not keep up with the load was not measured under it.
    held = load["rate"] >= 0.95 * load["offered"] and not load["errors"]
    return Line(
        what,
        must,
        aim,
        measured + ("" if held else ": the load was not kept up"),
        word(held and worst["p99_ms"] <= 10, worst["p99_ms"] <= 2),
    )


def _slower(phases: list[Record]) -> Line:
    what, must, aim = "p99 of BF.EXISTS while a snapshot is made, to before", "<= 2x", "<= 1.2x"
    during = [r for r in phases if r["when"].endswith("snapshot") and "after" not in r["when"]]
    if not during:
        return missing(what, must, aim)
    worst = max(during, key=lambda r: r["p99_ms"])
    ratio = worst["p99_ms"] / phases[0]["p99_ms"]
    return Line(what, must, aim, f"{ratio:.2f}x ({worst['when']})", word(ratio <= 2, ratio <= 1.2))


def _restart(records: list[Record]) -> Line:
    what = "restart, 1.2 GB and a log of 10 M adds, until the Redis port answers"
    must, aim = "<= 1 s", "<= 0.6 s"
    if not records:
        return missing(what, must, aim)
    r = records[0]
    slowest = r.get("slowest", r["seconds"])
    measured = f"{r['seconds']:.2f} s, the slowest of three {slowest:.2f} s, "
    measured += f"{r['lost_keys']} of {r['sampled']:,} keys lost"
    met = r["seconds"] <= 1 and r["lost_keys"] == 0
    return Line(what, must, aim, measured, word(met, r["seconds"] <= 0.6))


def _workers(records: list[Record]) -> list[Line]:
    """Compare two workers with one, by the medians of the rounds."""
    whats = (
        ("two workers to one, BF.MEXISTS of 100 keys", ">= 1.5x", ">= 1.8x", "keys_per_second"),
        ("CPU per request, two workers to one", "<= 1.2x", "<= 1.05x", "us_per_request"),
        ("p99 of 500 readers next to 500 writers, two to one", "<= 1x", "<= 0.5x", "p99_ms"),
    )
    lines = []
    for what, must, aim, name in whats:
        one, two = ([r[name] for r in records if r["threads"] == n] for n in (1, 2))
        if not one or not two:
            lines.append(missing(what, must, aim))
            continue
        ratio = median(two) / median(one)
        limits = [float(text.split()[1].rstrip("x")) for text in (must, aim)]
        met = [ratio >= limit if must[0] == ">" else ratio <= limit for limit in limits]
        measured = f"{ratio:.2f}x ({median(one):,.2f} and {median(two):,.2f})"
        lines.append(Line(what, must, aim, measured, word(*met)))
    return lines


def _idle(records: list[Record]) -> Line:
    what, must = "CPU of an idle server", "<= 0.3% of a core"
    if not records:
        return missing(what, must)
    r = records[0]
    measured = f"{r['cores']:.2%}, {r['resident_bytes'] / 1e6:.0f} MB resident"
    return Line(what, must, "-", measured, word(r["cores"] <= 0.003))


def _memory(records: list[Record]) -> Line:
    what, must = "memory beside the filters", "<= 120 MB"
    if not records:
        return missing(what, must)
    nbytes = records[0]["beside_bytes"]
    return Line(what, must, "-", f"{nbytes / 1e6:.0f} MB", word(nbytes <= 120e6))


def _lost(filters: list[Record]) -> Line:
    what, must = "every server: a no is certain", "no key that was added is denied"
    if not filters:
        return missing(what, must)
    lost = sum(r["lost_keys"] for r in filters)
    # CF.RESERVE asks for no rate.
    worst = max(r["observed_error_rate"] for r in filters if r["door"] == "BF")
    measured = f"{lost} lost; observed error rate of BF.* at most {worst:.3%} of 1%"
    return Line(what, must, "-", measured, word(lost == 0))
