"""Requests a second, by redis-benchmark with 50 connections: ours beside Redis, round by round."""

from __future__ import annotations

import contextlib
import csv
import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.cases import CASES, PEERS, SERVERS, Case
from benchmarks.service.servers import Running
from benchmarks.service.wire import Wire
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

CONNECTIONS = 50
ERROR_RATE = 0.01
ANY = 2_000_000_000
"""Of so many numbers a million random ones are nearly all new."""

# No snapshot begins by itself: what one costs is measured apart (latency.py).
QUIET = ("--set", "snapshot-seconds=0", "--set", "snapshot-log-bytes=1000gb")


def benchmark(
    port: int,
    words: list[str],
    pipeline: int,
    requests: int,
    numbers: int,
    login: tuple[str, ...] = (),
    connections: int = CONNECTIONS,
) -> float:
    """Requests a second."""
    command = ["taskset", "-c", servers.cores()[1], "redis-benchmark", "--csv", "-p", str(port)]
    command += ["-c", str(connections), "-P", str(pipeline), "-n", str(requests), *login]
    done = subprocess.run(
        [*command, "-r", str(numbers), *words], capture_output=True, text=True, check=False
    )
    rows = list(csv.reader(done.stdout.splitlines()))
    if done.returncode != 0 or len(rows) < 2 or "rror" in done.stderr:
        raise RuntimeError(f"redis-benchmark {words[0]}: {done.stderr or done.stdout}"[:500])
    return float(rows[-1][1])


def run(settings: Settings) -> list[Record]:
    servers.check_tools()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(servers.scratch())
        peer = stack.enter_context(servers.redis(folder))
        ours = {
            name: stack.enter_context(servers.bloomery(folder / name, *options, *QUIET))
            for name, options in SERVERS.items()
        }
        filters = list(_filled(ours, settings))
        bench = _Bench(peer, ours, settings)
        rounds = settings.service_rounds
        for number, pipeline in itertools.product(range(rounds), PEERS):
            progress.step(f"service: rates, pipeline of {pipeline}, round {number + 1} of {rounds}")
            bench.round(pipeline, whole=number < settings.few_rounds)
        return [*filters, *bench.records(), _memory(ours["bloomery"], folder, settings)]


def _filled(ours: dict[str, Running], settings: Settings) -> Iterator[Record]:
    """Fill the filters that are asked; their bits a key and observed error rates."""
    keys = settings.service_keys
    for server, door in sorted({(case.server, case.door) for case in CASES}):
        progress.step(f"service: filling {door} on {server}")
        upper = door.upper()
        with ours[server].wire() as wire:
            _reserve(wire, door, door, keys)
            add = ("CF.INSERT", "ITEMS") if door == "cf" else ("BF.MADD",)
            wire.add(door, range(keys), add)
            lost = keys - wire.count(door, range(keys), f"{upper}.MEXISTS")
            wrong = wire.count(door, range(10 * keys, 11 * keys), f"{upper}.MEXISTS")
            about = wire.call(f"{upper}.INFO", door)
        nbytes = dict(zip(about[::2], about[1::2], strict=True))[b"Size"]
        yield {
            "table": "filters",
            "server": server,
            "door": upper,
            "keys": keys,
            "bits_a_key": nbytes * 8 / keys,
            "observed_error_rate": wrong / keys,
            "lost_keys": lost,
        }


def _reserve(wire: Wire, door: str, name: str, capacity: int) -> None:
    rate = () if door == "cf" else (ERROR_RATE,)
    wire.call(f"{door.upper()}.RESERVE", name, *rate, capacity)


