"""StaticFilter: built of all keys at once, it holds each of them and changes no more."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomery
from bloomery import StaticFilter
from bloomery.errors import (
    IncompatibleFilters,
    InvalidParameter,
    NotEnoughMemory,
    ReadOnlyFilter,
)
from bloomery.storage import memory
from unit.filters.colliding import int_of

WRONG: list[tuple[str, Any]] = [
    *(("error_rate", v) for v in [0, 1, 0.6, 2**-33, -0.1, math.nan, "x", None, True, []]),
    *(("hasher", v) for v in ["md5", b"xxh3", None]),
    *(("seed", v) for v in [-1, 2**64, 1.5, "0", None]),
    *(("nulls", v) for v in ["keep", ""]),
]


def has_all(filter: StaticFilter, keys: Any) -> bool:
    """Does it hold each of these?"""
    return bool(np.all(filter.contains_many(keys)))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 100, 1000, 100_000])
def test_every_key_is_there(count: int) -> None:
    """However many keys there are, it holds them, and knows their number."""
    filter = StaticFilter.build(range(count), 0.001)
    assert has_all(filter, range(count))
    assert all(key in filter for key in range(min(count, 1000)))
    assert filter.estimated_count == count
    assert filter.capacity == max(1, count)


def test_without_keys_it_holds_nothing() -> None:
    """A filter of no keys never says maybe."""
    empty = StaticFilter.build([], 0.5)
    assert "" not in empty
    assert not any(empty.contains_many(range(1000)))
    assert not np.any(empty.contains_many(np.arange(1000)))
    assert (empty.estimated_error_rate, empty.fill_ratio, empty.saturated) == (0, 0, False)
    assert StaticFilter.from_bytes(empty.to_bytes()) == empty


def test_order_and_copies_do_not_matter() -> None:
    """The same keys make the same bytes, whatever their order and however often each comes."""
    keys = [f"key {n}" for n in range(500)]
    filter = StaticFilter.build(keys)
    assert StaticFilter.build(keys[::-1]) == filter
    assert StaticFilter.build(keys * 3) == filter
    assert StaticFilter.build(iter(keys)) == filter
    assert StaticFilter.build(np.array(keys)) == filter
    assert StaticFilter.build(["same"] * 10_000).estimated_count == 1


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_a_million_keys_are_small(bits: int) -> None:
    """A million keys take at most 1.13 bits for each bit of log2(1 / rate), header included."""
    filter = StaticFilter.build(np.arange(10**6), 2.0**-bits)
    assert 8 * len(filter.to_bytes()) <= 1.13 * bits * 10**6
    assert has_all(filter, np.arange(10**6))


@pytest.mark.parametrize(
    ("error_rate", "bits"), [(0.5, 1), (0.3, 2), (0.01, 7), (0.001, 10), (1e-9, 30), (2**-32, 32)]
)
def test_fingerprints_keep_the_error_rate(error_rate: float, bits: int) -> None:
    """As many bits as are needed, and no more."""
    filter = StaticFilter.build(range(50), error_rate)
    info = filter.info()
    assert info["fingerprint_bits"] == bits
    assert filter.estimated_error_rate == 0.5**bits <= error_rate
    assert (filter.error_rate, filter.num_hashes, filter.lines_per_key) == (error_rate, 3, 0)
    assert info["bits_per_key"] == 8 * filter.nbytes / 50


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: str(v)[:20])
def test_wrong_parameters(name: str, value: Any) -> None:
    """A parameter out of its range is one InvalidParameter that names it."""
    with pytest.raises(InvalidParameter, match=name):
        StaticFilter.build([1, 2], **{name: value})


def test_there_is_no_empty_one() -> None:
    """The class itself makes none, and says what does."""
    with pytest.raises(InvalidParameter, match=r"StaticFilter\.build\(keys"):
        StaticFilter(1000, 0.01)


@pytest.mark.parametrize("keys", [[1.5], [None], "text", b"bytes", 5, np.array([1.5])], ids=repr)
def test_what_is_no_batch_of_keys(keys: Any) -> None:
    """What cannot be keys is refused."""
    with pytest.raises((TypeError, ValueError)):
        StaticFilter.build(keys)


def test_nulls() -> None:
    """Nulls are refused, or skipped if so wished."""
    keys: Any = ["a", None, "b"]
    assert StaticFilter.build(keys, nulls="skip") == StaticFilter.build(["a", "b"])


def test_too_many_keys_for_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the memory for building is taken, it is asked whether there is so much."""
    monkeypatch.setattr(memory, "available", lambda: 10**6)
    with pytest.raises(NotEnoughMemory, match="fewer keys"):
        StaticFilter.build(range(10**7))


