"""What runs in Spark's Python workers: filters are filled, merged and asked there.

Workers need bloomery too: what Spark sends them is the names of these functions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bloomery.apps.corpus import TextDeduplicator
from bloomery.apps.corpus.comparison import Comparison
from bloomery.extras import needed
from bloomery.filters.bloom import BloomFilter

with needed("pyarrow", "bloomery.integrations.spark", "spark"):
    import pyarrow as pa

if TYPE_CHECKING:
    from pyspark import Broadcast

PARTS = "part int, filter binary"
_SCHEMA = pa.schema([("part", pa.int32()), ("filter", pa.binary())])

# Filters that this process has made of their bytes, the last used at the end: a worker does many
# tasks, and each of them has many batches.
_KEPT: OrderedDict[str, Any] = OrderedDict()
_MOST_KEPT = 8


def filler(
    capacity: int, error_rate: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what makes a partition's filter of its keys."""

    def fill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        filter = None
        for batch in batches:
            filter = filter or BloomFilter(capacity, error_rate)
            filter.update(batch.column(0), nulls="skip")
        context = TaskContext.get()
        if filter is not None:
            yield _row(context.partitionId() if context else 0, filter)

    return fill


def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make one filter of those of several partitions."""
    merged, part = None, 0
    for batch in batches:
        for number, data in zip(*batch.columns, strict=True):
            filter = BloomFilter.from_bytes(data.as_buffer())
            if merged is None:
                merged, part = filter, number.as_py()
            else:
                merged |= filter
    if merged is not None:
        yield _row(part, merged)


def _row(part: int, filter: BloomFilter) -> pa.RecordBatch:
    return pa.record_batch([[part], [filter.to_bytes()]], schema=_SCHEMA)


def asker(
    kind: type[Any], digest: str, data: bytes | Broadcast[bytes]
) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return what asks a filter for the keys of a column, batch by batch."""

    def ask(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        filter = _cached_filter(kind, digest, data)
        for column in columns:
            yield pa.array(filter.contains_many(column, nulls="skip"), pa.bool_())

    return ask


def text_deduper(
    compared: dict[str, Any],
    capacity: int,
    error_rate: float,
    place: int,
    data: bytes | Broadcast[bytes] | None,
    add: bool,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what removes from one column of a partition's rows the texts that came before."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        against = seen = None
        for batch in batches:
            if seen is None:
                method = Comparison(**compared)
                if data is not None:
                    known = BloomFilter.from_bytes(data if isinstance(data, bytes) else data.value)
                    against = TextDeduplicator.of(method, known)
                seen = TextDeduplicator.of(method, method.filter(capacity, error_rate))
            texts = batch.column(place).to_pylist()
            rows = [row for row, text in enumerate(texts) if text is not None]
            for asked, adds in ((against, False), (seen if add else None, True)):
                if asked is not None:
                    left = asked.dedup([texts[row] for row in rows], add=adds)
                    for row, text in zip(rows, left, strict=True):
                        texts[row] = text
                    rows = [row for row, text in zip(rows, left, strict=True) if text is not None]
            # A null was none before, and stays.
            valid = batch.column(place).is_valid().to_pylist()
            stays = [not had or text is not None for had, text in zip(valid, texts, strict=True)]
            changed = batch.set_column(
                place, batch.schema.field(place), pa.array(texts, batch.schema.field(place).type)
            )
            yield changed.filter(pa.array(stays))

    return work


def _cached_filter(kind: type[Any], digest: str, data: bytes | Broadcast[bytes]) -> Any:
    """The filter of these bytes, made once in a process."""
    if digest not in _KEPT:
        _KEPT[digest] = kind.from_bytes(data if isinstance(data, bytes) else data.value)
    _KEPT.move_to_end(digest)
    while len(_KEPT) > _MOST_KEPT:
        _KEPT.popitem(last=False)
    return _KEPT[digest]
