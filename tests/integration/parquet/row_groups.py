"""Parquet files whose row groups only a filter can tell apart, for the engines that read them."""

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np

from bloomery.integrations.parquet import add_bloom
from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")

ROW_GROUPS, ROWS = 20, 500
WANTED = 4242  # among the ids
PLAIN = ["id", "small", "name", "x", "price", "day", "moment", "raw"]


def write_files(folder: Path) -> dict[str, Path]:
    """A file of many row groups, in none of which an id is out of range, and the same with filters.
    There are no dictionaries, by which engines could skip as well."""
    ids = np.random.default_rng(3).permutation(ROW_GROUPS * ROWS)
    first = datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp()
    columns = {
        "id": pa.array(ids, pa.int64()),
        "small": pa.array(ids, pa.int32()),
        "name": pa.array([f"user-{i}" for i in ids]),
        "x": pa.array(ids / 8),
        "price": pa.array([Decimal(int(i)).scaleb(-2) for i in ids], pa.decimal128(9, 2)),
        "day": pa.array(ids, pa.int32()).cast(pa.date32()),
        "moment": pa.array((ids + int(first)) * 1_000_000).cast(pa.timestamp("us", "UTC")),
        "raw": pa.array([b"raw-%d" % i for i in ids]),
    }
    plain = folder / "plain.parquet"
    pq.write_table(pa.table(columns), plain, row_group_size=ROWS, use_dictionary=False)
    add_bloom(plain, PLAIN, 1e-4, out=folder / "filtered.parquet")
    return {"plain": plain, "filtered": folder / "filtered.parquet"}


CONDITIONS = {
    "id": f"id = {WANTED}",
    "small": f"small = {WANTED}",
    "name": f"name = 'user-{WANTED}'",
    "x": f"x = cast({WANTED / 8} AS double)",
    "price": f"price = cast({WANTED / 100} AS decimal(9, 2))",
    "day": f"day = DATE '{np.datetime64(WANTED, 'D')}'",
    "moment": "moment = TIMESTAMP '2024-01-01 01:10:42+00:00'",
}
