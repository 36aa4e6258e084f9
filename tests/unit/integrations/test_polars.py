"""A filter as a term of a Polars query answers as `contains_many` does, or the query fails."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from bloomery import BloomFilter
from bloomery.errors import UnsupportedBatch
from conftest import require
from unit.kinds import KEYS, every_kind, made

pl = require("polars")

from bloomery.integrations.polars import contains  # noqa: E402 (polars may be missing)

U = UUID("12345678-1234-5678-1234-567812345678")
ENGINES = ["in-memory", "streaming"]


def new(*keys: Any) -> BloomFilter:
    """A filter with these keys and next to no wrong maybes."""
    return BloomFilter.from_keys(list(keys), error_rate=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_of_a_lazy_query(engine: str) -> None:
    """A lazy query keeps exactly the rows whose keys were added, by either engine."""
    ids = np.arange(300_000)
    seen = BloomFilter.from_keys(ids[::3], error_rate=1e-9)
    frame = pl.LazyFrame({"id": ids, "x": ids})
    kept = frame.filter(contains(pl.col("id"), seen) & (pl.col("x") < 100_000)).select("id")
    assert kept.collect(engine=engine)["id"].to_list() == list(range(0, 100_000, 3))


def test_scan_of_a_file(tmp_path: Path) -> None:
    """The term works where a file is scanned."""
    pl.DataFrame({"id": list(range(1000))}).write_parquet(tmp_path / "a.parquet")
    found = pl.scan_parquet(tmp_path / "a.parquet").filter(contains("id", new(5, 700))).collect()
    assert found["id"].to_list() == [5, 700]


@pytest.mark.parametrize(
    ("column", "added"),
    [
        *((pl.Series([1, 2, 3], dtype=getattr(pl, f"{u}Int{bits}")), 2)
          for u in ("", "U") for bits in (8, 16, 32, 64)),
        (pl.Series([0, 2**64 - 1], dtype=pl.UInt64), 2**64 - 1),
        (pl.Series(["a", "żelazo", "c" * 40]), "żelazo"),
        (pl.Series(["a", "b", "c" * 40]), "c" * 40),
        (pl.Series([b"a", b"\xff"]), b"\xff"),
        (pl.Series(["a", "b", "a"], dtype=pl.Categorical), "b"),
        (pl.Series(["a", "b", "a"], dtype=pl.Enum(["a", "b", "c"])), "b"),
        (pl.Series([U, "text"], dtype=pl.Object), U),
    ],
    ids=lambda case: str(case.dtype) if isinstance(case, pl.Series) else "",
)  # fmt: skip
def test_keys_of_each_type(column: Any, added: Any) -> None:
    """What was added by itself is there in a column of each type, and nothing else is."""
    answers = pl.DataFrame({"key": column}).select(contains("key", new(added)))["key"]
    assert answers.dtype == pl.Boolean
    assert answers.to_list() == [value == added for value in column.to_list()]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "column",
    [
        pl.Series([1.0, 2.0]),
        pl.Series([True, False]),
        pl.Series([date(2024, 1, 1)]),
        pl.Series([datetime(2024, 1, 1)]),
        pl.Series(["1.50"]).str.to_decimal(scale=2),
        pl.Series([[1]]),
        pl.Series([{"a": 1, "b": 2}]),
        pl.Series([1], dtype=pl.Int128),
    ],
    ids=lambda column: str(column.dtype),
)
def test_no_keys(column: Any, engine: str) -> None:
    """A column whose rows are no keys fails the query, with the library's own error."""
    frame = pl.LazyFrame({"key": column})
    with pytest.raises(UnsupportedBatch, match="is not a batch of keys"):
        frame.filter(contains("key", new(1))).collect(engine=engine)


def test_null_is_null() -> None:
    """A null is no key: its answer is null, so that a filter drops it, and so does its negation."""
    frame = pl.DataFrame({"id": [1, None, 3, None]})
    assert frame.select(contains("id", new(3)))["id"].to_list() == [False, None, True, None]
    assert frame.filter(~contains("id", new(3)))["id"].to_list() == [1]
    nothing = pl.DataFrame({"id": pl.Series([None, None], dtype=pl.Int64)})
    assert nothing.select(contains("id", new(3)))["id"].to_list() == [None, None]


def test_places_of_a_term() -> None:
    """It stands wherever an expression may: several columns, literals, groups, no rows at all."""
    frame = pl.DataFrame({"a": [1, 2], "b": [2, 3]})
    assert frame.select(contains(pl.col("a", "b"), new(2))).rows() == [(False, True), (True, False)]
    assert frame.select(contains(pl.lit(2), new(2))).item() is True
    grouped = frame.group_by("a", maintain_order=True).agg(contains("b", new(2)).sum())
    assert grouped["b"].to_list() == [1, 0]
    assert frame.clear().filter(contains("a", new(2))).height == 0


@every_kind
def test_every_kind(kind: str) -> None:
    """Any filter that answers for batches is a term."""
    frame = pl.DataFrame({"id": ["another", KEYS[7], None]})
    assert frame.select(contains("id", made(kind)))["id"].to_list() == [False, True, None]


def test_mapped_file(tmp_path: Path) -> None:
    """A filter in a mapped file is a term too."""
    new(7).save(tmp_path / "seen.bloom")
    mapped = BloomFilter.load(tmp_path / "seen.bloom", mmap=True)
    assert pl.DataFrame({"id": [6, 7]}).filter(contains("id", mapped)).height == 1
