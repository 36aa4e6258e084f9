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
    about = result("peers")["machine"]
    return paragraph(
        f"Each table is made from the results of the run that it names, on an {about['cpu']} with "
        f"{about['cores']} virtual cores under Python {about['python']}; all that the runs printed "
        "is in [`benchmarks/results/`](benchmarks/results/summary.md). The machine is shared: read "
        "differences under 25% as noise."
    )


@block
def library() -> str:
    def peers(what: str, kind: str, op: str) -> list[str]:
        pair = [record("peers", peer=p, kind=kind, **_MILLION)["ns"][op] for p in (OURS, RIVAL)]
        return [what, *_beside(*pair)]

    def batch(what: str, form: str, op: str, theirs: str, their_op: str) -> list[str]:
        ours = record("batch", peer=OURS, door=form, **_MILLION)["ns"][op]
        return [
            what,
            *_beside(ours, record("batch", peer=RIVAL, door=theirs, **_MILLION)["ns"][their_op]),
        ]

    weights = {
        (peer, rate): record(
            "batch", peer=peer, door="list of str", capacity=10**6, error_rate=rate
        )
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
    return (
        table(("", "bloomery", "abloom, saveable", "ratio"), rows) + "\n" + source("peers", "batch")
    )


_MILLION = {"capacity": 1_000_000, "error_rate": 0.01}


def _beside(ours: float, theirs: float) -> list[str]:
    return [rounded(ours, 2), rounded(theirs, 2), f"{ours / theirs:.2f}"]


@block
def large() -> str:
    (r,) = records("billion")
    pairs = [
        [
            next(one for one in records("dedup", mix=mix) if one["command"].startswith(command))
            for command in ("bloomery", "awk")
        ]
        for mix in dict.fromkeys(one["mix"] for one in records("dedup"))
    ]
    seconds = sorted(ours["seconds"] for ours, _ in pairs)
    faster = sorted(awk["seconds"] / ours["seconds"] for ours, awk in pairs)
    share = max(ours["peak_bytes"] / awk["peak_bytes"] for ours, awk in pairs)
    return paragraph(
        f"10⁹ keys at 1% in one filter: added, and probed with 10⁸ absent ones, in "
        f"{r['seconds']:.0f} s; observed error rate {r['observed_error_rate']:.3%}, peak memory "
        f"{r['peak_bytes'] / 1e9:.2f} GB. `bloomery dedup` on {pairs[0][0]['lines'] / 1e6:g} M "
        f"lines: {seconds[0]:.1f} to {seconds[-1]:.1f} s, {faster[0]:.0f} to {faster[-1]:.0f} "
        f"times faster than `awk '!s[$0]++'`, in {share:.0%} of its memory or less."
    ) + ("\n" + source("billion", "dedup"))


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
            "BF.EXISTS under 50,000 requests a second, p99",
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
    versions = result("peers")["machine"]["versions"]
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
            ns = record("peers", peer=peer, kind=kind, **_MILLION)["ns"]
            cells += [rounded(ns[op], 2) for op in ("add", "hit")]
        rows.append(cells)
    head = ("ns a key, one at a time", "`add` str", "`in` str", "`add` int", "`in` int")
    text = table(head, rows) + "\n" + source("peers")
    for r in records("peers", peer="rbloom", fact="i << 40"):
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
    head = ("BF.EXISTS, a filter of 1 GB, 50,000 requests a second", "p50", "p99", "p99.9", "max")
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
def hashing() -> str:
    if not measured("hashing"):
        return paragraph('*Not measured yet: `make bench BENCH="--only hashing"`.*')
    operations = ("add", "in", "add_many", "contains_many")
    lengths = list(dict.fromkeys(r["length"] for r in records("hashing", table="length")))
    ways = list(dict.fromkeys(r["way"] for r in records("hashing", table="length")))

    def ns(way: str, length: int, op: str) -> str:
        found = record("hashing", table="length", way=way, length=length)["ns"]
        return rounded(found[op], 2) if op in found else "–"

    text = table(
        (
            "ns a key, of so many bytes",
            *(f"`add`, {n}" for n in lengths),
            *(f"`add_many`, {n}" for n in lengths),
        ),
        [(way, *(ns(way, n, op) for op in ("add", "add_many") for n in lengths)) for way in ways],
    )
    rows = []
    for r in records("hashing", table="k"):
        cells = [rounded(r["ns"][op], 2) if op in r["ns"] else "–" for op in operations]
        size = f"{rounded(r['nbytes'] / 1e6, 2)} MB"
        rows.append((r["way"], str(r["num_hashes"]), size, *cells))
    head = ("error rate 2^−k, keys of 32 bytes: ns a key", "hashes", "memory")
    text += "\n" + table((*head, *(f"`{op}`" for op in operations)), rows)
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

    paced = {way: record("hashing", table="paced", way=way, batch=1) for way in _PACED}
    xxh3, once, textbook = (paced[way] for way in _PACED)
    return paragraph(
        f"So, for keys of 32 bytes: **the hash first.** To hash once instead of k times takes an "
        f"insert from {ns('SHA-256, k times', 'add')} to {ns('SHA-256, once', 'add')} ns, and xxh3 "
        f"instead of SHA-256 to {ns('xxh3', 'add')}. **Then batches:** {ns('xxh3', 'add_many')} ns "
        "a key, if keys can wait until a batch is full. **Fewer hashes last:** from k = 14 to 4 in "
        f"a filter that no cache holds, {by_k('classic')} in the classic layout, where each is a "
        f"cache miss, and {by_k('blocked')} in the blocked one, for a filter that errs a thousand "
        "times as often. 100,000 inserts a second, one by one, take "
        f"{xxh3['share']:.1%} of a core with xxh3 and {once['share']:.0%} with SHA-256 once; with "
        f"SHA-256 k times {rounded(textbook['rate'], 2)} were done."
    )


_PACED = ("xxh3", "SHA-256, once", "SHA-256, k times")


# What `bloomery plan --nodes` computes with.


def cluster_figures() -> dict[str, float]:
    """What the published runs say of the figures of `bloomery.sizing.cluster_figures`."""

    def rate(what: str, pipeline: int) -> Record:
        return record("service", table="rates", server="bloomery", what=what, pipeline=pipeline)

    alone, many_keys = rate("BF.EXISTS", 1), rate("BF.MEXISTS of 100 keys", 16)
    costs = {r["what"].partition(",")[0]: r for r in reversed(records("cluster", table="costs"))}
    singly, batch = costs["BF.ADD"], costs["BF.MADD of 1"]
    balanced = record(
        "cluster", table="checks", how="redis-benchmark", pipeline=1, who="3 nodes, HAProxy"
    )
    one = record("cluster", table="lag", burst=1)
    nodes = [value for name, value in one["cores"].items() if name.startswith("node")]
    loads = [r["mb_a_second"] for r in records("cluster", table="loading") if "node" in r["what"]]
    (memory,) = records("service", table="memory")
    found = {
        "request_us": alone["us"],
        "key_us": many_keys["us"],
        "follow_request_us": sum(nodes) / len(nodes) / one["reached"] * 1e6,
        "follow_key_us": batch["follower_us"],
        "write_key_us": batch["writer_us"] - batch["follower_us"],
        "redis_request_us": one["cores"]["Redis"] / one["reached"] * 1e6 - batch["redis_us"],
        "redis_key_us": batch["redis_us"],
        "redis_ask_us": alone["peer_us"],
        "balancer_request_us": balanced["haproxy_us"],
        "sent_key_bytes": batch["in_bytes"],
        "kept_entry_bytes": singly["stream_bytes"] - 8,
        "node_bytes": memory["beside_bytes"],
        "load_bytes_a_second": min(loads) * 1e6,  # into memory that is new to the machine
        "lag_seconds": _lag()["p99_ms"] / 1000,
    }
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def _with_cluster_figures(text: str) -> str:
    for name, value in cluster_figures().items():
        shown = f"{value / 1e6:g}e6" if value >= 1e6 else repr(value)
        text, count = re.subn(rf"(    {name}: float = ).*", rf"\g<1>{shown}", text)
        assert count == 1, name
    return text


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
    files[SUMMARY] = _summary()
    return files


if __name__ == "__main__":
    try:
        for path, text in made().items():
            path.write_text(text, "utf-8")
    except Unpublishable as problem:
        sys.exit(f"not published: {problem}")
