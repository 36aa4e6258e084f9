"""What a write costs everybody: bytes on the wire and in the stream, and processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.cluster.pace import Pace, load
from benchmarks.cluster.stage import NODES, Stage, stage
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.servers import Running
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

STREAM = b"{bloomery}:log"
ERROR_RATE = 0.01
RATE = 20_000
CROWD, BATCHES = f"BF.ADD, 50 connections, {RATE:,}/s", "BF.MADD of 1,000"
ALONE = "BF.MADD of 1,000, a server alone"

Work = Callable[[Running, str, int], int]


def run(settings: Settings) -> list[Record]:
    """One node writes, another one follows; two others where many clients write."""
    keys = settings.size(200_000 if settings.quick else 1_000_000)
    made: dict[str, Record] = {}
    with stage() as there:
        there.start(2)
        for what, each, work in sorted(_WORK, key=lambda one: one[0] == CROWD):
            if what == CROWD:
                with there.nodes[0].wire() as wire:
                    wire.call("SAVE")  # the stream has lost its beginning (`_stream_bytes`)
                there.start(NODES - 2)
            made[what] = _cost(there, f"cost-{len(made)}", what, max(1000, keys // each), work)
    alone = {"table": "costs", "what": ALONE, "rate": _alone(keys)}
    return [*(made[what] for what, _, _ in _WORK), alone]


def _alone(keys: int) -> float:
    """Keys a second that a server alone takes, with every write logged."""
    with servers.scratch() as folder, servers.bloomery(folder / "alone", pinned=False) as server:
        with server.wire() as wire:
            wire.call("BF.RESERVE", "alone", ERROR_RATE, keys, "KIND", "bloom")
        began = time.monotonic()
        _batches(server, "alone", keys)
        return keys / (time.monotonic() - began)


def _singly(node: Running, name: str, keys: int) -> int:
    """A key a request, one request after another."""
    with node.wire() as wire:
        for number in range(keys):
            wire.call("BF.ADD", name, b"%012d" % number)
    return keys


def _crowd(node: Running, name: str, keys: int) -> int:
    """A key a request, many connections at an even pace."""
    with load(Pace([node.port], "BF.ADD", name, RATE)) as writers:
        writers.start()
        time.sleep(keys / RATE)
        replies: int = writers.end()["replies"]
    return replies


def _batches(node: Running, name: str, keys: int) -> int:
    with node.wire() as wire:
        wire.add(name, range(keys))
    return keys


_WORK: tuple[tuple[str, int, Work], ...] = (
    ("BF.ADD, one after another", 50, _singly),
    (CROWD, 5, _crowd),
    (BATCHES, 1, _batches),
)


def _cost(there: Stage, name: str, what: str, keys: int, work: Work) -> Record:
    progress.step(f"cluster: costs, {what}")
    writer, other = there.nodes[:2]
    with writer.wire() as wire:
        wire.call("BF.RESERVE", name, ERROR_RATE, keys, "KIND", "bloom")
    time.sleep(0.5)
    before, cpu = _facts(there), there.cpu_seconds()
    began = time.monotonic()
    written = work(writer, name, keys)
    seconds = time.monotonic() - began
    _caught_up(other, name, written)
    used, after = there.cpu_seconds(), _facts(there)
    # Without new keys, the same time: what a node and Redis do anyhow.
    time.sleep(1.0)
    still, idle = _facts(there), there.cpu_seconds()
    entries = after["entries"] - before["entries"]
    micros = {
        who: ((used[who] - cpu[who]) - (idle[who] - used[who]) * seconds) / written * 1e6
        for who in cpu
    }
    about = {key: after[key] - before[key] for key in ("net_in", "net_out")}
    quiet = {key: (still[key] - after[key]) * seconds for key in about}
    return {
        "table": "costs",
        "what": what,
        "writes": written,
        "rate": written / seconds,
        "entries": entries,
        "in_bytes": (about["net_in"] - quiet["net_in"]) / written,
        "out_bytes": (about["net_out"] - quiet["net_out"]) / written,
        "stream_bytes": _stream_bytes(there, entries) / written,
        "redis_us": micros["Redis"],
        "writer_us": micros["node 1"],
        "follower_us": micros["node 2"],
    }


def _facts(there: Stage) -> dict[str, int]:
    stats: dict[str, Any] = there.client.info("stats")
    found: Any = there.client.xinfo_stream(STREAM)
    entries = found["entries-added"]  # ever; Redis 7 counts them
    return {
        "entries": int(entries),
        "net_in": stats["total_net_input_bytes"],
        "net_out": stats["total_net_output_bytes"],
    }


def _stream_bytes(there: Stage, entries: int) -> float:
    """Memory of so many entries, by what those have that are in the stream now."""
    there.client.xtrim(STREAM, maxlen=max(1, entries), approximate=False)
    nbytes: Any = there.client.memory_usage(STREAM, samples=0)
    length: Any = there.client.xlen(STREAM)
    return float(nbytes) / max(1, int(length)) * entries


def _caught_up(node: Running, name: str, keys: int) -> None:
    """Return when a node has so many keys, about."""
    until = time.monotonic() + 60
    with node.wire() as wire:
        seen = -1
        while time.monotonic() < until:
            about = wire.call("BF.INFO", name)
            items = dict(zip(about[::2], about[1::2], strict=True))[b"Number of items inserted"]
            if items >= 0.98 * keys and items == seen:
                return
            seen = items
            time.sleep(0.2)
    raise RuntimeError(f"a node has {seen} of {keys} keys")


def render(records: list[Record]) -> str:
    columns = [Column("writes", left=True)]
    columns += [Column(t) for t in ("keys/s", "keys an entry", "to Redis", "from Redis")]
    columns += [Column(t) for t in ("in the stream", "Redis's CPU", "the writer's", "a follower's")]
    rows = [
        [
            *(r["what"], f"{r['rate']:,.0f}", f"{r['writes'] / max(1, r['entries']):,.1f}"),
            *(f"{r[name]:,.0f} B" for name in ("in_bytes", "out_bytes", "stream_bytes")),
            *(f"{r[name]:.2f} µs" for name in ("redis_us", "writer_us", "follower_us")),
        ]
        for r in records
        if r["what"] != ALONE
    ]
    alone = next(r["rate"] for r in records if r["what"] == ALONE)
    title = (
        "What a new key costs, with one node that writes and one that follows (two where many "
        "clients write); idle time is taken off.\nA server alone, with every write logged, takes "
        f"{alone:,.0f} keys/s"
    )
    return table(title, columns, rows)


def judge(records: list[Record]) -> list[Line]:
    """The lines of "How good"."""
    found = {r["what"]: r for r in records if r["table"] == "costs"}
    batches = "BF.MADD of 1,000 through one node, to a server alone"
    writer = f"CPU of the node that takes a BF.ADD, 50 connections, {RATE:,} writes/s"
    store, following = (
        f"CPU of Redis for it, {NODES} nodes",
        "CPU of following a million keys, in batches",
    )
    wanted = (
        *((batches, ">= 0.4x", "0.7x"), (writer, "<= 40 µs", "20 µs")),
        *((store, "<= 8 µs", "-"), (following, "<= 0.15 s", "0.05 s")),
    )
    if not {CROWD, BATCHES, ALONE} <= found.keys():
        return [missing(*one) for one in wanted]
    ratio = found[BATCHES]["rate"] / found[ALONE]["rate"]
    micros, redis_us = found[CROWD]["writer_us"], found[CROWD]["redis_us"]
    seconds = found[BATCHES]["follower_us"]  # µs a key: seconds a million
    figures = (
        (f"{ratio:.2f}x", word(ratio >= 0.4, ratio >= 0.7)),
        (f"{micros:.1f} µs at {found[CROWD]['rate']:,.0f}/s", word(micros <= 40, micros <= 20)),
        (f"{redis_us:.1f} µs", word(redis_us <= 8)),
        (f"{seconds:.3f} s", word(seconds <= 0.15, seconds <= 0.05)),
    )
    return [Line(*what, *figure) for what, figure in zip(wanted, figures, strict=True)]
