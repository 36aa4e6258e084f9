"""What a write costs everybody: bytes on the wire and in the stream, and processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.cluster.pace import Pace, load
from benchmarks.cluster.stage import Stage, stage
from benchmarks.report import Column, table
from benchmarks.service.servers import Running
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

STREAM = b"{bloomery}:stream"
ERROR_RATE = 0.01

Work = Callable[[Running, str, int], int]


def run(settings: Settings) -> list[Record]:
    """One node writes, another one follows."""
    keys = settings.size(200_000 if settings.quick else 1_000_000)
    with stage() as there:
        there.start(2)
        return [
            record
            for number, (what, each, work) in enumerate(_WORK)
            for record in [_cost(there, f"cost-{number}", what, max(1000, keys // each), work)]
        ]


def _singly(node: Running, name: str, keys: int) -> int:
    """A key a request, one request after another."""
    with node.wire() as wire:
        for number in range(keys):
            wire.call("BF.ADD", name, b"%012d" % number)
    return keys


def _crowd(node: Running, name: str, keys: int) -> int:
    """A key a request, many connections at an even pace."""
    with load(Pace([node.port], "BF.ADD", name, 5_000)) as writers:
        writers.start()
        time.sleep(keys / 5_000)
        replies: int = writers.end()["replies"]
    return replies


def _batches(node: Running, name: str, keys: int) -> int:
    with node.wire() as wire:
        wire.add(name, range(keys))
    return keys


_WORK: tuple[tuple[str, int, Work], ...] = (
    ("BF.ADD, one after another", 50, _singly),
    ("BF.ADD, 50 connections, 5,000/s", 20, _crowd),
    ("BF.MADD of 1,000", 1, _batches),
)


def _cost(there: Stage, name: str, what: str, keys: int, work: Work) -> Record:
    progress.step(f"cluster: costs, {what}")
    writer, other = there.nodes
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
        "bits_bytes": _bits_bytes(there, name) / keys,
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


def _bits_bytes(there: Stage, name: str) -> int:
    keys: Any = there.client.keys("{" + name + "}*")
    nbytes: Any = [there.client.memory_usage(key) for key in keys]
    return sum(nbytes)


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
    ]
    bits = median(r["bits_bytes"] for r in records)
    title = (
        "What a new key costs, with one node that writes and one that follows; idle time of either "
        f"is taken off.\nIts bits take {bits:.2f} bytes of Redis's memory a key of the capacity"
    )
    return table(title, columns, rows)
