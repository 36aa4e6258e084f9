"""What all of it is measured on: a PostgreSQL of so many rows, a Redis, a filter, a read mix."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from benchmarks.keys import present_and_absent
from benchmarks.service import servers
from benchmarks.settings import Settings
from benchmarks.timing import progress
from bloomery import BloomFilter
from bloomery.guard import SqlSource

ERROR_RATE = 0.01
EXPONENT = 1.1  # of Zipf's law
SEED = 6


class Stage:
    """The database, the cache server and the keys; those of the filter are those of the table."""

    def __init__(self, url: str, redis_url: str, keys: int) -> None:
        self.url, self.redis_url = url, redis_url
        self.present, self.absent = (k.fresh() for k in present_and_absent("str", keys, keys))
        self._connection = psycopg.connect(url, autocommit=True)
        self._fill()
        self.filter = BloomFilter(keys, ERROR_RATE)
        self.filter.update(self.present)

    def _fill(self) -> None:
        progress.step(f"guard: a table of {len(self.present):,} rows")
        sql = self._connection.execute
        sql("CREATE TABLE pages (url text PRIMARY KEY, title text NOT NULL)")
        with self._connection.cursor().copy("COPY pages FROM STDIN") as rows:
            for number, key in enumerate(self.present):
                rows.write_row((key, f"The page with the number {number}"))
        sql("VACUUM (ANALYZE) pages")

    def source(self) -> Counted:
        """The table, with its own connections."""
        return Counted(lambda: SqlSource(self.url, table="pages", key="url", value="title"))

    def looked_up(self) -> tuple[int, int]:
        """How many keys the server looked up in the table's index so far, and how many transactions
        it did. Each of its processes tells what it did when it ends: so no source is open now."""
        one = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        while self._number(one) > 1:
            time.sleep(0.02)
        keys = self._number("SELECT idx_scan FROM pg_stat_user_tables WHERE relname = 'pages'")
        sums = "SELECT xact_commit + xact_rollback FROM pg_stat_database"
        return keys, self._number(f"{sums} WHERE datname = current_database()")

    def _number(self, sql: str) -> int:
        row = self._connection.execute(sql).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


class Counted:
    """A source that counts the keys it is asked for."""

    def __init__(self, made: Callable[[], SqlSource]) -> None:
        self._made, self._source = made, made()
        self.keys: list[Any] = []
        self.queries = 0

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        self.queries += 1
        self.keys += keys
        return self._source.get_many(keys)

    def close(self) -> None:
        """Let go of the connections; whoever asks again gets new ones."""
        self._source.close()
        self._source = self._made()


class Mix:
    """Zipf's law over as many keys that are there as not: of either kind the popular ones stand at
    random places, and each read is of one kind or the other with the same probability."""

    def __init__(self, stage: Stage) -> None:
        self._random = np.random.default_rng(SEED)
        self._kinds = (stage.present, stage.absent)
        keys = len(stage.present)
        self.weights = np.arange(1, keys + 1, dtype=np.float64) ** -EXPONENT
        self.weights /= self.weights.sum()
        self._sums = np.cumsum(self.weights)
        self._order = [self._random.permutation(keys) for _ in self._kinds]

    def reads(self, count: int) -> list[str]:
        """The next ones."""
        ranks = np.minimum(
            np.searchsorted(self._sums, self._random.random(count)), len(self._sums) - 1
        )
        kinds = self._random.integers(0, 2, count)
        places = np.where(kinds == 0, self._order[0][ranks], self._order[1][ranks])
        return [
            self._kinds[kind][at] for kind, at in zip(kinds.tolist(), places.tolist(), strict=True)
        ]

    def shuffled(self, wrong: npt.NDArray[np.bool_], times: int) -> npt.NDArray[np.float64]:
        """The share of the reads of absent keys that are of `wrong` ones, for so many other orders
        of popularity."""
        shares = [self.weights[self._random.permutation(wrong)].sum() for _ in range(times)]
        return np.array(shares)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL that runs; its data is in the folder."""
    # The tests' own server: how PostgreSQL is made and started is written once.
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from integration.servers import PostgresServer

    folder.chmod(0o755)  # PostgreSQL may run as another user
    (folder / "postgres").mkdir()
    database = PostgresServer(folder / "postgres")
    database.start()
    try:
        yield database.url("postgres")
    finally:
        database.stop()


@contextlib.contextmanager
def stage(settings: Settings) -> Iterator[Stage]:
    """All of it, running."""
    servers.check_tools()
    with (
        servers.scratch() as folder,
        postgres(folder) as url,
        servers.redis(folder) as redis,
    ):
        there = Stage(url, f"redis://127.0.0.1:{redis.port}/0", settings.guard_keys)
        try:
            yield there
        finally:
            there.close()