def test_it_cannot_be_changed() -> None:
    """What would change it is refused with what to do instead, and leaves it as it was."""
    filter = StaticFilter.build(range(100))
    before = filter.copy()
    changes: list[Callable[[], object]] = [
        lambda: filter.add(1),
        lambda: filter.add_many([1, 2]),
        lambda: filter.add_many(np.arange(10_000)),
        lambda: filter.update([3]),
        lambda: filter.add_lines(b"a\n"),
        lambda: filter.clear(),
    ]
    for change in changes:
        with pytest.raises(ReadOnlyFilter, match="build a new one"):
            change()
    assert filter == before


def test_two_cannot_be_merged() -> None:
    """Union and intersection are refused with what to do instead."""
    a, b = StaticFilter.build(range(10)), StaticFilter.build(range(5, 15))
    for merge in (a.union, a.intersection, a.__or__, a.__and__, a.__ior__, a.__iand__):
        with pytest.raises(IncompatibleFilters, match="keys of both"):
            merge(b)


def test_it_goes_through_every_door(tmp_path: Path) -> None:
    """Saved, mapped, pickled and copied it gives the same answers."""
    filter = StaticFilter.build(range(5000), 0.01, hasher="siphash", seed=2**100)
    path = tmp_path / "static.bloom"
    filter.save(path)
    asked = np.arange(100_000)
    answers = list(filter.contains_many(asked))
    for other in (
        StaticFilter.load(path),
        StaticFilter.load(path, mmap=True),
        bloomery.open(path),
        bloomery.open(path, mmap=True),
        pickle.loads(pickle.dumps(filter)),
        StaticFilter.from_bytes(filter.to_bytes()),
        filter.copy(),
    ):
        assert isinstance(other, StaticFilter)
        assert other == filter
        assert list(other.contains_many(asked)) == answers
        assert list(other.contains_many(asked, threads=2)) == answers
    with pytest.raises(InvalidParameter, match="writable"):
        StaticFilter.load(path, mmap=True, writable=True)


def test_one_by_one_and_in_batches_the_same() -> None:
    """Lists, arrays of any length and lines are answered as their keys are, one by one."""
    for seed in range(40):  # some of which need a second attempt
        filter = StaticFilter.build(range(100, 200), 0.2, seed=seed)
        for count in (0, 1, 3, 4, 5, 63, 255, 256, 257, 600):
            one_by_one = [key in filter for key in range(count)]
            assert filter.contains_many(range(count)) == one_by_one
            assert list(filter.contains_many(np.arange(count))) == one_by_one


@pytest.mark.parametrize("low", [0, 36])
def test_keys_whose_hashes_were_chosen(low: int) -> None:
    """Ints whose hashes share all their high or all their low bits are found too."""
    keys = np.array([int_of(n << low) for n in range(3000)])
    filter = StaticFilter.build(keys, 0.001)
    assert has_all(filter, keys)
    assert np.count_nonzero(filter.contains_many(np.arange(10**6, 10**6 + 50_000))) < 100


def test_repr_and_info() -> None:
    """They show what it was built with and how much it holds."""
    filter = StaticFilter.build(range(1000), 0.01, seed=5)
    assert repr(filter).startswith("<StaticFilter(capacity=1000, error_rate=0.01, seed=5): ~1,000")
    info = filter.info()
    assert (info["kind"], info["estimated_count"], info["saturated"]) == ("static", 1000, False)
