"""Exact answers in front of PostgreSQL: a filter, a cache, and only then the database.

A shop: half of what its visitors ask for does not exist. The filter answers those at once, the
cache most of the others; and while the database is down, visitors see what was seen before.
It uses DATABASE_URL, or starts a PostgreSQL; pip install 'bloomery[guard,postgresql]' first.
"""

import glob
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import psycopg

from bloomery import BloomFilter
from bloomery.guard import Guard, LocalCache, SqlSource

PRODUCTS, READS = 20_000, 10_000


@contextmanager
def database() -> Iterator[tuple[str, Callable[[str], None] | None]]:
    """Its URL, and what starts and stops it, if it is ours."""
    if given := os.environ.get("DATABASE_URL"):
        yield given, None
        return
    places = [*glob.glob("/usr/lib/postgresql/*/bin"), os.environ["PATH"]]
    found = shutil.which("initdb", path=os.pathsep.join(places))
    if found is None:
        raise SystemExit("PostgreSQL is missing: install it, or set DATABASE_URL")
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:  # which nobody else can open
        user: list[str] = []
        if os.geteuid() == 0:  # which PostgreSQL refuses
            user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            shutil.chown(folder, "postgres", "postgres")

        def run(program: str, *options: str) -> None:
            command = [*user, str(Path(found).with_name(program)), "-D", f"{folder}/data", *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)

        def control(what: str) -> None:
            options = f"-F -k {folder} -c listen_addresses="
            run("pg_ctl", what, "-w", "-m", "fast", "-l", f"{folder}/log", "-o", options)

        run("initdb", "--auth=trust", "--username=shop", "--no-sync")
        control("start")
        try:
            yield f"postgresql://shop@/postgres?host={folder}", control
        finally:
            control("stop")


def mix(rng: random.Random) -> list[str]:
    """What visitors ask for: few products very often, and as many that do not exist."""
    popular = list(accumulate(1 / rank**1.1 for rank in range(1, PRODUCTS + 1)))
    numbers = rng.choices(range(PRODUCTS), cum_weights=popular, k=READS)
    return [f"{rng.choice(['product', 'no-such'])}-{number}" for number in numbers]


def show(guard: Guard, *keys: str) -> None:
    for key in keys:
        answer = guard.get(key)
        print(f"  {key}: {answer.value or 'not there'} ({answer.by})")


def visit(source: SqlSource, control: Callable[[str], None] | None) -> None:
    seen = BloomFilter(capacity=PRODUCTS, error_rate=0.01)
    for batch in source.batches():
        seen.update(batch)
    print(f"{PRODUCTS:,} products; the filter of their keys takes {seen.nbytes:,} bytes")

    guard = Guard(seen, source, cache=LocalCache(PRODUCTS // 10), ttl=1, on_outage="stale")
    by = Counter(guard.get(key).by for key in mix(random.Random(7)))
    assert guard.info()["queries"] == by["source"] < READS / 3, "most queries are saved"
    print(f"{READS:,} reads, half of them of products that do not exist, were answered by")
    print(f"  the filter {by['filter']:6,}  (a certain no)")
    print(f"  the cache  {by['cache']:6,}")
    print(f"  PostgreSQL {by['source']:6,}")
    guard.add("product-new", "Just in")  # into the filter first: nobody is told a wrong no
    show(guard, "product-new", "product-0")
    if control is None:
        return

    control("stop")
    time.sleep(1)  # until what is in the cache is older than its TTL
    print("PostgreSQL is down:")
    show(guard, "product-0", "no-such-0")
    assert guard.get("product-0").by == "stale"
    control("start")
    while guard.get("product-0").by != "source":
        time.sleep(0.1)
    print("PostgreSQL is back:")
    show(guard, "product-0", "product-1")


def main() -> None:
    with database() as (url, control):
        with psycopg.connect(url) as sql:
            sql.execute("CREATE TABLE shop (key text PRIMARY KEY, title text)")
            numbers = f"generate_series(0, {PRODUCTS - 1}) AS n"
            sql.execute(f"INSERT INTO shop SELECT 'product-' || n, 'Product ' || n FROM {numbers}")
        source = SqlSource(url, table="shop", key="key", value="title")
        try:
            visit(source, control)
        finally:
            source.close()
            with psycopg.connect(url) as sql:
                sql.execute("DROP TABLE shop")


if __name__ == "__main__":
    main()
