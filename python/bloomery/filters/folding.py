"""Which smaller sizes a filter can be folded to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bloomery import sizing

if TYPE_CHECKING:
    from bloomery.filters.bloom import BloomFilter

# A fold that errs a little too often is tried again this much larger.
_STEP = 1.03


def smaller_sizes(filter: BloomFilter) -> Iterator[int]:
    """Yield numbers of bits to try, the smallest first, all below the filter's own."""
    unit = 1 if filter.layout == "classic" else sizing.LINE_BITS
    old = filter.num_bits // unit
    need = _places_needed(filter, max(1, filter.estimated_count), unit, old)
    # Memory comes in lines: fewer bits than one holds save nothing, and a classic filter of a few
    # dozen bits has too few places for its probes to be independent.
    need = max(need, sizing.LINE_BITS // unit)
    if need >= old:
        return
    # A size that divides the old one folds exactly; another lets each new place share a boundary
    # with its neighbour, which costs the load of one old place more: new = need * (1 + new / old).
    # From 64 parts on that is so little that the size needed may do as it is.
    sizes = {old // by for by in range(2, min(old // need, 64) + 1) if old % by == 0}
    if need * 64 <= old:
        sizes.add(need)
    shared = need / (1 - need / old)
    while shared < old - 1:
        sizes.add(int(shared) + 1)
        shared = max(shared * _STEP, shared + 1)
    for size in sorted(sizes):
        yield size * unit


def _places_needed(filter: BloomFilter, count: int, unit: int, most: int) -> int:
    """Return the fewest lines (classic: bits) that hold `count` keys within the error rate."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        shape = (middle * unit, filter.num_hashes, filter.lines_per_key)
        if sizing.capacity_for(*shape, filter.error_rate, filter.layout) >= count:
            high = middle
        else:
            low = middle + 1
    return low
