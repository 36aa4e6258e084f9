"""`feeds`: how large a delta is for a hundredth of changed members, and what a token's check costs.

Beside each delta stands the entropy of the bits that differ, as if they were in no order: what any
code for them must take that knows nothing of keys. A pass over HTTP has the bytes and the time of a
copy that follows by a delta, and by the full file.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import http.server
import json
import math
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bloomery
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, time_call
from bloomery import BloomFilter, CountingBloomFilter, CuckooFilter, StaticFilter
from bloomery.apps import AsgiRevocationMiddleware
from bloomery.feeds import PrivateKey, Subscriber, publish
from bloomery.feeds.delta import Delta, encode

MUST = 0.05
ADDED, TURNED, REPLACED = "1% added", "0.5% removed, 0.5% added", "1% removed, 1% added"
CALLS = 20_000
Ints = npt.NDArray[np.int64]


def run(settings: Settings) -> list[Record]:
    n = settings.feed_keys
    records = []
    for name, make in _kinds(n).items():
        progress.step(f"feeds: {name}, {n:,} keys")
        keys = np.arange(2 * n, dtype=np.int64)
        before = make(keys[: n - n // 100], keys)
        versions = {
            ADDED: make(keys[:n], keys),
            TURNED: make(keys[n // 200 : n - n // 200], keys),
            REPLACED: make(keys[n // 100 : n], keys),
        }
        records += [_delta(name, change, n, before, after) for change, after in versions.items()]
    progress.step("feeds: over HTTP")
    return [*records, _followed(n), _checked()]


def _kinds(n: int) -> dict[str, Callable[[Ints, Ints], bytes]]:
    """How each kind of file is made of its keys, in a universe of keys."""

    def filled(kind: Any, *arguments: Any, **options: Any) -> Callable[[Ints, Ints], bytes]:
        def make(keys: Ints, _: Ints) -> bytes:
            filter = kind(n, *arguments, **options)
            filter.add_many(keys)
            return bytes(filter.to_bytes())

        return make

    kinds = {
        "plain, 1%": filled(BloomFilter, 0.01),
        "plain, 0.1%": filled(BloomFilter, 0.001),
        "plain, 1e-6": filled(BloomFilter, 1e-6),
        "plain, 1%, classic": filled(BloomFilter, 0.01, layout="classic"),
        "counting, 1%": filled(CountingBloomFilter, 0.01),
        "cuckoo, 1%": filled(CuckooFilter, 0.01),
        "static, 1%": lambda keys, _: bytes(StaticFilter.build(keys, 0.01).to_bytes()),
    }
    exact = getattr(bloomery, "ExactSet", None)
    if exact is not None:

        def make(keys: Ints, universe: Ints) -> bytes:
            """A hundredth of the keys, in a universe of a hundred times as many others."""
            members = keys[::100]
            others = np.setdiff1d(universe, members, assume_unique=True)
            return bytes(exact.build(members, others).to_bytes())

        kinds["ExactSet"] = make
    return kinds


def _delta(name: str, change: str, n: int, before: bytes, after: bytes) -> Record:
    """A delta between two files: its size beside other ways, and its time."""
    started = time.perf_counter()
    data = encode(before, after)
    encoding = time.perf_counter() - started
    length = max(len(before), len(after))
    old, new = (np.frombuffer(b.ljust(length, b"\0"), np.uint8) for b in (before, after))
    differ = float(np.unpackbits(old ^ new).mean())
    record = {
        "table": "deltas",
        "kind": name,
        "change": change,
        "keys": n,
        "bytes": len(after),
        "bits_differ": differ,
        "entropy": _entropy(differ),
        "zlib": len(zlib.compress((old ^ new).tobytes(), 9)) / len(after),
        "delta": None if data is None else len(data) / len(after),
        "encode_seconds": encoding,
        "apply_seconds": None,
    }
    if data is not None:
        room = bytearray(before[: len(after)].ljust(len(after), b"\0"))
        record["apply_seconds"] = time_call(Delta(data).flip, room) / 1e9
        if bytes(room) != after:
            raise AssertionError(f"{name}, {change}: the delta makes another file")
    return record


def _entropy(share: float) -> float:
    if not 0 < share < 1:
        return 0.0
    return -(share * math.log2(share) + (1 - share) * math.log2(1 - share))


def _followed(n: int) -> Record:
    """A subscriber over HTTP on this machine: first the full file, then 1% of added keys."""
    keys = np.arange(n, dtype=np.int64)
    with tempfile.TemporaryDirectory() as name, _served(Path(name, "feed")) as url:
        key = PrivateKey.create(Path(name, "key"))
        filter = BloomFilter(n, 0.01)
        filter.add_many(keys[: n - n // 100])
        publish(filter, Path(name, "feed"), key)
        subscriber = Subscriber(url, Path(name, "copy"), key.public)
        steps: Record = {"table": "followed", "keys": n, "bytes": filter.nbytes}
        for step in ("full", "deltas"):
            started = time.perf_counter()
            done = subscriber.update()
            steps[step] = {"seconds": time.perf_counter() - started, "fetched": done.fetched}
            if done.by != step:
                raise AssertionError(f"fetched by {done.by}, expected {step}")
            if step == "full":
                filter.add_many(keys)
                started = time.perf_counter()
                publish(filter, Path(name, "feed"), key)
                steps["publish_seconds"] = time.perf_counter() - started
        return steps


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Not beside the figures."""

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _checked() -> Record:
    """What the middleware adds to a request with a valid token; of the best of five passes."""
    claims = json.dumps({"iss": "example", "sub": "somebody", "jti": "0" * 32}).encode()
    parts = [base64.urlsafe_b64encode(part).rstrip(b"=") for part in (b"{}", claims, b"x" * 64)]
    headers = [(b"host", b"example.org"), (b"authorization", b"Bearer " + b".".join(parts))]
    scope = {"type": "http", "method": "GET", "headers": headers}
    filter = BloomFilter(1_000_000, 0.001)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        """Does nothing."""

    async def calls(app: Any) -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            await app(scope, None, None)
        return (time.perf_counter() - started) / CALLS

    with_it = AsgiRevocationMiddleware(application, filter)
    passes = [(asyncio.run(calls(with_it)), asyncio.run(calls(application))) for _ in range(5)]
    added = min(seconds for seconds, _ in passes) - min(seconds for _, seconds in passes)
    return {"table": "checked", "microseconds": added * 1e6}


