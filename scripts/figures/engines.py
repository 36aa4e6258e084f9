"""Data engines: Spark, queries, Parquet, segments, signatures."""

from __future__ import annotations

from benchmarks.markdown import paragraph, table
from scripts.figures.blocks import block, many, rounded
from scripts.figures.results import record, records


@block("spark")
def spark() -> str:
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
            f"`contains` itself checks {many(inside)} rows per second and core, in Spark's worker. "
            f"A query of it, with Parquet to read and Arrow batches to the worker and back, does "
            f"{many(whole)}; one that stays in the JVM {many(bare)}."
        )
    )


_SPARK_WAYS = ("plain", "bloom_join")


@block("segments")
def segments() -> str:
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
    head = ["", "other row groups read", "`find`", "scan", "faster", "bytes per key"]
    return text + "\n" + table(head, rows)


@block("signatures")
def signatures() -> str:
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
    return text


@block("engines")
def queries() -> str:
    found = records("engines", table="queries")
    base = "contains_many"
    rows = [
        (
            f"`{way}` of the column" if way == base else way,
            *(f"{rounded(r['ns'][way], 2)} ({r['ns'][way] / r['ns'][base]:.2f}x)" for r in found),
        )
        for way in found[0]["ns"]
    ]
    head = (f"ns per row, {found[0]['rows'] / 1e6:g} M rows", *(r["kind"] for r in found))
    return table(head, rows)


@block("engines")
def parquet() -> str:
    r = record("engines", table="parquet")
    ours = r["ms"]["bloomery, read"]
    rows = [(way, rounded(ms, 2), f"{ms / ours:.1f}x") for way, ms in r["ms"].items()]
    head = (f"a key of one of 100 row groups, {r['rows'] / 1e6:g} M rows", "ms", "to ours")
    return table(head, rows)
