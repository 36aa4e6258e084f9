"""The family: bits per key and error rates, banks, how near each is to its limit."""

from __future__ import annotations

from benchmarks.markdown import paragraph, table
from benchmarks.settings import Record
from scripts.figures.blocks import block, rounded
from scripts.figures.results import record, records, result


@block("family")
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
    return table(("kind", "", "bits per key", "asked for", "observed"), rows)


def _weight(r: Record) -> list[str]:
    rates = [
        f"{rate:.3%}" if rate >= 1e-4 else f"{rate:.1e}"
        for rate in (r["error_rate"], r["observed_error_rate"])
    ]
    return [f"{r['bits_a_key']:.2f}", *rates]


@block("family")
def bank() -> str:
    r = max(records("family", table="bank"), key=lambda one: one["users"])
    slowest = max(r["unseen_us"].values())
    return paragraph(
        f"`FilterBank`, {r['users']:,} users, {r['what']}: {r['bits_a_key']:.1f} bits per key; "
        f"observed error rate {r['observed_error_rate']:.2%}, of the worst of 500 users "
        f"{r['worst_rate']:.2%}; {r['lost_keys']} keys lost; which of 500 articles a user has not "
        f"had, in {slowest:.0f} µs."
    )


@block("limits")
def limits() -> str:
    head = ("", "must", "aim", "measured", "")
    return table(head, [tuple(line.values()) for line in result("limits")["how_good"]])


@block("exact")
def exact() -> str:
    sizes = records("exact", table="sizes")
    members = sizes[0]["members"]
    rows = [
        (
            r["way"],
            f"{rounded(r['nbytes'] / 1e3)} kB",
            f"{r['bits']:.2f}",
            *(f"{r[name]:.2f}" for name in ("of_least", "of_cascade")),
            str(r["wrong"]),
        )
        for r in sizes
    ]
    head = (f"{members:,} among {100 * members:,}", "file", "bits a member", "of the least")
    asked = [(r["way"], rounded(r["ns"], 2)) for r in records("exact", table="questions")]
    return (
        table((*head, "of ideal cascades", "wrong answers"), rows)
        + "\n"
        + table(("a question", "ns"), asked)
    )


@block("exact")
def browser() -> str:
    r = record("exact", table="browser")
    return paragraph(
        f"In Chromium {r['chromium']}, {r['questions']:,} questions to a plain filter of "
        f"{r['nbytes'] / 1e6:.1f} MB took {r['first_ms']:.0f} ms the first time, and "
        f"{r['best_ms']:.0f} ms once the browser had compiled the module."
    )
