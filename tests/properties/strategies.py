"""What the property tests draw from: keys of every kind, and filters of every shape."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from bloomery import BloomFilter
from bloomery.types import Hasher, Layout

HASHERS: tuple[Hasher, ...] = ("xxh3", "murmur3", "fnv1a", "siphash")
LAYOUTS: tuple[Layout, ...] = ("blocked", "classic")
# One line a key down to 1e-3, two below; in both layouts from one hash a key to thirty.
RATES = (0.5, 0.3, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-9)
ONE_LINE, TWO_LINES = 0.01, 1e-5

shapes = st.fixed_dictionaries(
    {
        "error_rate": st.sampled_from(RATES),
        "layout": st.sampled_from(LAYOUTS),
        "hasher": st.sampled_from(HASHERS),
        "seed": st.sampled_from([0, 1, 2**64 - 1]),
    }
)

_zones: Any = st.none() | st.integers(-23 * 60, 23 * 60).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
# A day from either end, so that an offset cannot leave the calendar.
_instants = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=_zones)
members = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.binary(max_size=40),
    st.integers(),
    st.integers(-(2**63) - 2, 2**64 + 2),
    st.uuids(),
    _instants,
    st.booleans(),
)  # those that a set can hold as well
simple_keys = st.one_of(
    members,
    st.binary(max_size=8).map(bytearray),
    st.binary(max_size=8).map(lambda raw: memoryview(raw)),
)
lines = st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b"")), max_size=500)
keys = st.one_of(
    simple_keys,
    st.recursive(simple_keys, lambda part: st.tuples(part) | st.tuples(part, part), max_leaves=6),
    st.just(()),
)


def make(shape: dict[str, Any], capacity: int = 200) -> BloomFilter:
    """An empty filter of this shape."""
    return BloomFilter(capacity, **shape)


def through_file(filter: BloomFilter, folder: Path, **how: bool) -> BloomFilter:
    """The filter, saved and loaded again."""
    path = folder / "filter.bloom"
    filter.save(path)
    return BloomFilter.load(path, **how)


def through_pickle(filter: BloomFilter) -> BloomFilter:
    """The filter, pickled and back."""
    out = io.BytesIO()
    pickle.dump(filter, out, protocol=pickle.HIGHEST_PROTOCOL)
    return cast(BloomFilter, pickle.loads(out.getvalue()))


def journeys(folder: Path) -> dict[str, Callable[[BloomFilter], BloomFilter]]:
    """Every way a filter can become another one without losing a key, by name."""

    def empty_like(f: BloomFilter) -> BloomFilter:
        fresh = f.copy()
        fresh.clear()
        return fresh

    def ior(f: BloomFilter) -> BloomFilter:
        fresh = empty_like(f)
        fresh |= f
        return fresh

    return {
        "copy": lambda f: f.copy(),
        "bytes": lambda f: BloomFilter.from_bytes(f.to_bytes()),
        "pickle": through_pickle,
        "load": lambda f: through_file(f, folder),
        "mmap": lambda f: through_file(f, folder, mmap=True),
        "mmap-writable": lambda f: through_file(f, folder, mmap=True, writable=True),
        "or": lambda f: f | empty_like(f),
        "ror": lambda f: empty_like(f) | f,
        "ior": ior,
        "and": lambda f: f & f.copy(),
        "fold": lambda f: f.fold(),
    }
