"""The server, alone and as nodes; the guard."""

from __future__ import annotations

from benchmarks.markdown import paragraph, table
from benchmarks.settings import Record
from scripts.figures.blocks import block, many, rounded
from scripts.figures.results import record, records


@block("service")
def server() -> str:
    def rate(what: str, pipeline: int) -> Record:
        return record("service", table="rates", server="bloomery", what=what, pipeline=pipeline)

    rows = []
    for pipeline, name in ((1, "one request at a time"), (16, ""), (100, "")):
        asked, added = rate("BF.EXISTS", pipeline), rate("BF.ADD", pipeline)
        rows.append(
            (
                name or f"pipelines of {pipeline}",
                f"BF.EXISTS {many(asked['rate'])} per second, BF.ADD {many(added['rate'])}",
                f"{asked['peer']} {many(asked['peer_rate'])}",
            )
        )
    keys = [rate(f"{what} of 100 keys", 16)["rate"] for what in ("BF.MEXISTS", "BF.MADD")]
    (again,) = records("service", table="restart")
    slowest = f" ({again['slowest']:.1f} s the slowest of three)" if "slowest" in again else ""
    calm, *others = records("service", table="latency")
    worst = max(r["p99_ms"] for r in others)
    rows += [
        (
            "100 keys per request, pipelines of 16",
            f"BF.MEXISTS {many(keys[0])} keys per second, BF.MADD {many(keys[1])}",
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
            f"{again['seconds']:.1f} s{slowest}, {again['lost_keys']} of {again['sampled']:,} keys "
            "lost",
            "",
        ),
    ]
    head = ("", "bloomery, every write logged", "Debian's Redis 7, nothing logged")
    return table(head, rows)


def _load(latency: Record) -> str:
    """Under which the latency was measured."""
    load = latency["load"]
    text = f"{rounded(load['offered'])} requests per second"
    if "capacity" in load:
        text += f", half of the {rounded(load['capacity'])} it could answer"
    return text


def _ms(value: float) -> str:
    return f"{rounded(value, 2) if value < 100 else round(value)} ms"


@block("running")
def http() -> str:
    (r,) = records("running", table="http")
    return paragraph(
        f"Over HTTP, the server checks {many(r['batch'])} keys per second in JSON requests of "
        f"1,000, and adds {many(r['arrow'])} per second from an Arrow stream. One key per request "
        f"is {r['ratio']:.1f} times as fast as a FastAPI endpoint that returns a constant "
        f"({many(r['one'])} to {many(r['constant'])} per second)."
    )


GUARDED = {
    "local": "filter, and a cache for a tenth of the table",
    "local, twice the size": "filter, and a cache for a fifth",
    "local, absent keys not cached": "filter, a cache for a tenth, absent keys not cached",
    "local, no filter": "the same cache, no filter",
    "no cache": "filter, no cache",
    "neither": "neither",
}


@block("guard")
def guard() -> str:
    return _guarded("local", "local, no filter", "neither")


@block("guard")
def guard_cases() -> str:
    return _guarded(*list(GUARDED)[:-1])


def _guarded(*cases: str) -> str:
    found = [record("guard", table="reads", case=case) for case in cases]
    rows = [
        (
            GUARDED[r["case"]],
            *(f"{rounded(100 * r[name], 2)}%" for name in ("reach", "absent_reach")),
        )
        for r in found
    ]
    head = ("", "reads that reach the database", "of reads of absent keys")
    return (
        paragraph(
            f"A PostgreSQL of {found[0].get('keys', 1_000_000):,} rows, reads by Zipf's law (1.1), "
            "half of them of keys that are not there, a filter of 1%, counted by the database "
            "itself:"
        )
        + "\n"
        + table(head, rows)
    )


@block("service")
def snapshots() -> str:
    rows = [
        (r["when"], *(_ms(r[name]) for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")))
        for r in records("service", table="latency")
    ]
    load = _load(records("service", table="latency")[0])
    head = (f"BF.EXISTS, a filter of 1 GB, {load}", "p50", "p99", "p99.9", "max")
    return table(head, rows)


@block("stalls")
def stalls() -> str:
    found = sorted(records("stalls", table="stalls"), key=lambda r: -float(r["wall"]))
    rows = [(r["request"], _ms(1e3 * r["wall"]), _ms(1e3 * r["loop"])) for r in found[:5]]
    head = (f"the worst of {len(found)} requests", "a PING beside it", "work of the serving thread")
    return table(head, rows)


@block("service")
def pauses() -> str:
    found = records("service", table="pauses")
    found.sort(key=lambda r: -max(float(r["read"]), float(r["write"])))
    rows = [
        (r["request"], _ms(1e3 * r["read"]), _ms(1e3 * r["write"]), f"{r['took']:.1f} s")
        for r in found[:5]
    ]
    title = f"the worst of {len(found)}, filters of {found[0]['bytes'] / 1e9:.1f} GB"
    return table((title, "BF.EXISTS of another client", "BF.ADD", "it took"), rows)


@block("cluster")
def many_machines() -> str:
    r = record("cluster", table="library", way="blocked")
    lag = worst_lag()
    rows = [
        (
            f"`{what}`, {'one key' if what == 'add' else '1,000 keys'} per call",
            f"{many(r['rates'][what])} keys per second",
            many(r["by_hand"][what]),
        )
        for what in ("add_many", "contains_many", "add")
    ]
    rows.append(
        (
            "a write at one of three nodes, until the others know, at "
            f"{lag['offered']:,.0f} writes per second",
            f"p50 {_ms(lag['p50_ms'])}, p99 {_ms(lag['p99_ms'])}, at most {_ms(lag['p100_ms'])}",
            "",
        )
    )
    head = ("", "bloomery", "by hand, a pipeline of redis-py")
    return table(head, rows)


def worst_lag() -> Record:
    """Of the two loads, the one that is worse."""
    found = (r for r in records("cluster", table="lag") if r["offered"])
    return max(found, key=lambda r: r["p99_ms"])


@block("cluster")
def lag() -> str:
    rows = [
        (
            f"{r['offered']:,.0f}" + (f", {r['burst']} at once" if r["burst"] else ""),
            *(_ms(r[name]) for name in ("p50_ms", "p99_ms", "p99.9_ms", "p100_ms")),
        )
        for r in records("cluster", table="lag")
    ]
    head = ("writes per second, three nodes", "p50", "p99", "p99.9", "max")
    return table(head, rows)


@block("cluster")
def redis_copy() -> str:
    r = record("cluster", table="loading", what="RedisFilter.to_local")
    return paragraph(
        f"From a redis-server on the same machine 1 GiB came at {rounded(r['mb_a_second'])} MB/s "
        "into memory that was touched before."
    )
