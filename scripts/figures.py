"""Published figures, made from results files: `make figures`, or `python scripts/figures.py`.

`python -m benchmarks` leaves a file for each part, `benchmarks/results/PART.json`. What README and
the pages say about speed stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`, and
is what the function NAME below makes of those files; so are the numbers in
`bloomery.sizing.cluster_figures` and benchmarks/results/summary.md. A test compares. A run on a
busy machine, and a quick one, are refused.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
RESULTS = TREE / "benchmarks" / "results"
CLUSTER_FIGURES = TREE / "python" / "bloomery" / "sizing" / "cluster_figures.py"
PLANNER_FIGURES = TREE / "python" / "bloomery" / "service" / "planner" / "measured.py"
SUMMARY = RESULTS / "summary.md"
BUSY = 0.2  # cores, as in benchmarks/machine.py
OURS, RIVAL = "bloomery", "abloom serializable"

Record = dict[str, Any]
BLOCKS: dict[str, Callable[[], str]] = {}


class Unpublishable(Exception):
    """A results file whose figures must not be shown."""


def block(make: Callable[[], str]) -> Callable[[], str]:
    """Enter a block of the pages, by the name of its function."""
    BLOCKS[make.__name__.strip("_").replace("_", "-")] = make
    return make


# Results files.


@cache
def result(part: str) -> Record:
    """What a part of the benchmarks found."""
    found: Record = json.loads((RESULTS / f"{part}.json").read_text("utf-8"))
    settings = found["settings"]
    if "note" not in found:  # those before there were results files say what they are
        if found["busy"] > BUSY:
            raise Unpublishable(f"{part}.json: {found['busy']:g} cores were at work for others")
        if settings["quick"] or settings["scale"] != 1:
            raise Unpublishable(f"{part}.json: from a quick run")
    return found


def measured(part: str) -> bool:
    return (RESULTS / f"{part}.json").exists()


def records(part: str, **wanted: object) -> list[Record]:
    """The records of a part that have these values."""
    return [r for r in result(part)["records"] if wanted.items() <= r.items()]


def record(part: str, **wanted: object) -> Record:
    """The only one."""
    (found,) = records(part, **wanted)
    return found


def source(*parts: str) -> str:
    """Which runs a block is from."""
    runs = []
    for found in map(result, parts):
        run = f"`{found['command']}`, {found['started'][:10]}"
        if (commit := found["machine"]["commit"]) != "unknown":
            run += f", commit {commit}"
        runs.append(f"{run}, **{found['caveat']}**" if "caveat" in found else run)
    return paragraph(f"({'; '.join(dict.fromkeys(runs))}.)")


# Text.


def paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    first = list(head)
    lines = [first, ["---"] * len(first), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def rounded(value: float, digits: int = 3) -> str:
    """With so many digits, the others 0: no run says more."""
    text = f"{value:.{digits - 1}e}"
    value = float(text)
    places = max(0, digits - 1 - int(text.partition("e")[2]))
    return f"{value:,.{places}f}"


def many(value: float) -> str:
    """Of keys or requests, a second."""
    return f"{rounded(value / 1e6, 2)} M" if value >= 1e6 else rounded(value)


# README.


@block
def machine() -> str:
    about = result("library")["machine"]
    files = sorted(RESULTS.glob("*.json"))
    cpus = sorted({json.loads(file.read_text("utf-8"))["machine"]["cpu"] for file in files})
    which = " or an ".join(cpus) + (", as its results file says," if len(cpus) > 1 else "")
    return paragraph(
        f"Each table is made from the results of the run that it names, on an {which}"
        f" with {about['cores']} virtual cores under Python {about['python']}; all that the "
        "runs printed is in [`benchmarks/results/`](benchmarks/results/summary.md). The machine is "
        "shared: read differences under 25% as noise."
    )


@block
def library() -> str:
    def peers(what: str, kind: str, op: str) -> list[str]:
        pair = [_peer(p, kind)[op] for p in (OURS, RIVAL)]
        return [what, *_beside(*pair)]

    def batch(what: str, form: str, op: str, theirs: str, their_op: str) -> list[str]:
        return [what, *_beside(_batch(OURS, form)["ns"][op], _batch(RIVAL, theirs)["ns"][their_op])]

    weights = {
        (peer, rate): _batch(peer, "list of str", rate)
        for peer in (OURS, RIVAL)
        for rate in (0.01, 0.001)
    }
    rows = [
        peers("`add`, one str", "str", "add"),
        peers("`in`, one str", "str", "hit"),
        peers("`add`, one int", "int", "add"),
        peers("`in`, one 16-byte key", "bytes", "hit"),
        batch("`update`, list of str", "list of str", "update", "list of str", "update"),
        batch(
            "`contains_many`, list of str (theirs: a loop of `in`)",
            *("list of str", "hit", "list of str", "hit"),
        ),
        batch(
            "`add_many`, int64 array (theirs: `update` of the list)",
            *("int64 array", "add_many", "list of int", "update"),
        ),
        batch(
            "`contains_many`, int64 array (theirs: a loop of `in`)",
            *("int64 array", "hit", "list of int", "hit"),
        ),
        [
            "bits a key at 1% / 0.1%",
            *(
                " / ".join(f"{weights[peer, rate]['bits_a_key']:.2f}" for rate in (0.01, 0.001))
                for peer in (OURS, RIVAL)
            ),
            "",
        ],
        [
            "observed error rate at 1%",
            *(f"{weights[peer, 0.01]['observed_error_rate']:.3%}" for peer in (OURS, RIVAL)),
            "",
        ],
    ]
    head = ("", "bloomery", "abloom, saveable", "ratio")
    return table(head, rows) + "\n" + source("library")


def _peer(peer: str, kind: str) -> dict[str, float]:
    found: dict[str, float] = record("library", table="peers", peer=peer, kind=kind)["ns"]
    return found


def _batch(peer: str, form: str, error_rate: float = 0.01) -> Record:
    return record("library", table="batch", peer=peer, door=form, error_rate=error_rate)


def _beside(ours: float, theirs: float) -> list[str]:
    return [rounded(ours, 2), rounded(theirs, 2), f"{ours / theirs:.2f}"]


@block
def large() -> str:
    r, urls = _billion()
    ours, loop = records("shell", table="dedup")
    return paragraph(
        f"10⁹ keys at 1% in one filter: added, and probed with 10⁸ absent ones, in "
        f"{r['seconds']:.0f} s; observed error rate {r['observed_error_rate']:.3%}, peak memory "
        f"{r['peak_bytes'] / 1e9:.2f} GB.{urls} `{ours['command']}` on "
        f"{ours['lines'] / 1e6:g} M lines of JSON: {ours['seconds']:.1f} s and "
        f"{ours['peak_bytes'] / 1e6:.0f} MB, where a loop over a Python set with orjson takes "
        f"{loop['seconds']:.1f} s and {loop['peak_bytes'] / 1e6:.0f} MB."
    ) + ("\n" + source("billion", "shell"))


def _billion() -> tuple[Record, str]:
    """The record of the numbers, and a sentence about the URLs, if they were measured."""
    (numbers,) = [r for r in records("billion") if r.get("what", "int64") == "int64"]
    if not (urls := records("billion", what="urls")):
        return numbers, ""
    return numbers, f" 10⁹ URLs from lines of text: {urls[0]['add_seconds']:.0f} s."


@block
def billion_urls() -> str:
    urls = records("billion", what="urls")
    if not urls:
        return _unmeasured("billion")
    (r,) = urls
    return (
        paragraph(
            f"{r['keys'] / 1e9:.0f} billion URLs of {r['bytes_a_line']:.0f} bytes on average, from "
            f"lines in memory into one filter at 1%: {r['add_seconds']:.0f} s, of which making the "
            f"lines took {r['making_seconds']:.0f} s; {r['update_seconds'] / r['keys'] * 1e9:.0f} "
            f"ns a URL. Peak memory {r['peak_bytes'] / 1e9:.2f} GB. Of "
            f"{r['absent_keys'] / 1e6:.0f} million others, "
            f"{r['observed_error_rate']:.3%} were taken for seen."
        )
        + "\n"
        + source("billion")
    )


@block
def crawl() -> str:
    if not measured("crawl"):
        return _unmeasured("crawl")
    times, memory = records("crawl", table="time"), records("crawl", table="memory")
    costs = [
        [r["what"], rounded(r["us"], 3), rounded(r["own_us"], 2), f"{r['ratio']:.2f}"]
        for r in times
    ]
    sizes = [
        [
            r["what"],
            f"{r['requests']:,}",
            f"{r['bytes'] / 1e6:,.0f} MB",
            rounded(r["bytes"] / r["requests"], 2),
            r["share"],
        ]
        for r in memory
    ]
    return (
        table(("dupefilter", "µs a request", "of it without the fingerprint", "ratio"), costs)
        + "\n"
        + table(("", "requests", "memory", "bytes a request", "of Scrapy's own"), sizes)
        + "\n"
        + source("crawl")
    )


def _unmeasured(part: str) -> str:
    return f"Not measured yet: `python -m benchmarks --only {part}`.\n"


@block
def bank() -> str:
    r = max(records("family", table="bank"), key=lambda one: one["users"])
    slowest = max(r["unseen_us"].values())
    return paragraph(
        f"`FilterBank`, {r['users']:,} users, {r['what']}: {r['bits_a_key']:.1f} bits a key; "
        f"observed error rate {r['observed_error_rate']:.2%}, of the worst of 500 users "
        f"{r['worst_rate']:.2%}; {r['lost_keys']} keys lost; which of 500 articles a user has not "
        f"had, in {slowest:.0f} µs."
    ) + ("\n" + source("family"))


@block
def server() -> str:
    def rate(what: str, pipeline: int) -> Record:
        return record("service", table="rates", server="bloomery", what=what, pipeline=pipeline)

    rows = []
    for pipeline, name in ((1, "one request at a time"), (16, ""), (100, "")):
        asked, added = rate("BF.EXISTS", pipeline), rate("BF.ADD", pipeline)
        rows.append(
            (
                name or f"pipelines of {pipeline}",
                f"BF.EXISTS {many(asked['rate'])} a second, BF.ADD {many(added['rate'])}",
                f"{asked['peer']} {many(asked['peer_rate'])}",
            )
        )
    keys = [rate(f"{what} of 100 keys", 16)["rate"] for what in ("BF.MEXISTS", "BF.MADD")]
    (again,) = records("service", table="restart")
    calm, *others = records("service", table="latency")
    worst = max(r["p99_ms"] for r in others)
    rows += [
        (
            "100 keys a request, pipelines of 16",
            f"BF.MEXISTS {many(keys[0])} keys a second, BF.MADD {many(keys[1])}",
            "",
        ),
        (
            f"BF.EXISTS under {_load(calm)}, p99",
            f"{_ms(calm['p99_ms'])}; while two snapshots of 1 GB are written, and 4 s after each, "
            f"{_ms(worst)} at worst",
            "",
        ),
        (
            f"restart after `kill -9`, {again['filter_bytes'] / 1e9:.1f} GB and "
            f"{again['keys'] / 1e6:g} M logged adds",
            f"{again['seconds']:.1f} s, {again['lost_keys']} of {again['sampled']:,} keys lost",
            "",
        ),
    ]
    head = ("", "bloomery, every write logged", "Debian's Redis 7, nothing logged")
    return table(head, rows) + "\n" + source("service")


def _load(latency: Record) -> str:
    """Under which the latency was measured."""
    load = latency["load"]
    text = f"{rounded(load['offered'])} requests a second"
    if "capacity" in load:
        text += f", half of the {rounded(load['capacity'])} it could answer"
    return text


def _ms(value: float) -> str:
    return f"{rounded(value, 2) if value < 100 else round(value)} ms"


@block
def http() -> str:
    (r,) = records("running", table="http")
    return paragraph(
        f"Over HTTP: {many(r['batch'])} keys a second asked in JSON requests of 1,000, "
        f"{many(r['arrow'])} a second added by an Arrow stream; one key a request is "
        f"{r['ratio']:.1f} times as quick as a FastAPI endpoint that returns a constant "
        f"({many(r['one'])} to {many(r['constant'])} a second)."
    ) + ("\n" + source("running"))


@block
def guard() -> str:
    cases = {
        "local": "filter, and a cache for a tenth of the table",
        "local, no filter": "the same cache, no filter",
        "neither": "neither",
    }
    rows = []
    for case, what in cases.items():
        r = record("guard", table="reads", case=case)
        rows.append(
            (what, f"{rounded(100 * r['reach'], 2)}%", f"{rounded(100 * r['absent_reach'], 2)}%")
        )
    head = ("", "reads that reach the database", "of those of absent keys")
    return table(head, rows) + "\n" + source("guard")


@block
def spark() -> str:
    if not measured("spark"):
        return paragraph("*Not measured yet: `python -m benchmarks --only spark`.*")
    named = {
        "shuffled": "no broadcasts, no adaptive plans",
        "defaults": "Spark's defaults, by which it broadcasts the small side",
    }
    rows = []
    for mode, what in named.items():
        plain, ours = (record("spark", table="join", mode=mode, way=w) for w in _SPARK_WAYS)
        rows.append(
            (
                what,
                *(f"{rounded(r['seconds'])} s" for r in (plain, ours)),
                *(f"{r['shuffled_rows']:,}" for r in (plain, ours)),
            )
        )
    size = record("spark", table="join", mode="shuffled", way="plain")
    head = ("", "plain join", "`bloom_join`", "rows shuffled", "with `bloom_join`")
    rates = {r["what"]: r["rows_a_second"] for r in records("spark", table="contains")}
    inside, whole, bare = rates.values()
    return (
        paragraph(
            f"{size['rows']:,} rows joined with {size['keys']:,}, of which 5% have a match, on two "
            "cores, from the call to the result:"
        )
        + "\n"
        + table(head, rows)
        + "\n"
        + paragraph(
            f"`contains` itself asks for {many(inside)} rows a second a core, in Spark's worker. "
            f"A query of it, with Parquet to read and Arrow batches to the worker and back, does "
            f"{many(whole)}; one that stays in the JVM {many(bare)}."
        )
        + "\n"
        + source("spark")
    )


_SPARK_WAYS = ("plain", "bloom_join")


@block
def many_machines() -> str:
    r = record("cluster", table="library", way="blocked")
    lag = _lag()
    rows = [
        (
            f"`{what}`, {'one key' if what == 'add' else '1,000 keys'} a call",
            f"{many(r['rates'][what])} keys a second",
            many(r["by_hand"][what]),
        )
        for what in ("add_many", "contains_many", "add")
    ]
    rows.append(
        (
            "a write at one of three nodes, until the others know, at "
            f"{lag['offered']:,.0f} writes a second",
            f"p50 {_ms(lag['p50_ms'])}, p99 {_ms(lag['p99_ms'])}, at most {_ms(lag['p100_ms'])}",
            "",
        )
    )
    head = ("", "bloomery", "by hand, a pipeline of redis-py")
    return table(head, rows) + "\n" + source("cluster")


def _lag() -> Record:
    """Of the two loads, the one that is worse."""
    found = (r for r in records("cluster", table="lag") if r["offered"])
    return max(found, key=lambda r: r["p99_ms"])


@block
def why_not() -> str:
    versions = result("library")["machine"]["versions"]
    names = {
        "abloom serializable": "abloom",
        "fastbloom-rs": "fastbloom-rs",
        "rbloom saveable": "rbloom",
        "pybloomfiltermmap3": "pybloomfiltermmap3",
        "pybloom-live": "pybloom-live",
        "set": "set",
    }
    rows = []
    for peer, package in {OURS: "bloomery", **names}.items():
        cells = [f"{peer} {versions.get(package, '')}".strip()]
        for kind in ("str", "int"):
            ns = _peer(peer, kind)
            cells += [rounded(ns[op], 2) for op in ("add", "hit")]
        rows.append(cells)
    head = ("ns a key, one at a time", "`add` str", "`in` str", "`add` int", "`in` int")
    text = table(head, rows) + "\n" + source("library")
    for r in records("library", peer="rbloom", fact="i << 40"):
        text += "\n" + paragraph(
            f"rbloom gave {r['observed_error_rate']:.0%} false positives for {r['keys']:,} keys "
            "`i << 40` at a target of 1%."
        )
    return text


# The pages.


@block
def snapshots() -> str:
    rows = [
        (r["when"], *(_ms(r[name]) for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")))
        for r in records("service", table="latency")
    ]
    load = _load(records("service", table="latency")[0])
    head = (f"BF.EXISTS, a filter of 1 GB, {load}", "p50", "p99", "p99.9", "max")
    return table(head, rows) + "\n" + source("service")


@block
def stalls() -> str:
    found = sorted(records("running", table="stalls"), key=lambda r: -float(r["wall"]))
    if not found:
        return paragraph("*Not measured yet in a published run: `make bench-running`.*")
    rows = [(r["request"], _ms(1e3 * r["wall"]), _ms(1e3 * r["loop"])) for r in found[:5]]
    head = (f"the worst of {len(found)} requests", "a PING beside it", "work of the serving thread")
    return table(head, rows) + "\n" + source("running")


@block
def pauses() -> str:
    found = records("service", table="pauses")
    found.sort(key=lambda r: -max(float(r["read"]), float(r["write"])))
    if not found:
        return paragraph("*Not measured yet in a published run: `make bench-service`.*")
    rows = [
        (r["request"], _ms(1e3 * r["read"]), _ms(1e3 * r["write"]), f"{r['took']:.1f} s")
        for r in found[:5]
    ]
    title = f"the worst of {len(found)}, filters of {found[0]['bytes'] / 1e9:.1f} GB"
    head = (title, "BF.EXISTS of another client", "BF.ADD", "it took")
    return table(head, rows) + "\n" + source("service")


@block
def lag() -> str:
    rows = [
        (
            f"{r['offered']:,.0f}" + (f", {r['burst']} at once" if r["burst"] else ""),
            *(_ms(r[name]) for name in ("p50_ms", "p99_ms", "p99.9_ms", "p100_ms")),
        )
        for r in records("cluster", table="lag")
    ]
    head = ("writes a second, three nodes", "p50", "p99", "p99.9", "max")
    return table(head, rows) + "\n" + source("cluster")


@block
def redis_copy() -> str:
    r = record("cluster", table="loading", what="RedisFilter.to_local")
    return paragraph(
        f"From a redis-server on the same machine 1 GiB came at {rounded(r['mb_a_second'])} MB/s "
        "into memory that was touched before."
    )


@block
def family() -> str:
    rows = [
        (r["kind"], r["what"].replace(" keys,", " keys;"), *_weight(r))
        for r in records("family", table="weights")
        if "observed_error_rate" in r
    ]
    rows += [
        ("bank", f"{r['users']:,} users; {r['what']}", *_weight(r))
        for r in records("family", table="bank")
    ]
    return (
        table(("kind", "", "bits a key", "asked for", "observed"), rows) + "\n" + source("family")
    )


def _weight(r: Record) -> list[str]:
    rates = [
        f"{rate:.3%}" if rate >= 1e-4 else f"{rate:.1e}"
        for rate in (r["error_rate"], r["observed_error_rate"])
    ]
    return [f"{r['bits_a_key']:.2f}", *rates]


@block
def shell() -> str:
    if not measured("shell"):
        return paragraph('*Not measured yet: `make bench BENCH="--only shell"`.*')
    rows = []
    for what in ("dedup", "diff"):
        ours, theirs = records("shell", table=what)
        rows.append(
            (
                f"`{ours['command']}`, {ours['lines'] / 1e6:g} M lines"
                + (" each" if what == "diff" else ""),
                f"{rounded(ours['seconds'], 2)} s, {ours['peak_bytes'] / 1e6:.0f} MB",
                f"{rounded(theirs['seconds'], 2)} s, {theirs['peak_bytes'] / 1e6:,.0f} MB",
                theirs["command"],
                f"{ours['wanted'] - ours['lines_out']:,}",
            )
        )
    head = ("", "bloomery", "the other", "which is", "lines lost")
    return table(head, rows) + "\n" + source("shell")


@block
def compare() -> str:
    if not measured("compare"):
        return paragraph("*Not measured yet: `make bench-compare`.*")
    rows = [
        (
            r["what"],
            rounded(r["bytes_a_key"], 3),
            f"{rounded(r['insert_us'], 2)} µs",
            f"{rounded(r['ask_us'], 2)} µs",
            "none" if not r["wrong_maybes"] else f"{r['wrong_maybes']:.2%}",
            r["removes"],
            r["survives"],
            r["runs"],
            f"{r['bytes_a_key'] * 1e9 / 1e9:,.0f} GB"
            if r["bytes_a_key"] >= 10
            else f"{r['bytes_a_key']:.1f} GB",
        )
        for r in records("compare")
    ]
    head = (
        *("for ten million URLs", "bytes a key", "insert", "check", "wrong *maybe*", "removes"),
        *("survives a restart", "needs to run", "10⁹ keys take"),
    )
    return table(head, rows) + "\n" + source("compare")


@block
def signatures() -> str:
    if not measured("signatures"):
        return paragraph('*Not measured yet: `make bench BENCH="--only signatures"`.*')
    asked = records("signatures", table="questions")
    head = f"{asked[0]['rows']:,} rows of ten columns, equality on three"
    text = table(
        (head, "ms", "of ours"),
        [(r["way"], rounded(r["ms"], 2), f"{rounded(r['times_ours'], 2)}×") for r in asked],
    )
    text += "\n" + table(
        ("index", "size", "to build"),
        [
            (r["what"], f"{rounded(r['nbytes'] / 1e6)} MB", f"{rounded(r['seconds'], 2)} s")
            for r in records("signatures", table="sizes")
        ],
    )
    text += "\n" + table(
        ("columns asked", "false matches expected", "observed"),
        [
            (str(r["columns"]), rounded(r["expected"], 2), rounded(r["observed"], 2))
            for r in records("signatures", table="false")
        ],
    )
    return text + "\n" + source("signatures")


@block
def hashing() -> str:
    if not measured("hashing"):
        return paragraph('*Not measured yet: `make bench BENCH="--only hashing"`.*')
    operations = ("add", "in", "add_many", "contains_many")
    lengths = list(dict.fromkeys(r["length"] for r in records("hashing", table="length")))
    ways = list(dict.fromkeys(r["way"] for r in records("hashing", table="length")))

    def ns(way: str, length: int, *pair: str) -> str:
        found = record("hashing", table="length", way=way, length=length)["ns"]
        return " / ".join(rounded(found[op], 2) if op in found else "–" for op in pair)

    text = ""
    for pair in (("add", "in"), ("add_many", "contains_many")):
        asked = " / ".join(f"`{op}`" for op in pair)
        head = (f"{asked}: ns a key, of so many bytes", *map(str, lengths))
        shown = [way for way in ways if ns(way, lengths[0], *pair) != "– / –"]
        text += table(head, [(way, *(ns(way, n, *pair) for n in lengths)) for way in shown]) + "\n"
    rows = []
    for r in records("hashing", table="k"):
        cells = [rounded(r["ns"][op], 2) if op in r["ns"] else "–" for op in operations]
        size = f"{rounded(r['nbytes'] / 1e6, 2)} MB"
        rows.append((r["way"], str(r["num_hashes"]), size, *cells))
    head = ("error rate 2^−k, keys of 32 bytes: ns a key", "hashes", "memory")
    text += table((*head, *(f"`{op}`" for op in operations)), rows)
    rows = [
        (
            f"{r['way']}, {'one by one' if r['batch'] == 1 else str(r['batch']) + ' at once'}",
            f"{rounded(r['rate'])}",
            f"{r['share']:.1%}",
            *(rounded(r[name], 2) for name in ("p50_us", "p99_us", "max_us")),
        )
        for r in records("hashing", table="paced")
    ]
    head = ("100,000 inserts a second are due, on one core", "done a second", "of the core")
    text += "\n" + table((*head, "p50 µs", "p99 µs", "max µs"), rows)
    return text + "\n" + source("hashing") + "\n" + _answer()


def _answer() -> str:
    """To "a faster hash, fewer hashes, or batches?", by the figures."""

    def ns(way: str, op: str) -> str:
        found = record("hashing", table="length", way=way, length=32)
        return rounded(found["ns"][op], 2)

    def by_k(layout: str) -> str:
        """In the largest filter, from 14 to 4."""
        found = [records("hashing", table="k", way=f"{layout}, k={k}") for k in (14, 4)]
        many, few = (max(rows, key=lambda r: int(r["capacity"])) for rows in found)
        return f"{rounded(many['ns']['add'], 2)} to {rounded(few['ns']['add'], 2)} ns"

    def large(op: str) -> str:
        found = max(
            records("hashing", table="k", way="blocked, k=7"), key=lambda r: int(r["capacity"])
        )
        return rounded(found["ns"][op], 2)

    paced = {way: record("hashing", table="paced", way=way, batch=1) for way in _PACED}
    xxh3, once, textbook = (paced[way] for way in _PACED)
    return paragraph(
        f"So, for keys of 32 bytes: **the hash first.** To hash once instead of k times takes an "
        f"insert from {ns('SHA-256, k times', 'add')} to {ns('SHA-256, once', 'add')} ns, and xxh3 "
        f"instead of SHA-256 to {ns('xxh3', 'add')}. **Then batches:** {ns('xxh3', 'add_many')} ns "
        "a key, if keys can wait until a batch is full; and in a filter that no cache holds "
        f"{large('add')} ns become {large('add_many')}. **Fewer hashes last:** from k = 14 to 4 in "
        f"such a filter, {by_k('classic')} in the classic layout, where each is a "
        f"cache miss, and {by_k('blocked')} in the blocked one, for a filter that errs a thousand "
        "times as often. 100,000 inserts a second, one by one, take "
        f"{xxh3['share']:.1%} of a core with xxh3 and {once['share']:.0%} with SHA-256 once; with "
        f"SHA-256 k times {rounded(textbook['rate'], 2)} were done."
    )


_PACED = ("xxh3", "SHA-256, once", "SHA-256, k times")


# Caches and readers.


@block
def admission() -> str:
    if not measured("admission"):
        return paragraph("*Not measured yet: `python -m benchmarks --only admission`.*")
    found = records("admission", table="trace")
    rows = [
        (
            f"{r['share']:.0%}",
            *(f"{r[way][f'{name}_ratio']:.1%}" for name in _RATIOS for way in _WAYS),
            *(f"{r[way]['writes']:,}" for way in _WAYS),
            f"**{r['fewer_writes']:.0%}**",
        )
        for r in found
    ]
    first = found[0]
    text = paragraph(
        f"{first['requests']:,} requests for {first['objects']:,} objects, of which "
        f"{first['one_hit_share']:.0%} are asked for once. A cache of so much of their bytes; the "
        f"filter has {max(r['with']['filter_bytes'] for r in found) / 1e6:.2f} MB beside it."
    )
    head = ("cache", "hits", "with", "byte hits", "with", "writes", "with", "fewer writes")
    text += "\n" + table(head, rows)
    if (TREE / "docs" / "images" / "admission.svg").exists():
        shown = "Hit ratio, byte hit ratio and writes by the size of the cache."
        text += f"\n![{shown}](images/admission.svg)\n"
    ns = record("admission", table="cost")["ns"]
    text += "\n" + paragraph(
        f"Admission adds {rounded(ns['hit'] - ns['plain hit'], 2)} ns to a hit in a cache of "
        f"cachetools ({rounded(ns['plain hit'], 2)} ns), and "
        f"{rounded(ns['miss'] - ns['plain miss'], 2)} ns to a miss."
    )
    return text + "\n" + source("admission")


_RATIOS, _WAYS = ("hit", "byte_hit"), ("without", "with")


@block
def edges() -> str:
    if not measured("admission"):
        return paragraph("*Not measured yet: `python -m benchmarks --only admission`.*")
    rows = [
        (
            "no summaries" if r["every"] is None else f"every {r['every']:,} requests",
            *(f"{r[name]:,}" for name in ("hits", "neighbour", "wasted", "origin")),
            f"{r['published_bytes'] / 1e6:,.1f}",
        )
        for r in records("admission", table="edges")
    ]
    head = ("an edge publishes", "own hits", "from a neighbour", "asked in vain", "to the origin")
    return table((*head, "MB published"), rows) + "\n" + source("admission")


@block
def feeds() -> str:
    if not measured("feeds"):
        return paragraph("*Not measured yet: `python -m benchmarks --only feeds`.*")
    found = records("feeds", table="deltas")
    rows: dict[str, list[str]] = {}
    for r in found:
        row = rows.setdefault(r["kind"], [r["kind"], rounded(r["bytes"] / 1e6, 3)])
        delta = "none" if r["delta"] is None else f"**{r['delta']:.1%}**"
        row.append(f"{delta} ({r['entropy']:.1%})")
    changes = dict.fromkeys(r["change"] for r in found)
    text = paragraph(
        f"Filters of {found[0]['keys']:,} keys (an `ExactSet`: a hundredth of them, among all "
        "others): the delta of the full file, and in brackets the entropy of the bits that differ."
    )
    text += "\n" + table(("file", "MB", *changes), rows.values())
    followed, checked = record("feeds", table="followed"), record("feeds", table="checked")
    text += "\n" + paragraph(
        f"Over HTTP, a copy of {followed['bytes'] / 1e6:,.2f} MB followed by a delta of "
        f"{followed['deltas']['fetched'] / 1e3:,.0f} kB in "
        f"{rounded(followed['deltas']['seconds'], 2)} s; its publisher took "
        f"{rounded(followed['publish_seconds'], 2)} s. The check of a valid token adds "
        f"{rounded(checked['microseconds'], 2)} µs to a request."
    )
    return text + "\n" + source("feeds")


@block
def seen() -> str:
    if not measured("seen"):
        return paragraph("*Not measured yet: `python -m benchmarks --only seen`.*")
    rows = [
        (
            f"{r['users']:,} × {r['articles']:,}",
            f"{rounded(r['nbytes'] / 1e6)} MB",
            f"{8 * r['bytes_a_mark']:.1f}",
            f"{rounded(r['mark_ns'], 2)} ns",
            f"{rounded(r['fresh_us'], 2)} µs",
            f"{r['left_out']:.2%}",
            str(r["lost"]),
        )
        for r in records("seen", table="stores")
    ]
    head = ("users × articles", "memory", "bits a mark", "a mark", "fresh of 500", "left out")
    return table((*head, "offered again"), rows) + "\n" + source("seen")


@block
def seen_bill() -> str:
    if not measured("seen"):
        return paragraph("*Not measured yet: `python -m benchmarks --only seen`.*")
    marks = 10_000_000 * 5_000
    store = records("seen", table="stores")[0]
    kept = marks * store["generations"] / (store["generations"] - 1)
    rows = [("`SeenStore`, window and a generation", store["bytes_a_mark"], kept)]
    rows += [(r["what"], r["bytes_a_mark"], marks) for r in records("seen", table="sets")]
    shown = [
        (what, rounded(each), f"{rounded(count * each / 1e9)} GB") for what, each, count in rows
    ]
    return table(("10 M users × 5,000", "bytes a mark", "in all"), shown) + "\n" + source("seen")


# What `bloomery plan --nodes` computes with.


@block
def segments() -> str:
    if not measured("segments"):
        return paragraph('*Not measured yet: `make bench BENCH="--only segments"`.*')
    stores, indexes = records("segments", table="store"), records("segments", table="index")
    bare = stores[0]
    rows = [
        [
            f"`fp_chance` {r['fp_chance']:g}",
            f"{rounded(r['filter_bytes'] / 1e6)} MB",
            rounded(r["reads"]),
            *(rounded(r["us"][name], 2) for name in ("get, absent", "get_many, absent")),
            rounded(r["us"]["get, present"], 2),
        ]
        for r in stores
    ]
    rows.append(
        [
            "no filters",
            "0",
            str(bare["segments"]),
            rounded(bare["us"]["without filters, absent"], 2),
            "",
            "",
        ]
    )
    head = ["", "memory of filters", "segments read", "`get`, µs", "`get_many`, µs", "present, µs"]
    text = paragraph(
        f"`SegmentStore`, {bare['keys']:,} keys in {bare['segments']} segments that are not "
        "merged; absent keys, and in the last column keys that are there:"
    )
    text += "\n" + table(head, rows)
    groups, total = indexes[0]["groups"], indexes[0]["rows"]
    text += "\n" + paragraph(
        f"`SegmentIndex`, {groups:,} row groups with {total:,} rows in random order, a key in one "
        "of them, beside `pyarrow.dataset` with a filter:"
    )
    rows = [
        [
            f"`{r['column']}`",
            f"{r['touched']:.2%}",
            f"{rounded(r['find_ms'])} ms",
            f"{rounded(r['scan_ms'])} ms",
            f"{rounded(r['scan_ms'] / r['find_ms'], 2)} ×",
            rounded(r["bytes_per_key"]),
        ]
        for r in indexes
    ]
    head = ["", "other row groups read", "`find`", "scan", "faster", "bytes a key"]
    return text + "\n" + table(head, rows) + "\n" + source("segments")


def cluster_figures() -> dict[str, float]:
    """What the published runs say of the figures of `bloomery.sizing.cluster_figures`."""

    def rate(what: str, pipeline: int) -> Record:
        return record("service", table="rates", server="bloomery", what=what, pipeline=pipeline)

    alone, many_keys = rate("BF.EXISTS", 1), rate("BF.MEXISTS of 100 keys", 16)
    balanced = record(
        "cluster", table="checks", how="redis-benchmark", pipeline=1, who="3 nodes, HAProxy"
    )
    (memory,) = records("service", table="memory")
    found = {
        "request_us": alone["us"],
        "key_us": many_keys["us"],
        "redis_ask_us": alone["peer_us"],
        "balancer_request_us": balanced["haproxy_us"],
        "node_bytes": memory["beside_bytes"],
        "lag_seconds": _lag()["p99_ms"] / 1000,
        **_log_costs(),
    }
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def _log_costs() -> dict[str, float]:
    """What the log of nodes costs; nothing of a run whose nodes had no log."""
    found = records("cluster", table="costs")
    if not any("a server alone" in r["what"] for r in found):
        return {}
    singly, crowd, batch = (r for r in found if "writer_us" in r)
    loads = [r["mb_a_second"] for r in records("cluster", table="loading") if "node" in r["what"]]
    return {
        "follow_request_us": singly["follower_us"] - batch["follower_us"],
        "follow_key_us": batch["follower_us"],
        "write_request_us": crowd["writer_us"] - crowd["follower_us"],
        "write_key_us": batch["writer_us"] - batch["follower_us"],
        "redis_request_us": crowd["redis_us"] - batch["redis_us"],
        "redis_key_us": batch["redis_us"],
        "kept_entry_bytes": singly["stream_bytes"] - 8,
        "load_bytes_a_second": min(loads) * 1e6,  # into memory that is new to the machine
    }


def _with_cluster_figures(text: str) -> str:
    for name, value in cluster_figures().items():
        shown = f"{value / 1e6:g}e6" if value >= 1e6 else repr(value)
        text, count = re.subn(rf"(    {name}: float = ).*", rf"\g<1>{shown}", text)
        assert count == 1, name
    return text


# What the planner's page compares with.


def _with_compared(text: str) -> str:
    names = (
        *("what", "bytes_a_key", "insert_us", "ask_us", "wrong_maybes"),
        *("removes", "survives", "runs"),
    )
    rows = [
        ", ".join(repr(float(f"{r[n]:.3g}") if isinstance(r[n], float) else r[n]) for n in names)
        for r in records("compare")
    ]
    lines = "".join(f"    Measured({row.replace(chr(39), chr(34))}),\n" for row in rows)
    found = result("compare")
    told = f"{found['command']}, {found['started'][:10]}, commit {found['machine']['commit']}"
    block = f'ROWS = [\n{lines}]\nSOURCE = "{told}"\n'
    text, count = re.subn(
        r"ROWS = \[\n.*?\]\nSOURCE = \".*?\"\n", lambda _: block, text, flags=re.S
    )
    assert count == 1
    return text


# Data engines.

_ENGINES = '*Not measured yet: `make bench BENCH="--only engines"`.*'


@block
def queries() -> str:
    if not measured("engines"):
        return paragraph(_ENGINES)
    found = records("engines", table="queries")
    base = "contains_many"
    rows = [
        (
            f"`{way}` of the column" if way == base else way,
            *(f"{rounded(r['ns'][way], 2)} ({r['ns'][way] / r['ns'][base]:.2f}x)" for r in found),
        )
        for way in found[0]["ns"]
    ]
    head = (f"ns a row, {found[0]['rows'] / 1e6:g} M rows", *(r["kind"] for r in found))
    return table(head, rows) + "\n" + source("engines")


@block
def parquet() -> str:
    if not measured("engines"):
        return paragraph(_ENGINES)
    r = record("engines", table="parquet")
    ours = r["ms"]["bloomery, read"]
    rows = [(way, rounded(ms, 2), f"{ms / ours:.1f}x") for way, ms in r["ms"].items()]
    head = (f"a key of one of 100 row groups, {r['rows'] / 1e6:g} M rows", "ms", "to ours")
    return table(head, rows) + "\n" + source("engines")


# All of it.


def _summary() -> str:
    text = (
        "# What the benchmarks printed\n\nMade by `make figures` from the results files beside "
        "this page, which `python -m benchmarks` leaves.\n"
    )
    for path in sorted(RESULTS.glob("*.json")):
        found = result(path.stem)
        machine, note = found["machine"], found.get("note")
        text += f"\n## {path.stem}\n\n" + paragraph(
            f"`{found['command']}`, {found['started']}, {found['seconds']} s, commit "
            f"{machine['commit']}." + (f" Note: {note}." if note else "")
        )
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        text += "\n" + paragraph(
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
            f"{machine['system']}, Python {machine['python']}; {versions}."
        )
        text += "\n```text\n" + "\n".join(found["text"]) + "\n```\n"
        if found["how_good"]:
            text += "\n" + table(
                ("what", "must", "aim", "measured", "verdict"),
                [tuple(line.values()) for line in found["how_good"]],
            )
    return text


_MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.S)


def filled(text: str) -> str:
    """A page with its blocks made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]()}\n{found[3]}", text)


def made() -> dict[Path, str]:
    """Every file that has published figures, as the results make it."""
    pages = [TREE / "README.md", *sorted((TREE / "docs").glob("*.md"))]
    texts = {page: page.read_text("utf-8") for page in pages}
    files = {page: filled(text) for page, text in texts.items() if _MARKED.search(text)}
    files[CLUSTER_FIGURES] = _with_cluster_figures(CLUSTER_FIGURES.read_text("utf-8"))
    files[PLANNER_FIGURES] = _with_compared(PLANNER_FIGURES.read_text("utf-8"))
    files[SUMMARY] = _summary()
    return files


if __name__ == "__main__":
    try:
        for path, text in made().items():
            path.write_text(text, "utf-8")
    except Unpublishable as problem:
        sys.exit(f"not published: {problem}")
