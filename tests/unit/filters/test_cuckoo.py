"""CuckooFilter: removal and counts, room for what it was made for, and what happens after."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomery
from bloomery import CuckooFilter
from bloomery.errors import (
    FilterFull,
    IncompatibleFilters,
    InvalidParameter,
    ReadOnlyFilter,
    TooManyCopies,
)
from conftest import effort
from unit.filters.colliding import int_of
from unit.filters.together import beside

MOST = {False: 7, True: 14}  # copies of one key, or of two that share a fingerprint
fixed_and_growing = pytest.mark.parametrize("grow", [False, True])

WRONG: list[tuple[str, Any]] = [
    *(("capacity", v) for v in [0, -1, 1.5, math.nan, "9", None, True, 2**41, 10**400]),
    *(("error_rate", v) for v in [0, 1, 0.6, 1e-10, -0.1, math.nan, "x", None, True, []]),
    *(("grow", v) for v in [0, 1, None, "yes", 2.0, np.True_]),
    *(("hasher", v) for v in ["md5", b"xxh3", None]),
    *(("seed", v) for v in [-1, 2**64, 1.5, "0", None]),
]


def full(capacity: int = 500, **options: Any) -> tuple[CuckooFilter, int]:
    """A filter of ints from 0 on that has no room for the one that is returned with it."""
    filter, key = CuckooFilter(capacity, **options), 0
    while True:
        try:
            filter.add(key)
        except FilterFull:
            return filter, key
        key += 1


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: str(v)[:20])
def test_wrong_parameters(name: str, value: Any) -> None:
    """A parameter out of its range is one InvalidParameter that names it and shows the value."""
    with pytest.raises(InvalidParameter) as caught:
        CuckooFilter(**{"capacity": 100, name: value})
    assert name in str(caught.value)
    assert len(str(caught.value)) < 200


@fixed_and_growing
def test_a_key_is_there_as_often_as_it_was_added(grow: bool) -> None:
    """`add` tells whether it was new, `count` how often it is there, `remove` takes one copy."""
    filter = CuckooFilter(1000, 1e-6, grow=grow)
    assert [filter.add("key") for _ in range(3)] == [True, False, False]
    assert (filter.count("key"), filter.count("other"), filter.estimated_count) == (3, 0, 3)
    assert filter.remove("key") is True
    assert "key" in filter
    assert filter.discard("key") is True
    assert filter.remove("key") is True
    assert "key" not in filter
    assert filter.count("key") == filter.estimated_count == 0
    assert filter.discard("key") is False
    with pytest.raises(KeyError) as caught:
        filter.remove("key")
    assert caught.value.args == ("key",)
    assert filter == CuckooFilter(1000, 1e-6, grow=grow)


@fixed_and_growing
@pytest.mark.parametrize("capacity", [1, 5, 20, 1000])
def test_copies_have_a_limit(capacity: int, grow: bool) -> None:
    """One more copy of a key is refused, by itself or in a batch, and nothing has changed."""
    most = MOST[grow]
    filter = CuckooFilter(capacity, 1e-6, grow=grow)
    filter.update(["key"] * most)
    before = filter.copy()
    for add in (filter.add, lambda key: filter.update([key]), lambda key: filter.add_many([key])):
        with pytest.raises(TooManyCopies, match=f"{most} entries match this key") as caught:
            add("key")
        assert caught.value.code == "too-many-copies"
    assert filter == before
    assert filter.count("key") == most
    assert sum(filter.remove_many(["key"] * (most + 2))) == most
    assert filter.estimated_count == 0
    assert "key" not in filter


@pytest.mark.parametrize("error_rate", [0.5, 0.3, 0.1, 0.03, 0.01, 1e-6, 1e-9])
def test_it_holds_what_it_was_made_for(error_rate: float) -> None:
    """As many distinct keys as its capacity find room, in small filters and large, for any seed."""
    for capacity in [*range(1, 80), 100, 150, 250, 500, 1000, 4000, 50_000, 300_000]:
        for seed in range(effort(2, 5, 100) if capacity < 5000 else 1):
            filter = CuckooFilter(capacity, error_rate, seed=seed)
            filter.update(np.arange(capacity))
            assert np.all(filter.contains_many(np.arange(capacity)))
            assert filter.estimated_count == capacity


@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-6])
def test_a_full_one_refuses_and_changes_nothing(error_rate: float) -> None:
    """Without room `add` is FilterFull, which says what to do; all keys are still there, and once
    one of them is removed there is room again."""
    filter, refused = full(error_rate=error_rate)
    before = filter.copy()
    with pytest.raises(
        FilterFull, match=rf"full: {refused} keys, made for 500; .*grow=True"
    ) as caught:
        filter.add(refused)
    assert type(caught.value) is FilterFull
    assert filter == before
    assert filter.estimated_count == refused >= 500
    assert all(filter.contains_many(range(refused)))
    assert 0.9 < filter.fill_ratio <= 1
    for key in range(50):
        filter.remove(key)
    filter.add(refused)
    assert all(filter.contains_many(range(50, refused + 1)))


def batches(keys: range) -> dict[str, Any]:
    """The same keys as every kind of batch."""
    array = np.array(keys)
    arrays = {"int64": array, "int32": array.astype("i4"), "strided": np.repeat(array, 2)[::2]}
    return {"list": list(keys), "tuple": tuple(keys), "iterator": keys, **arrays}


@pytest.mark.parametrize("name", batches(range(1)))
@pytest.mark.parametrize("method", ["update", "add_many"])
def test_a_batch_refused_in_the_middle(method: str, name: str) -> None:
    """The keys of a batch that came before the one refused are in; those after it are not."""
    expected, refused = full(2000, error_rate=1e-6)
    filter = CuckooFilter(2000, 1e-6)
    with pytest.raises(FilterFull):
        getattr(filter, method)(batches(range(refused + 5000))[name])
    assert filter == expected


def test_lines_refused_in_the_middle() -> None:
    """So are the lines of a text that came before the one refused."""
    filter = CuckooFilter(300, 1e-6)
    with pytest.raises(FilterFull):
        filter.add_lines(b"".join(b"line %d\n" % i for i in range(3000)))
    count = filter.estimated_count
    assert 300 <= count < 350
    held = filter.contains_many([f"line {i}" for i in range(3000)])
    assert held == [True] * count + [False] * (3000 - count)


@fixed_and_growing
@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-6])
def test_removing_takes_nothing_else(grow: bool, error_rate: float) -> None:
    """Half of the keys are removed again and again, and others added: the rest is always there."""
    filter, alive = CuckooFilter(4000, error_rate, grow=grow), np.arange(2000)
    filter.update(alive)
    for round in range(effort(10, 30, 300)):
        gone, kept = alive[::2], alive[1::2]
        assert np.all(filter.remove_many(gone))
        assert np.all(filter.contains_many(kept))
        fresh = np.arange(1000) + 10_000 * (round + 1)
        filter.update(fresh)
        alive = np.concatenate([fresh, kept])
        assert np.all(filter.contains_many(alive))
        assert filter.estimated_count == 2000
    assert np.all(filter.remove_many(alive))
    assert filter.estimated_count == 0
    assert filter == CuckooFilter(4000, error_rate, grow=grow)


@pytest.mark.parametrize("error_rate", [0.5, 0.1, 0.01, 1e-9])
def test_growing(error_rate: float) -> None:
    """With `grow=True` it takes far more than its capacity, counts and removes as before."""
    filter = CuckooFilter(3, error_rate, grow=True)
    for key in range(3000):
        filter.add(key)
        filter.add(key)
    assert filter.info()["grow"] is True
    assert filter.estimated_count == 6000
    assert filter.estimated_error_rate <= error_rate
    assert not filter.saturated
    assert all(filter.count(key) >= 2 for key in range(3000))
    assert sum(filter.remove_many(np.arange(0, 3000, 2))) == 1500
    assert all(filter.count(key) >= 1 for key in range(3000))
    assert sum(filter.remove_many(np.arange(3000))) == 3000
    assert all(filter.contains_many(np.arange(1, 3000, 2)))


def test_keys_chosen_to_collide() -> None:
    """Keys made to meet in two buckets are refused when these are full; it does not grow for ever,
    and what it took is there and can be removed."""
    keys = [int_of(0x5A << 56 | (i * 0x9E37 % 512) << 48) for i in range(512)]
    filter, taken = CuckooFilter(1000, grow=True), list[int]()
    for key in keys:
        try:
            filter.add(key)
            taken.append(key)
        except FilterFull:
            continue
    assert 8 <= len(taken) < 64
    assert filter.nbytes < 10_000
    assert all(filter.contains_many(taken))
    assert all(filter.remove_many(taken))
    assert filter.estimated_count == 0


@fixed_and_growing
def test_clearing(grow: bool) -> None:
    """A cleared filter is as it was made."""
    filter = CuckooFilter(100, 0.02, grow=grow, hasher="fnv1a", seed=9)
    filter.update(range(5000 if grow else 100))
    filter.clear()
    assert filter == CuckooFilter(100, 0.02, grow=grow, hasher="fnv1a", seed=9)
    assert filter.add("key")


def test_what_it_shows() -> None:
    """repr and info tell how it was made and how full it is; what grows, what a key takes now."""
    filter = CuckooFilter(1000, 0.001)
    filter.update(range(500))
    assert repr(filter) == (
        f"<CuckooFilter(capacity=1000, error_rate=0.001): ~500 keys, {filter.nbytes:,} bytes>"
    )
    assert filter.info()["bits_per_key"] == 8 * filter.nbytes / 1000
    grown = CuckooFilter(10, grow=True)
    grown.update(range(5000))
    assert "grow=True" in repr(grown)
    assert grown.info()["bits_per_key"] == 8 * grown.nbytes / 5000 < 25


def test_overfull_it_says_so() -> None:
    """Past its capacity a filter that still finds room errs more often, and `saturated` tells."""
    filter, _ = full(20_000)
    assert filter.estimated_count > filter.capacity
    assert filter.saturated == (filter.estimated_error_rate > filter.error_rate)
    roomy = CuckooFilter(20_000)
    roomy.update(np.arange(20_000))
    assert not roomy.saturated
    assert roomy.estimated_error_rate <= 0.01


def test_memory_beside_a_plain_filter() -> None:
    """At 1% it takes 6% more, from 0.3% down less, as its documentation says."""

    def ratio(error_rate: float) -> float:
        plain = bloomery.BloomFilter(1_000_000, error_rate)
        return CuckooFilter(1_000_000, error_rate).nbytes / plain.nbytes

    assert ratio(0.01) == pytest.approx(1.06, abs=0.005)
    rates = [0.003 * 0.9**i for i in range(60)]
    assert max(map(ratio, rates)) < 1


def test_it_cannot_be_merged() -> None:
    """Unions and intersections are refused, and the error says what to do."""
    one, other = CuckooFilter(10), CuckooFilter(2000, grow=True)
    for a, b in ((one, other), (other, one), (one, one.copy()), (one, one)):
        for merge in (a.union, a.intersection, a.__ior__, a.__iand__):
            with pytest.raises(IncompatibleFilters, match="add the keys of both to one"):
                merge(b)
    assert one != other


@fixed_and_growing
def test_saved_and_mapped(tmp_path: Path, grow: bool) -> None:
    """Loaded it counts and removes as before; mapped it counts, and refuses every change."""
    filter, path = CuckooFilter(500, 1e-6, grow=grow), tmp_path / "keys"
    filter.update([*range(400), *range(0, 400, 4)])
    filter.save(path)
    mapped: Any = bloomery.open(path, mmap=True)
    loaded = CuckooFilter.load(path)
    for other in (mapped, loaded):
        assert isinstance(other, CuckooFilter)
        assert other == filter
        assert [other.count(key) for key in range(8)] == [2, 1, 1, 1, 2, 1, 1, 1]
    for change in (mapped.remove, mapped.discard, mapped.add):
        with pytest.raises(ReadOnlyFilter, match="without mmap"):
            change(0)
    assert loaded.remove(0)
    assert (loaded.count(0), filter.count(0), mapped.count(0)) == (1, 2, 2)


@fixed_and_growing
def test_readers_beside_a_writer(grow: bool) -> None:
    """Whoever asks while entries move, come and go, misses no key that stays."""
    stays, passing = np.arange(1000), np.arange(100_000) + 10**6
    for _ in range(effort(2, 5, 100)):
        filter = CuckooFilter(102_000, 0.01, grow=grow)
        filter.update(stays)

        def write(filter: CuckooFilter = filter) -> None:
            for _ in range(3):
                filter.update(passing)
                assert np.all(filter.remove_many(passing))

        def batches(filter: CuckooFilter = filter) -> None:
            assert np.all(filter.contains_many(stays))

        def singles(filter: CuckooFilter = filter) -> None:
            assert all(key in filter for key in range(1000))

        beside(write, batches, singles, filter.info)
        assert filter.estimated_count == 1000


@pytest.mark.parametrize(("copies", "share"), [(1, 1.0), (2, 0.85), (3, 0.6)])
def test_fixed_filter_takes_few_copies_of_all_keys(copies: int, share: float) -> None:
    """Of a million entries as many as the page says, less what chance makes of it."""
    filter = CuckooFilter(1_000_000, 0.01)
    keys = np.repeat(np.arange(1_000_000 // copies), copies)
    with contextlib.suppress(FilterFull):
        filter.update(keys)
    assert filter.estimated_count >= share * 1_000_000 - copies


@pytest.mark.parametrize("capacity", [10, 1000, 100_000])
@pytest.mark.parametrize("copies", [2, 3, 4])
def test_growing_filter_takes_four_copies_of_all_keys(capacity: int, copies: int) -> None:
    """However many keys there are, in twice the memory that keys take that come once."""
    filter, plain = (CuckooFilter(capacity, 0.01, grow=True) for _ in range(2))
    filter.update(np.repeat(np.arange(5 * capacity), copies))
    plain.update(np.arange(5 * capacity * copies))
    assert all(filter.count(key) >= copies for key in range(0, 5 * capacity, 97))
    assert filter.estimated_error_rate <= 0.01
    assert filter.nbytes <= 2 * plain.nbytes + 4096


def test_message_says_that_copies_filled_it() -> None:
    """Who made it for a million is not told to make it larger at some thousand."""
    filter = CuckooFilter(1_000_000, 0.01, grow=True)
    with pytest.raises(FilterFull, match=r"copies .*fill their buckets; .*CountingBloomFilter"):
        filter.update(np.repeat(np.arange(100_000), 7))


@pytest.mark.parametrize("copies", [4, 5, 6, 7])
def test_fixed_filter_reports_entries_of_refused_key(copies: int) -> None:
    """From four copies of every key on it is full early: the message has their number."""
    filter = CuckooFilter(1_000_000, 1e-6)
    keys = np.repeat(np.arange(1_000_000 // copies), copies)
    with pytest.raises(FilterFull) as caught:
        filter.update(keys)
    taken = filter.estimated_count
    assert taken < 800_000  # a load from which on it is called full, and not full of copies
    count = filter.count(int(keys[taken]))
    expected = {0: "copies of other keys fill its buckets", 1: "1 entry matches this key"}
    message = str(caught.value)
    assert expected.get(count, f"{count} entries match this key") in message
    assert f"{taken} of 1000000" in message
    assert "use grow=True for up to 4 copies of every key, or a CountingBloomFilter" in message
