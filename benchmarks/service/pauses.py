"""The longest pause of other clients while something is done to all of a filter of 1 GB: it is
copied, cleared, merged, dumped, loaded, dropped, or grows."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import beats
from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.wire import Wire, packed
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

MUST, AIM = 0.010, 0.003
TRIES = 3
SPREAD = 300_000
"""Keys that touch nearly every page of 1 GB: memory that nobody wrote to takes no time to free."""

FIRST = 100_000
"""Keys of the first layer of a chain."""

CF_ADD = ("CF.INSERT", "ITEMS")
QUIET = ("--set", "snapshot-seconds=0", "--set", "snapshot-log-bytes=1000gb")

Work = Callable[[], object]


class _Stage:
    """A server, its filters of so many bytes, and what is done to them."""

    def __init__(self, wire: Wire, nbytes: int) -> None:
        self.wire, self.nbytes = wire, nbytes
        self.call = wire.call

    def fill(self, name: str, *kind: str, bits: float = 9.95) -> None:
        self.drop(name)
        self.call("BF.RESERVE", name, 0.01, int(self.nbytes * 8 / bits), *kind)
        self.wire.add(name, range(SPREAD))

    def drop(self, *names: str) -> None:
        self.call("DEL", *names)

    def works(self) -> Iterator[tuple[str, Work, Work]]:
        """What is done, what makes it ready, and itself."""
        call = self.call
        self.fill("a", "KIND", "bloom")
        self.fill("b", "KIND", "bloom")
        yield "COPY", lambda: self.drop("c"), lambda: call("COPY", "a", "c")

        def copied() -> object:
            return call("COPY", "a", "c", "REPLACE")

        yield "COPY … REPLACE of one as large", copied, copied
        yield "BF.CLEAR", copied, lambda: call("BF.CLEAR", "c")
        yield "BF.MERGE", copied, lambda: call("BF.MERGE", "c", "b")
        yield "DEL", copied, lambda: self.drop("c")
        yield "RENAME onto it", copied, self._rename
        yield "its TTL ends", copied, self._expire
        yield "BF.SCANDUMP, all of it", lambda: None, lambda: list(self._dump("a"))
        yield "BF.LOADCHUNK, all of it", lambda: self.drop("c"), self._load
        yield "BF.RESERVE", lambda: self.drop("c"), lambda: self._reserve("bloom")
        self.drop("a", "b", "c")
        for kind, bits in (("counting", 39.8), ("cuckoo", 12.0), ("scalable", 12.0)):
            self.fill("a", "KIND", kind, bits=bits)
            yield f"COPY, {kind}", lambda: self.drop("c"), lambda: call("COPY", "a", "c")
            yield f"BF.CLEAR, {kind}", copied, lambda: call("BF.CLEAR", "c")
            self.drop("a", "c")
        self.fill("a", "KIND", "rotating", "WINDOW", "1h", bits=14.0)
        yield "BF.ROTATE", lambda: None, lambda: call("BF.ROTATE", "a")
        self.drop("a")
        for kind, more in (("cuckoo", ("ONFULL", "grow")), ("scalable", ())):
            full = partial(self._nearly_full, "KIND", kind, *more)
            yield f"growth, {kind}", full, self._overfill
        self.drop("grown")
        yield "growth, redisbloom: a layer", self._full_layer, self._second_layer
        yield "growth, CF: a layer", self._full_cuckoo_layer, self._second_cuckoo_layer
        self.drop("grown")

    def _rename(self) -> None:
        self.call("BF.RESERVE", "other", 0.01, 10)
        self.call("RENAME", "other", "c")

    def _expire(self) -> None:
        self.call("PEXPIRE", "c", 20)
        while self.call("EXISTS", "c"):
            time.sleep(0.005)

    def _reserve(self, kind: str) -> None:
        self.call("BF.RESERVE", "c", 0.01, int(self.nbytes * 8 / 9.95), "KIND", kind)
        self.wire.add("c", range(20_000))  # its first keys

    def _dump(self, name: str) -> Iterator[tuple[int, bytes]]:
        at, data = self.call("BF.SCANDUMP", name, 0)
        while at:
            yield at, data
            at, data = self.call("BF.SCANDUMP", name, at)

    def _load(self) -> None:
        for part in self._dump("a"):
            self.wire.socket.sendall(packed(("BF.LOADCHUNK", "c", *part)))
            self.wire.reply()

    def _nearly_full(self, *kind: str) -> None:
        """A table of a 32nd of the bytes: to fill 1 GB takes minutes."""
        self.capacity = int(self.nbytes / 32 * 8 / 12)
        self.drop("grown")
        self.call("BF.RESERVE", "grown", 0.01, self.capacity, *kind)
        self.wire.add("grown", range(self.capacity))

    def _overfill(self) -> None:
        self.wire.add("grown", range(self.capacity, int(1.3 * self.capacity)))

    def _full_layer(self) -> None:
        """A small first layer, behind which comes one of all the bytes."""
        self.drop("grown")
        growth = int(self.nbytes * 8 / 12) // FIRST
        self.call("CONFIG", "SET", "bf-layout", "redisbloom")
        self.call("BF.RESERVE", "grown", 0.01, FIRST, "EXPANSION", growth)
        self.call("CONFIG", "SET", "bf-layout", "bloomery")
        self.wire.add("grown", range(FIRST - 1))

    def _second_layer(self) -> None:
        self.wire.add("grown", range(FIRST, FIRST + SPREAD))

    def _full_cuckoo_layer(self) -> None:
        self.drop("grown")
        growth = max(2, min(32768, self.nbytes // FIRST))
        self.call("CF.RESERVE", "grown", FIRST, "EXPANSION", growth)
        self.wire.add("grown", range(FIRST // 2), CF_ADD)

    def _second_cuckoo_layer(self) -> None:
        self.wire.add("grown", range(FIRST, FIRST + SPREAD), CF_ADD)


@contextlib.contextmanager
def _beside(server: servers.Running, name: str) -> Iterator[_Bystander]:
    """A bystander that uses a filter of that name."""
    command = [sys.executable, "-m", "benchmarks.service.bystander", str(server.port), name]
    command.append(str(server.process.pid))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield _Bystander(process)
    finally:
        process.kill()
        process.communicate()


class _Bystander:
    """The process, as who measures has it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._line()  # it is connected

    def begin(self) -> None:
        self._say()
        self._line()

    def end(self) -> Record:
        """Seconds of the longest `read` and of the longest `write` since `begin`, less what they
        had to wait for a processor; the `long` ones apart, each with its start, its end and that
        wait; the longest of all by the `wall` clock; and how many."""
        self._say()
        found: Record = json.loads(self._line())
        return found

    def _say(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the client beside the request has ended")
        return line


def run(settings: Settings) -> list[Record]:
    nbytes = settings.pause_bytes
    records: list[Record] = []
    with (
        servers.scratch() as folder,
        servers.bloomery(folder / "data", *QUIET, pinned=False) as server,
        server.wire() as wire,
    ):
        wire.call("BF.RESERVE", "small", 0.01, 1_000_000)
        with _beside(server, "small") as client:
            for what, prepare, work in _Stage(wire, nbytes).works():
                progress.step(f"service: pauses, {what}")
                tries = 1 if "growth" in what or "all of it" in what else TRIES
                found = [_measured(client, prepare, work) for _ in range(tries)]
                best = min(found, key=lambda r: max(r["read"], r["write"]))
                records.append({"table": "pauses", "request": what, "bytes": nbytes, **best})
    return records


def _measured(client: _Bystander, prepare: Work, work: Work) -> Record:
    prepare()
    with beats.beating(sorted(os.sched_getaffinity(0))) as late:
        client.begin()
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        found = client.end()
    for what, start, end, waited in found.pop("long"):
        taken = end - start - beats.without(start, end, late)
        # The greater of the two: a thread may wait for a processor that the host has taken.
        found[what] = max(found[what], end - start - max(waited, taken))
    return {**found, "took": took}


def render(records: list[Record]) -> str:
    titles = ("BF.EXISTS, ms", "BF.ADD, ms", "on the wall, ms", "took, s")
    rows = [
        [
            r["request"],
            *(f"{1e3 * r[name]:.1f}" for name in ("read", "write", "wall")),
            f"{r['took']:.2f}",
        ]
        for r in sorted(records, key=_worst, reverse=True)
    ]
    title = f"The longest that another client waits beside it, {records[0]['bytes'] / 1e9:.2f} GB"
    return table(title, [Column("request", left=True), *map(Column, titles)], rows)


def _worst(record: Record) -> float:
    return float(max(record["read"], record["write"]))


def judge(records: list[Record]) -> Line:
    what = "longest pause of other clients, all of a filter of 1 GB"
    must, aim = f"<= {1e3 * MUST:g} ms", f"<= {1e3 * AIM:g} ms"
    if not records:
        return missing(what, must, aim)
    worst = max(records, key=_worst)
    measured = f"{1e3 * _worst(worst):.1f} ms ({worst['request']})"
    return Line(what, must, aim, measured, word(_worst(worst) <= MUST, _worst(worst) <= AIM))
