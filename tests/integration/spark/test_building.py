"""Filters are built of Spark's columns by partition, and asked in queries; no key is lost."""

from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bloomery import BloomFilter, errors
from bloomery.integrations import spark as integration
from bloomery.integrations.spark import SparkBloomFilter, building

KEYS = 20_000


@pytest.fixture(scope="module")
def frame(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keys of each type, nulls among them, in six files."""
    folder = tmp_path_factory.mktemp("keys")
    for part in range(6):
        ids = [n if n % 10 else None for n in range(part, KEYS, 6)]
        texts = [None if n is None else f"k\u00e9y {n}" for n in ids]
        table = pa.table(
            {"id": pa.array(ids, pa.int32()), "text": texts, "part": [part] * len(ids)}
        )
        parquet.write_table(table, folder / f"{part}.parquet")
    return spark.read.parquet(str(folder))


IDS = [n for n in range(KEYS) if n % 10]


def test_a_column_becomes_a_filter(frame: Any) -> None:
    """Without a capacity the keys are counted; every key is in, and few others are."""
    filter = integration.build(frame, "id", 0.01)
    assert sum(filter.contains_many(IDS)) == len(IDS)
    assert len(IDS) <= filter.capacity <= 1.25 * len(IDS)
    wrong = sum(filter.contains_many(list(range(KEYS, 2 * KEYS))))
    assert wrong < 0.015 * KEYS


@pytest.mark.parametrize(("few", "some"), [(0, 1 << 30), (0, 0)], ids=["16 groups", "one group"])
def test_large_filters_are_merged_in_tasks(
    frame: Any, few: int, some: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged in a tree, the filter is that of all keys at once, bit for bit."""
    monkeypatch.setattr(building, "FEW", few)
    monkeypatch.setattr(building, "SOME", some)
    filter = integration.build(frame, "text", 0.01, capacity=len(IDS))
    assert filter == BloomFilter.from_keys([f"k\u00e9y {n}" for n in IDS], 0.01)


def test_what_is_no_key_is_refused(spark: Any) -> None:
    """A column of another type is an error that says which to cast to, before a job runs."""
    with pytest.raises(errors.UnsupportedBatch, match="double has no keys: cast it to"):
        integration.build(spark.range(1).selectExpr("cast(id as double) d"), "d")
    with pytest.raises(errors.UnsupportedBatch, match="2 columns are not a batch"):
        integration.build(spark.range(1).selectExpr("id", "id x"), "*")


def test_a_term_of_a_query(spark: Any, frame: Any) -> None:
    """`contains` keeps every row whose key is in the filter, leaves most others out, and takes a
    null for no key; the same with a filter of Spark's own."""
    for filter in (BloomFilter(1000, 0.01), SparkBloomFilter(1000, 0.01)):
        wanted = IDS[:1000]
        filter.update(wanted)
        kept = frame.where(integration.contains("id", filter)).select("id").toArrow().column(0)
        found = set(kept.to_pylist())
        assert found >= set(wanted)
        assert None not in found
        assert len(found) < 1000 + 0.02 * KEYS


def test_a_frame_without_rows(spark: Any) -> None:
    """A filter of nothing is empty."""
    filter = integration.build(spark.range(0), "id", 0.01, capacity=10)
    assert filter.fill_ratio == 0
