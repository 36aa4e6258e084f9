"""The library: beside its peers, large filters, what a hash costs."""

from __future__ import annotations

import json

from benchmarks.markdown import paragraph, table
from benchmarks.settings import Record
from scripts.figures.blocks import block, rounded
from scripts.figures.results import RESULTS, record, records, result

OURS, RIVAL = "bloomery", "abloom serializable"


@block("library")
def machine() -> str:
    about = result("library")["machine"]
    files = sorted(RESULTS.glob("*.json"))
    cpus = sorted({json.loads(file.read_text("utf-8"))["machine"]["cpu"] for file in files})
    which = " or an ".join(cpus)
    return paragraph(
        f"Each table names its run, whose results file names the processor: an {which}, with "
        f"{about['cores']} virtual cores and Python {about['python']}. The complete output is in "
        "[`benchmarks/results/`](benchmarks/results/summary.md). The machine is shared: read "
        "differences under 25% as noise."
    )


@block("library")
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
            "bits per key at 1% / 0.1%",
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
    return table(head, rows)


def _peer(peer: str, kind: str) -> dict[str, float]:
    found: dict[str, float] = record("library", table="peers", peer=peer, kind=kind)["ns"]
    return found


def _batch(peer: str, form: str, error_rate: float = 0.01) -> Record:
    return record("library", table="batch", peer=peer, door=form, error_rate=error_rate)


def _beside(ours: float, theirs: float) -> list[str]:
    return [rounded(ours, 2), rounded(theirs, 2), f"{ours / theirs:.2f}"]


@block("billion", "shell")
def large() -> str:
    r, urls = (record("billion", what=what) for what in ("int64", "urls"))
    ours, loop = records("shell", table="dedup")
    return paragraph(
        f"A filter of 10⁹ keys at 1% takes {r['seconds']:.0f} s to build and to check for 10⁸ "
        f"absent keys, with a peak memory of {r['peak_bytes'] / 1e9:.2f} GB and an observed error "
        f"rate of {r['observed_error_rate']:.3%}. Adding 10⁹ URLs from lines of text takes "
        f"{urls['add_seconds']:.0f} s. `{ours['command']}` reads {ours['lines'] / 1e6:g} M lines "
        f"in {ours['seconds']:.1f} s with {ours['peak_bytes'] / 1e6:.0f} MB; a loop over a Python "
        f"set with orjson takes {loop['seconds']:.1f} s and {loop['peak_bytes'] / 1e6:.0f} MB."
    )


@block("library")
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
    head = ("ns per key, one at a time", "`add` str", "`in` str", "`add` int", "`in` int")
    text = table(head, rows)
    for r in records("library", peer="rbloom", fact="i << 40"):
        text += "\n" + paragraph(
            f"rbloom gave {r['observed_error_rate']:.0%} false positives for {r['keys']:,} keys "
            "`i << 40` at a target of 1%."
        )
    return text


@block("billion")
def billion_urls() -> str:
    r = record("billion", what="urls")
    return paragraph(
        f"{r['keys'] / 1e9:.0f} billion URLs of {r['bytes_a_line']:.0f} bytes on average, from "
        f"lines in memory into one filter at 1%: {r['add_seconds']:.0f} s, of which making the "
        f"lines took {r['making_seconds']:.0f} s; {r['update_seconds'] / r['keys'] * 1e9:.0f} "
        f"ns per URL. Peak memory {r['peak_bytes'] / 1e9:.2f} GB. Of "
        f"{r['absent_keys'] / 1e6:.0f} million others, "
        f"{r['observed_error_rate']:.3%} were taken for seen."
    )


@block("hashing")
def hashing() -> str:
    operations = ("add", "in", "add_many", "contains_many")
    lengths = list(dict.fromkeys(r["length"] for r in records("hashing", table="length")))
    ways = list(dict.fromkeys(r["way"] for r in records("hashing", table="length")))

    def ns(way: str, length: int, *pair: str) -> str:
        found = record("hashing", table="length", way=way, length=length)["ns"]
        return " / ".join(rounded(found[op], 2) if op in found else "–" for op in pair)

    text = ""
    for pair in (("add", "in"), ("add_many", "contains_many")):
        asked = " / ".join(f"`{op}`" for op in pair)
        head = (f"{asked}: ns per key, by key length in bytes", *map(str, lengths))
        shown = [way for way in ways if ns(way, lengths[0], *pair) != "– / –"]
        text += table(head, [(way, *(ns(way, n, *pair) for n in lengths)) for way in shown]) + "\n"
    rows = []
    for r in records("hashing", table="k"):
        cells = [rounded(r["ns"][op], 2) if op in r["ns"] else "–" for op in operations]
        size = f"{rounded(r['nbytes'] / 1e6, 2)} MB"
        rows.append((r["way"], str(r["num_hashes"]), size, *cells))
    head = ("error rate 2^−k, keys of 32 bytes: ns per key", "hashes", "memory")
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
    head = ("100,000 inserts per second are due, on one core", "done per second", "of the core")
    text += "\n" + table((*head, "p50 µs", "p99 µs", "max µs"), rows)
    return text + "\n" + _answer()


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
        "times as often. 100,000 inserts per second, one by one, take "
        f"{xxh3['share']:.1%} of a core with xxh3 and {once['share']:.0%} with SHA-256 once; with "
        f"SHA-256 k times {rounded(textbook['rate'], 2)} were done."
    )


_PACED = ("xxh3", "SHA-256, once", "SHA-256, k times")


@block("memory")
def error_rates() -> str:
    rows = [
        (
            f"{r['layout']}, {r['error_rate']:.1%}",
            f"{r['bits_a_key']:.2f}",
            f"{r['observed_error_rate']:.4%}",
            f"{r['off_target']:+.2%} ± {r['sampling_error']:.2%}",
        )
        for r in records("memory")
    ]
    return table(("full, of 10 M keys", "bits per key", "observed", "off what was asked for"), rows)


@block("threads")
def two_threads() -> str:
    rows = [
        (
            f"{r['pass']}, {r['keys'] / 1e6:g} M int64",
            rounded(r["ns_one"], 2),
            rounded(r["ns_two"], 2),
            f"{r['speedup']:.2f}",
        )
        for r in records("threads")
    ]
    return table(("ns per key", "one thread", "two", "times as fast"), rows)