class _Bench:
    """The rounds, and what they gave."""

    def __init__(self, peer: Running, ours: dict[str, Running], settings: Settings) -> None:
        self.peer, self.ours, self.settings = peer, ours, settings
        self.peers: dict[int, list[float]] = {}
        self.rates: dict[Case, list[float]] = {}
        self.micros: dict[Case, list[float]] = {}
        self.peer_micros: dict[int, list[float]] = {}
        self._names = itertools.count()

    def round(self, pipeline: int, whole: bool) -> None:
        """Redis, then each of ours: a slow second of the machine meets both. Not whole: those alone
        that have a *must*."""
        requests = self.settings.service_requests(pipeline)
        keys = self.settings.service_keys
        words = list(PEERS[pipeline])
        before = self.peer.cpu_seconds()
        rate = benchmark(self.peer.port, words, pipeline, requests, keys)
        used = self.peer.cpu_seconds() - before
        self.peers.setdefault(pipeline, []).append(rate)
        self.peer_micros.setdefault(pipeline, []).append(used / requests * 1e6)
        for case in CASES:
            if case.pipeline == pipeline and (whole or case.must is not None):
                self._case(case, requests * 2 if case.keys == 1 else requests // 12)

    def _case(self, case: Case, requests: int) -> None:
        server, name, numbers = self.ours[case.server], case.door, 2 * self.settings.service_keys
        if case.adds:  # new keys into a new filter: those that are in would not be logged
            name, numbers = f"{name}-{next(self._names)}", ANY
            with server.wire() as wire:
                _reserve(
                    wire, case.door, name, max(self.settings.service_keys, requests * case.keys)
                )
        words = [case.command, name, *["__rand_int__"] * case.keys]
        before = server.cpu_seconds()
        rate = benchmark(server.port, words, case.pipeline, requests, numbers)
        used = server.cpu_seconds() - before
        self.rates.setdefault(case, []).append(rate * case.keys)
        self.micros.setdefault(case, []).append(used / (requests * case.keys) * 1e6)

    def records(self) -> Iterator[Record]:
        for case, rates in self.rates.items():
            peer = self.peers[case.pipeline]
            yield {
                "table": "rates",
                "server": case.server,
                "what": case.what,
                "keys": case.keys,
                "pipeline": case.pipeline,
                "peer": PEERS[case.pipeline][0],
                "peer_rates": peer,
                "rates": rates,
                "peer_rate": median(peer),
                "rate": median(rates),
                "ratio": median(a / b for a, b in zip(rates, peer, strict=False)),  # the first ones
                "peer_us": median(self.peer_micros[case.pipeline]),
                "us": median(self.micros[case]),
                "must": case.must,
                "aim": case.aim,
            }


def _memory(server: Running, folder: Path, settings: Settings) -> Record:
    """Memory beside the filters, the most of it seen while 50 connections add."""
    progress.step("service: memory")
    worst, used = 0, 0
    with server.wire() as wire:
        _reserve(wire, "bf", "memory", settings.service_keys)
        load = ["redis-benchmark", "-p", str(server.port), "-c", str(CONNECTIONS), "-P", "16"]
        load += ["-n", str(settings.service_requests(16) * 4), "-r", str(ANY), "-q"]
        with (folder / "load").open("wb") as printed:
            process = subprocess.Popen(
                [*load, "BF.ADD", "memory", "__rand_int__"], stdout=printed, stderr=printed
            )
        while process.poll() is None:
            info = wire.call("INFO", "bloomery").decode()
            fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
            used = int(fields["filters_memory"])
            worst = max(worst, server.resident_bytes() - used)
            time.sleep(0.05)
    return {"table": "memory", "beside_bytes": worst, "filter_bytes": used}


def render(records: list[Record]) -> str:
    columns = [Column(t, left=True) for t in ("server", "command")]
    columns += [Column(t) for t in ("pipeline", "Redis", "rate/s", "ours/s", "ratio")]
    columns += [Column(t) for t in ("must", "aim", "Redis's CPU", "our CPU")]
    rows = [
        [
            r["server"],
            r["what"],
            str(r["pipeline"]),
            r["peer"],
            f"{r['peer_rate']:,.0f}",
            f"{r['rate']:,.0f}",
            f"{r['ratio']:.2f}x",
            shown(r["must"]),
            shown(r["aim"]),
            f"{r['peer_us']:.2f} µs",
            f"{r['us']:.2f} µs a key",
        ]
        for r in records
    ]
    return table("Rates: redis-benchmark, 50 connections, medians of the rounds", columns, rows)


def shown(limit: float | None) -> str:
    if limit is None:
        return "-"
    return f"{limit / 1e6:g} M keys/s" if limit > 1000 else f"{limit:g}x"


def render_filters(records: list[Record]) -> str:
    columns = [Column(t, left=True) for t in ("server", "commands")]
    columns += [Column(t) for t in ("keys", "bits a key", "observed error rate", "lost")]
    rows = [
        [
            r["server"],
            r["door"],
            f"{r['keys']:,}",
            f"{r['bits_a_key']:.2f}",
            f"{r['observed_error_rate']:.3%}",
            str(r["lost_keys"]),
        ]
        for r in records
    ]
    return table("The filters that were asked (half of the keys asked for are in)", columns, rows)


def render_memory(records: list[Record]) -> str:
    columns = [Column(t) for t in ("filters", "all else")]
    rows = [
        [f"{r['filter_bytes'] / 1e6:.0f} MB", f"{r['beside_bytes'] / 1e6:.0f} MB"] for r in records
    ]
    return table("Memory with 50 connections adding, resident, at most", columns, rows)
