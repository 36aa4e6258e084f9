"""One worker and two: keys per second, processor time per request, and latency of reads next to
writes. Servers and clients share all cores of the machine, so the clients take a part of them."""

from __future__ import annotations

import csv
import subprocess
import sys
import time

from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.rates import ANY, QUIET
from benchmarks.service.servers import Running
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

KEYS = 100  # per BF.MEXISTS
CLIENTS = 25  # connections of each of two client processes
CROWD = 500  # connections that read, and as many that add
IDLE_SECONDS = 10


def run(settings: Settings) -> list[Record]:
    records = list[Record]()
    with servers.scratch() as folder:
        for number in range(settings.few_rounds):
            for threads in (1, 2):
                progress.step(f"service: {threads} workers, round {number + 1}")
                options = ("--set", f"threads={threads}", *QUIET)
                data = folder / f"{number}-{threads}"
                with servers.bloomery(data, *options, pinned=False) as server:
                    records.append(
                        {"table": "workers", "threads": threads, **_round(server, settings)}
                    )
        progress.step("service: an idle server")
        with servers.bloomery(folder / "idle", pinned=False) as server:
            time.sleep(1)
            resident, before = server.resident_bytes(), server.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            share = (server.cpu_seconds() - before) / IDLE_SECONDS
        records.append({"table": "idle", "cores": share, "resident_bytes": resident})
    return records


def _round(server: Running, settings: Settings) -> dict[str, float]:
    keys = settings.service_keys
    with server.wire() as wire:
        for name in ("read", "crowd"):
            wire.call("BF.RESERVE", name, 0.01, keys)
        wire.add("read", range(keys))
    requests = settings.service_requests(1) // 4
    clients = [_batches(server, 64 * requests, 2 * keys) for _ in range(2)]
    before, began = server.cpu_seconds(), time.monotonic()
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("\n")
        client.stdin.flush()
    done = sum(int(client.communicate()[0] or 0) for client in clients)
    seconds = time.monotonic() - began
    used = (server.cpu_seconds() - before) / done
    adding = _client(server, ["BF.ADD", "crowd", "__rand_int__"], 4 * requests, CROWD, ANY)
    reading = _client(server, ["BF.EXISTS", "read", "__rand_int__"], 2 * requests, CROWD, keys)
    p99 = _finished(reading)
    adding.kill()
    adding.communicate()
    return {
        "keys_per_second": done * KEYS / seconds,
        "us_per_request": used * 1e6,
        "p99_ms": p99,
    }


def _batches(server: Running, requests: int, numbers: int) -> subprocess.Popen[str]:
    counts = map(str, (KEYS, requests, CLIENTS, numbers))
    command = [
        sys.executable,
        "-m",
        "benchmarks.service.batches",
        str(server.port),
        "read",
        *counts,
    ]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    client.stdout.readline()  # it is ready
    return client


def _client(
    server: Running, words: list[str], requests: int, connections: int, numbers: int
) -> subprocess.Popen[str]:
    command = ["redis-benchmark", "--csv", "-p", str(server.port), "-c", str(connections)]
    command += ["-n", str(requests), "-r", str(numbers), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finished(client: subprocess.Popen[str]) -> float:
    """Wait for a client; return its p99 in milliseconds."""
    out, problem = client.communicate()
    rows = list(csv.DictReader(out.splitlines()))
    if client.returncode != 0 or not rows or "rror" in problem:
        raise RuntimeError(f"redis-benchmark: {problem or out}"[:500])
    return float(rows[-1]["p99_latency_ms"])


def render(records: list[Record]) -> str:
    names = ("workers", "keys/s", "CPU per request", "p99 of reads next to adds")
    rows = [
        [
            str(r["threads"]),
            f"{r['keys_per_second']:,.0f}",
            f"{r['us_per_request']:.1f} µs",
            f"{r['p99_ms']:.2f} ms",
        ]
        for r in records
    ]
    title = f"Workers: BF.MEXISTS of {KEYS} keys by two clients; {CROWD} readers, {CROWD} writers"
    return table(title, [Column(name) for name in names], rows)


def render_idle(records: list[Record]) -> str:
    rows = [[f"{r['cores']:.2%}", f"{r['resident_bytes'] / 1e6:.0f} MB"] for r in records]
    return table("An idle server without filters", [Column("CPU"), Column("resident")], rows)