def judge(records: list[Record]) -> list[Line]:
    what, must = "feeds: a delta for 1% of changed members", "<= 5% of the full file"
    plain = {
        (r["kind"], r["change"]): r["delta"]
        for r in records
        if r["table"] == "deltas" and r["kind"].startswith("plain")
    }
    if not plain:
        return [missing(what, must)]
    worst = {c: max(d for (_, change), d in plain.items() if change == c) for _, c in plain}
    small = max(worst[ADDED], worst[TURNED])
    measured = f"{ADDED}: {worst[ADDED]:.1%}; {TURNED}: {worst[TURNED]:.1%}"
    entropy = max(
        r["entropy"]
        for r in records
        if r.get("change") == REPLACED and r["kind"].startswith("plain")
    )
    return [
        Line(what, must, "-", measured, word(small <= MUST)),
        Line(
            f"feeds: a delta for {REPLACED}",
            "<= 5%, or why not",
            "-",
            f"{worst[REPLACED]:.1%}: {entropy:.1%} is the entropy of the bits that differ",
            word(True) if worst[REPLACED] <= MUST else "reason given",
        ),
    ]


def render(records: list[Record]) -> str:
    rows = [
        [
            r["kind"],
            r["change"],
            f"{r['bytes'] / 1e6:,.2f}",
            f"{r['bits_differ']:.2%}",
            f"{r['entropy']:.2%}",
            f"{r['zlib']:.2%}",
            "none" if r["delta"] is None else f"{r['delta']:.2%}",
            f"{r['encode_seconds']:.2f}",
            "-" if r["apply_seconds"] is None else f"{r['apply_seconds']:.2f}",
        ]
        for r in records
        if r["table"] == "deltas"
    ]
    names = ("MB", "bits differ", "entropy", "zlib of XOR", "delta", "encode s", "apply s")
    columns = [Column("file", left=True), Column("change", left=True), *map(Column, names)]
    (first, *_) = [r for r in records if r["table"] == "deltas"]
    text = table(f"Deltas, {first['keys']:,} keys, of the full file", columns, rows)
    (followed,) = [r for r in records if r["table"] == "followed"]
    (checked,) = [r for r in records if r["table"] == "checked"]
    for step in ("full", "deltas"):
        done = followed[step]
        text += f"\n\nover HTTP, by {step}: {done['fetched']:,} bytes in {done['seconds']:.2f} s"
    text += f"\npublished in {followed['publish_seconds']:.2f} s, with its delta"
    return text + f"\na valid token's check: {checked['microseconds']:.1f} µs"
