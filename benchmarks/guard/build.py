"""`bloomery build` from PostgreSQL beside just fetching the rows, by the same cursor.

    python -m benchmarks.guard.build postgresql://user@host/database

The database is given a table of URLs, which is dropped again. Each way is run in turns, three
times, and the best of each counts: whatever else the machine does only ever slows one down.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.timing import quiet

ROWS = 500_000
ROUNDS = 3
BATCH = 10_000
TABLE = "bloomery_bench_build"
PLAIN = f"SELECT url FROM {TABLE}"
ORDERED = f"SELECT url, id FROM {TABLE} ORDER BY id"


def fetch(url: str, query: str) -> None:
    """The rows, thrown away: what nobody who reads them can be faster than."""
    import psycopg

    with psycopg.connect(url) as connection, connection.cursor("bench") as cursor:
        cursor.execute(query)
        while cursor.fetchmany(BATCH):
            pass


def build(url: str, out: Path, **options: Any) -> None:
    """The same rows into a filter file; the capacity is given, as counting is no fetching."""
    from bloomery import building

    rows = building.open_rows(url, **options)
    try:
        building.build(rows, out, capacity=ROWS)
    finally:
        rows.close()


def _best(ways: dict[str, Callable[[], None]]) -> dict[str, float]:
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            with quiet():
                started = time.perf_counter()
                way()
                best[name] = min(best[name], time.perf_counter() - started)
    return best


def run(url: str) -> dict[str, float]:
    """Seconds of each way, and how fast building is beside fetching: 0.8 or more."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        connection.execute(
            f"CREATE TABLE {TABLE} AS SELECT i AS id, 'https://example.org/' || md5(i::text) AS url"
            f" FROM generate_series(1, {ROWS}) AS i"
        )
        connection.execute(f"ALTER TABLE {TABLE} ADD PRIMARY KEY (id)")
        connection.execute(f"ANALYZE {TABLE}")
        try:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "seen.bloom"
                best = _best(
                    {
                        "fetch": lambda: fetch(url, PLAIN),
                        "build": lambda: build(url, out, query=PLAIN),
                        "fetch_ordered": lambda: fetch(url, ORDERED),
                        "build_ordered": lambda: build(url, out, table=TABLE, columns=["url"]),
                    }
                )
        finally:
            connection.execute(f"DROP TABLE {TABLE}")
    return {
        **best,
        "ratio": best["fetch"] / best["build"],
        "ratio_ordered": best["fetch_ordered"] / best["build_ordered"],
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1]), indent=2))
