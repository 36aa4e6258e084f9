"""Finished jobs: crawls, corpora, caches, commands, feeds, and what else people use."""

from __future__ import annotations

from benchmarks.markdown import paragraph, table
from scripts.figures.blocks import block, rounded
from scripts.figures.results import TREE, record, records


@block("crawl")
def crawl() -> str:
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
        table(("dupefilter", "µs per request", "of it without the fingerprint", "ratio"), costs)
        + "\n"
        + table(("", "requests", "memory", "bytes per request", "of Scrapy's own"), sizes)
    )


@block("shell")
def shell() -> str:
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
    return table(head, rows)


@block("compare")
def compare() -> str:
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
        *("for ten million URLs", "bytes per key", "insert", "check", "wrong *maybe*", "removes"),
        *("survives a restart", "needs to run", "10⁹ keys take"),
    )
    return table(head, rows)


@block("admission")
def admission() -> str:
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
    return text


_RATIOS, _WAYS = ("hit", "byte_hit"), ("without", "with")


@block("admission")
def edges() -> str:
    rows = [
        (
            "no summaries" if r["every"] is None else f"every {r['every']:,} requests",
            *(f"{r[name]:,}" for name in ("hits", "neighbour", "wasted", "origin")),
            f"{r['published_bytes'] / 1e6:,.1f}",
        )
        for r in records("admission", table="edges")
    ]
    head = ("an edge publishes", "own hits", "from a neighbour", "asked in vain", "to the origin")
    return table((*head, "MB published"), rows)


@block("feeds")
def feeds() -> str:
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
    return text


@block("seen")
def seen() -> str:
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
    return table((*head, "offered again"), rows)


@block("seen")
def seen_bill() -> str:
    marks = 10_000_000 * 5_000
    store = records("seen", table="stores")[0]
    kept = marks * store["generations"] / (store["generations"] - 1)
    rows = [("`SeenStore`, window and a generation", store["bytes_a_mark"], kept)]
    rows += [(r["what"], r["bytes_a_mark"], marks) for r in records("seen", table="sets")]
    shown = [
        (what, rounded(each), f"{rounded(count * each / 1e9)} GB") for what, each, count in rows
    ]
    return table(("10 M users × 5,000", "bytes a mark", "in all"), shown)


@block("corpus")
def corpus() -> str:
    found = records("corpus", table="dolma")
    rows = [
        (
            f"{r['command']} {r['version']}",
            r["by"],
            f"{rounded(r['seconds'])} s",
            f"{rounded(r['characters'] / (r['seconds'] - r['start']) / 1e6)} MB/s",
            f"{r['found']:,}",
        )
        for r in found
    ]
    text = paragraph(
        f"{found[0]['characters'] / 1e6:,.0f} MB of text in {found[0]['paragraphs']:,} paragraphs, "
        "two threads or processes; the rate is without the start of the program:"
    )
    text += "\n" + table(("", "by", "time", "text", "spans found"), rows)
    near = records("corpus", table="near")
    indexes = [
        (
            f"{r['what']} {r['version']}",
            f"{rounded(r['seconds'])} s",
            f"{rounded(r['bytes'] / 1e6)} MB",
            f"{r['found']:,}",
        )
        for r in near
    ]
    head = (f"near-duplicates of {near[0]['documents']:,} documents", "time", "memory", "found")
    return text + "\n" + table(head, indexes)
