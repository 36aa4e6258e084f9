"""Compaction by size tiers: several segments of about one size become one.

Only neighbours in age are merged: of two values of a key the one in the newer segment counts, and
the order of segments is all that says which is newer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from bloomery.segments.store.wal import Entry

_AgedEntry: TypeAlias = tuple[bytes, int, bytes | None]

# Of one tier are neighbours whose sizes are within this factor of the mean, as Cassandra has it.
_LOW, _HIGH = 0.5, 1.5
# All that is smaller counts as this large: it costs hardly more to merge.
_SMALL = 1 << 20


def next_tier(sizes: Sequence[int], threshold: int) -> range | None:
    """Return which segments to merge next, by the sizes of all, newest first; None if none."""
    start = 0
    while start < len(sizes):
        end, total = start, 0
        while end < len(sizes):
            size = max(sizes[end], _SMALL)
            mean = total / (end - start) if total else size
            if not _LOW * mean <= size <= _HIGH * mean:
                break
            total += size
            end += 1
        if end - start >= threshold:
            return range(start, end)
        start = end
    return None


def merge(newest_first: Sequence[Iterable[Entry]], *, keep_deletions: bool) -> Iterator[Entry]:
    """Yield every key once, in order, with its newest value."""
    streams = (_aged(entries, age) for age, entries in enumerate(newest_first))
    last = None
    for key, _, value in heapq.merge(*streams):
        if key != last:
            last = key
            if value is not None or keep_deletions:
                yield key, value


def _aged(entries: Iterable[Entry], age: int) -> Iterator[_AgedEntry]:
    for key, value in entries:
        yield key, age, value
