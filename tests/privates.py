"""What tests need of the package that users do not have, each in one place.

The extension's methods check what the package gives them, and nobody else can give them the wrong
thing; a guard's core is what its threads and its event loop share.
"""

from typing import Any, cast

from bloomery import BloomFilter
from bloomery.guard import AsyncGuard, Guard, SqlSource
from bloomery.guard.core import Core


def jvm_of(spark: Any) -> Any:
    """The JVM of a Spark session: Python has no public name for it."""
    return spark._jvm


def java_context_of(spark: Any) -> Any:
    """Its context inside the JVM, which has the scheduler and the status store."""
    return jvm_of(spark).org.apache.spark.SparkContext.getOrCreate()


def java_frame_of(frame: Any) -> Any:
    """A frame of Spark's inside the JVM, which knows its plan."""
    return frame._jdf


def tree_of(store: Any) -> Any:
    """The segments of a SegmentStore."""
    return store._tree


def crawler_of(scheduler: Any) -> Any:
    """The crawler that a scheduler works for."""
    return scheduler._crawler


def queue_of(scheduler: Any) -> Any:
    """The SQLite connection of a scheduler's queue."""
    return scheduler._queue.connection


def connection_of(seen: Any) -> Any:
    """The SQLite connection of a DiskSet."""
    return seen._connection


def bloom_of(*parts: Any) -> BloomFilter:
    """An empty filter of a size that nobody plans: capacity, rate, layout, bits, hashes, lines a
    key, hasher and seed."""
    return BloomFilter._with(*parts)


def open_filter(cls: Any, *parts: Any, **options: Any) -> Any:
    """A filter of a header and a body."""
    return cls._open(*parts, **options)


def hashes_of(filter: Any, key: bytes) -> bytes:
    """What is kept of a key."""
    return cast("bytes", filter._hashes_of(key))


def fold_from(filter: Any, other: Any) -> None:
    """Fold the bits of another filter into this one's."""
    filter._fold_from(other)


def verify(bank: Any) -> None:
    """Raise if anything in a bank contradicts anything else."""
    bank._verify()


def database_of(source: SqlSource) -> Any:
    """The connections of a source to its database."""
    return source._database


def core_of(guard: Guard | AsyncGuard) -> Core:
    """What a guard's threads share."""
    return guard._core


def drainer_of(guard: Guard) -> Any:
    """The thread that drains its queue."""
    thread = guard._drainer.thread
    assert thread is not None
    return thread


def end_drainer(guard: Guard) -> None:
    """End the thread that drains its queue, and nothing else of it."""
    drainer = guard._drainer
    core_of(guard).closing = True
    drainer.stop()
    drainer_of(guard).join()
    core_of(guard).closing = False
