"""What is asked of Spark without PySpark names the extra that brings it."""

import sys
from typing import Any

import pytest

from bloomery import BloomFilter, errors
from bloomery.integrations.spark import SparkBloomFilter, bloom_join, build, contains


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that need PySpark say what to install; Spark's own filter needs none."""
    for module in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    frame: Any = object()
    for use in (
        lambda: build(frame, "key"),
        lambda: contains("key", BloomFilter(10)),
        lambda: bloom_join(frame, frame, "key"),
    ):
        with pytest.raises(errors.MissingExtra, match=r"pip install 'bloomery\[spark\]'"):
            use()
    assert 1 not in SparkBloomFilter(10)
