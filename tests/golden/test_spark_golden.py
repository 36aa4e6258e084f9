"""Filters that Spark wrote once are read, and written again as they are."""

from pathlib import Path

import pytest

from bloomery.integrations.spark import SparkBloomFilter
from golden.make_spark import FOLDER, LONGS, TEXTS

FILES = sorted(FOLDER.glob("*.bloom"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_sparks_bytes_are_read_and_written(path: Path) -> None:
    """A filter of Spark's holds every key it was given, one of the same keys has the same bytes,
    and both are written as Spark wrote them."""
    golden = path.read_bytes()
    filter = SparkBloomFilter.from_bytes(golden)
    assert all(key in filter for key in LONGS)
    assert all(text in filter for text in TEXTS)
    built = SparkBloomFilter(20, 0.01, version=filter.version, seed=filter.seed)
    built.update(LONGS)
    built.update(TEXTS)
    assert built.to_bytes() == filter.to_bytes() == golden
    assert len(FILES) == 3
