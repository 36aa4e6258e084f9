"""HTTP: keys a second as JSON and as an Arrow stream, and one key a request beside a FastAPI
endpoint that returns a constant."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.rates import QUIET
from benchmarks.service.servers import Running
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

CONNECTIONS = 16
BATCH = 1000
SECONDS = 2.0
ERROR_RATE = 0.01
ARROW = "application/vnd.apache.arrow.stream"
BATCH_ROWS = 1 << 17


def run(settings: Settings) -> list[Record]:
    rounds = settings.few_service_rounds
    rates: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(servers.scratch())
        ours = stack.enter_context(servers.bloomery(folder / "http", *QUIET))
        peer = stack.enter_context(_constant())
        keys = settings.service_keys
        with ours.wire() as wire:
            wire.call("BF.RESERVE", "asked", ERROR_RATE, keys)
            wire.add("asked", range(keys), ("BF.MADD",))
        for number in range(rounds):
            progress.step(f"service: HTTP, round {number + 1} of {rounds}")
            for what, port, path, count in (
                ("constant", peer, "/constant", 1),
                ("one", ours.http_port, "/filters/asked/contains", 1),
                ("batch", ours.http_port, "/filters/asked/contains", BATCH),
            ):
                rates.setdefault(what, []).append(_load(port, path, count) * count)
            rates.setdefault("arrow", []).append(_stream(ours, f"stream-{number}", settings))
        lost, wrong = _checked(ours, "stream-0", settings)
    ratios = [one / peer for one, peer in zip(rates["one"], rates["constant"], strict=True)]
    return [
        {
            "table": "http",
            "rates": rates,
            "constant": median(rates["constant"]),
            "one": median(rates["one"]),
            "ratio": median(ratios),
            "batch": median(rates["batch"]),
            "arrow": median(rates["arrow"]),
            "arrow_keys": settings.arrow_keys,
            "lost_keys": lost,
            "observed_error_rate": wrong,
        }
    ]


@contextlib.contextmanager
def _constant() -> Iterator[int]:
    command = ["taskset", "-c", servers.cores()[0], sys.executable]
    process = subprocess.Popen(
        [*command, "-m", "benchmarks.running.constant"], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def _load(port: int, path: str, keys: int) -> float:
    """Requests a second."""
    words = [str(port), path, str(keys), str(CONNECTIONS), str(SECONDS)]
    command = ["taskset", "-c", servers.cores()[1], sys.executable]
    command += ["-m", "benchmarks.running.http_load", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-1000:])
    found = json.loads(done.stdout)
    return float(found["requests"] / found["seconds"])


def _stream(ours: Running, name: str, settings: Settings) -> float:
    """Keys a second of one Arrow stream into add, made before the clock starts."""
    keys = settings.arrow_keys
    _ask(
        ours,
        "POST",
        "/filters",
        {"name": name, "kind": "bloom", "capacity": keys, "error_rate": ERROR_RATE},
    )
    column = pa.array(np.random.default_rng(len(name)).permutation(keys))
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"key": column})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_table(pa.table(batch), max_chunksize=BATCH_ROWS)
    body = sink.getvalue().to_pybytes()
    began = time.perf_counter()
    answer = _ask(ours, "POST", f"/filters/{name}/add", body)
    seconds = time.perf_counter() - began
    assert answer["keys"] == keys, answer
    return keys / seconds


def _checked(ours: Running, name: str, settings: Settings) -> tuple[int, float]:
    """Keys of a stream that are not there, and the share of others that may be."""
    keys, asked = settings.arrow_keys, 200_000
    added = _ask(ours, "POST", f"/filters/{name}/contains", {"keys": list(range(asked))})
    others = list(range(keys, keys + asked))
    absent = _ask(ours, "POST", f"/filters/{name}/contains", {"keys": others})
    return asked - sum(added["maybe"]), sum(absent["maybe"]) / asked


def _ask(ours: Running, method: str, path: str, body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", ours.http_port, timeout=600)
    raw = isinstance(body, bytes)
    headers = {"Content-Type": ARROW if raw else "application/json"}
    connection.request(method, path, body if raw else json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {data[:500]!r}")
    return json.loads(data)


def render(records: list[Record]) -> str:
    (r,) = records
    columns = [Column("what", left=True), Column("a second"), Column("beside it")]
    rows = [
        ["a FastAPI endpoint that returns a constant", f"{r['constant']:,.0f} requests", "-"],
        ["contains, one key a request", f"{r['one']:,.0f} requests", f"{r['ratio']:.2f}x"],
        [f"contains, {BATCH:,} keys a request", f"{r['batch']:,.0f} keys", "-"],
        [
            f"Arrow stream of {r['arrow_keys']:,} int64 into add",
            f"{r['arrow']:,.0f} keys",
            f"{r['lost_keys']} lost, {r['observed_error_rate']:.3%} wrong",
        ],
    ]
    return table(f"HTTP: {CONNECTIONS} connections, medians of the rounds", columns, rows)
