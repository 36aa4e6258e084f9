"""What Spark's Python workers do, without Spark."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from bloomery import BloomFilter
from bloomery.integrations.spark import worker


class Counted(BloomFilter):
    """Counts how often one is made of its bytes."""

    made = 0

    @classmethod
    def from_bytes(cls, data: Any) -> Any:
        """Make it, and count it."""
        cls.made += 1
        return super().from_bytes(data)


@pytest.mark.parametrize("tasks", [1, 5])
def test_a_filter_is_made_once_for_all_batches_and_tasks(tasks: int) -> None:
    """A process makes a filter of its bytes once, however many batches and tasks ask it."""
    filter = BloomFilter.from_keys(range(100), 0.01)
    Counted.made = 0
    for _ in range(tasks):
        ask = worker.asker(Counted, f"{tasks} tasks", filter.to_bytes())
        batches: Iterator[Any] = iter([pa.array([1, None, 50]), pa.array([10**9], pa.int32())])
        assert [answer.to_pylist() for answer in ask(batches)] == [[True, False, True], [False]]
    assert Counted.made == 1


def test_partitions_are_filled_and_merged() -> None:
    """The filters of two partitions, merged, are that of all keys; one without rows has none."""
    fill = worker.filler(100, 0.01)
    parts = [pa.record_batch({"key": pa.array(keys)}) for keys in ([1, None, 2], [3])]
    rows = [row for part in parts for row in fill(iter([part]))]
    assert list(fill(iter([]))) == []
    (merged,) = worker.merge(iter(rows))
    filter = BloomFilter.from_bytes(merged.column("filter")[0].as_buffer())
    expected = BloomFilter(100, 0.01)
    expected.update([1, 2, 3])
    assert filter == expected
