"""The filter of a segment: the smaller of two kinds, saved, and opened to be asked with others.

All keys of a segment are known, so a static filter (8.0 bits a key at 1%, and it errs 0.78% of the
time) beats the plain one (9.9 bits) from some thousand keys on; of fewer keys it wastes more than
it saves. Both were measured: docs/decisions/0038-segments.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.filters import BloomFilter, StaticFilter
from bloomery.sizing import check_error_rate

# From so many keys on the plain filter is larger at any rate, and need not be tried.
_ALWAYS_STATIC = 50_000


def check_fp_chance(fp_chance: float | str) -> float:
    """Return the rate as a float; InvalidParameter unless it is between 0 and 1."""
    try:
        return check_error_rate(fp_chance)
    except InvalidParameter as problem:
        raise InvalidParameter(str(problem).replace("error_rate", "fp_chance")) from None


def build(keys: Callable[[], Any], fp_chance: float) -> tuple[bytes, int]:
    """Return the saved filter of these keys and how many distinct ones there are.

    The keys are asked for once or twice, each time as a batch.
    """
    static = StaticFilter.build(keys(), fp_chance)
    count = static.capacity
    if count < _ALWAYS_STATIC:
        plain = BloomFilter(count, fp_chance)
        if plain.nbytes <= static.nbytes:  # of very few keys it hardly errs: a line is the least
            plain.update(keys())
            return plain.to_bytes(), count
    return static.to_bytes(), count


def open_saved(data: bytes) -> _native.Pack:
    """Open a saved filter in memory of its own; CorruptData if it is none."""
    memory = mmap.mmap(-1, max(64, -(-len(data) // 64) * 64))  # which begins with a page, as needed
    memory.write(data)
    return _native.Pack(memory, [0], True)
