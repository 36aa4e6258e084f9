"""CountingBloomFilter: counts, removals, counters that are full, and merging."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from bloomery import CountingBloomFilter, sizing
from bloomery.errors import IncompatibleFilters, InvalidParameter

both_widths = pytest.mark.parametrize("bits", [4, 8])


def filled(keys: Any, bits: int = 4, **options: Any) -> CountingBloomFilter:
    """A roomy filter that holds these keys."""
    filter = CountingBloomFilter(10_000, 1e-4, counter_bits=bits, **options)
    filter.update(keys)
    return filter


def saturated(filter: CountingBloomFilter) -> int:
    return int(filter.info()["saturated_counters"])


@pytest.mark.parametrize("error_rate", [0.1, 0.01, 1e-4])
@both_widths
def test_it_is_made_as_planned(bits: int, error_rate: float) -> None:
    """A filter's figures are those of its plan, and what it was asked for."""
    filter = CountingBloomFilter(12_345, error_rate, counter_bits=bits, hasher="murmur3", seed=7)
    plan = sizing.counting_plan(12_345, error_rate, counter_bits=bits)
    for name in ("capacity", "error_rate", "num_bits", "num_hashes", "lines_per_key", "nbytes"):
        assert getattr(filter, name) == getattr(plan, name), name
    assert filter.counter_bits == filter.info()["counter_bits"] == bits
    assert (filter.hasher, filter.seed) == ("murmur3", 7)
    assert "counter_bits" in repr(filter) or bits == 4


@both_widths
def test_counts(bits: int) -> None:
    """A key is new once; its count goes up with each addition and down with each removal."""
    filter = CountingBloomFilter(1000, 1e-6, counter_bits=bits)
    assert filter.add("a") is True
    assert filter.add("a") is False
    assert filter.count("a") == 2
    assert filter.count("b") == 0
    assert filter.remove("a") is True
    assert filter.count("a") == 1
    assert filter.discard("a") is True
    assert "a" not in filter
    assert filter.fill_ratio == 0
    with pytest.raises(KeyError, match="a"):
        filter.remove("a")


@both_widths
def test_a_full_filter_counts_no_key_too_low(bits: int) -> None:
    """At full capacity every count is at least the truth, and for most keys it is the truth."""
    filter = CountingBloomFilter(20_000, 0.01, counter_bits=bits)
    times = Counter({key: 1 + key % 4 for key in range(20_000)})
    for _ in range(4):
        filter.update(list(times))
        times -= Counter(times.keys())
        times += Counter()
    counts = [filter.count(key) for key in range(20_000)]
    assert all(count >= 1 + key % 4 for key, count in enumerate(counts))
    exact = sum(count == 1 + key % 4 for key, count in enumerate(counts))
    assert exact > 0.95 * 20_000


@both_widths
def test_what_is_removed_leaves_no_trace(bits: int) -> None:
    """Keys added and removed again leave the filter as it was, byte for byte."""
    filter = filled(np.arange(5000), bits)
    before = filter.copy()
    filter.update(np.arange(10_000, 14_000))
    assert filter != before
    assert np.all(filter.remove_many(np.arange(10_000, 14_000)))
    assert filter == before


@both_widths
def test_full_counters_stay(bits: int) -> None:
    """A counter that reached its maximum is never counted down, and `info` tells how many there
    are; no other key is lost by it."""
    most = 2**bits - 1
    filter = filled(range(5000), bits)
    assert saturated(filter) == 0
    for _ in range(most + 5):
        filter.add("often")
    assert filter.count("often") == most
    assert 0 < saturated(filter) <= filter.num_hashes
    assert filter.remove("often") is False, "not taken out"
    assert filter.discard("often") is False
    assert filter.count("often") == most
    assert np.all(filter.remove_many(list(range(5000))))
    assert "often" in filter
    filter.clear()
    assert saturated(filter) == 0


def test_one_below_full_comes_down() -> None:
    """A counter that has not quite reached its maximum counts down again."""
    filter = CountingBloomFilter(100, 1e-6)
    for _ in range(14):
        filter.add("key")
    assert filter.count("key") == 14
    for _ in range(14):
        assert filter.remove("key")
    assert filter.fill_ratio == 0


@both_widths
def test_union_adds_counts_up(bits: int) -> None:
    """In a union a key is there as often as in both together."""
    one, two = filled([*range(100), "a", "a"], bits), filled([*range(50, 150), "a"], bits)
    union = one | two
    assert (union.count("a"), one.count("a")) == (3, 2)
    assert [union.count(key) for key in range(150)] == [1] * 50 + [2] * 50 + [1] * 50
    assert np.all(union.remove_many(list(range(150))))
    assert all(union.contains_many(list(range(50, 100))))
    one |= one
    assert one.count("a") == 4


@both_widths
def test_intersection_takes_the_lesser(bits: int) -> None:
    """In an intersection a key is there as often as in the filter that has it less often."""
    one, two = filled([*range(100), "a", "a"], bits), filled([*range(50, 150), "a"], bits)
    both = one & two
    assert both.count("a") == 1
    assert all(both.contains_many(list(range(50, 100))))
    assert sum(both.contains_many(list(range(50)))) < 3


def test_filters_of_other_counters_do_not_merge() -> None:
    """Counters of 4 and of 8 bits cannot be added up, whatever their number."""
    with pytest.raises(IncompatibleFilters, match="same parameters"):
        CountingBloomFilter(1, counter_bits=4) | CountingBloomFilter(1, counter_bits=8)


@pytest.mark.parametrize("bits", [0, 3, 16, "4", None, 4.5, True])
def test_other_counter_bits_are_refused(bits: Any) -> None:
    """Only counters of 4 or 8 bits are made; the message says what was given."""
    with pytest.raises(InvalidParameter, match=r"counter_bits must be 4 or 8, not"):
        CountingBloomFilter(100, counter_bits=bits)


@both_widths
def test_estimates(bits: int) -> None:
    """Distinct keys are estimated from the counters, however often each was added, and after
    removals too."""
    filter = CountingBloomFilter(50_000, 0.01, counter_bits=bits)
    filter.update(np.arange(50_000))
    filter.update(np.arange(20_000))
    assert filter.estimated_count == pytest.approx(50_000, rel=0.01)
    filter.remove_many(np.arange(20_000))
    filter.remove_many(np.arange(40_000))
    assert filter.estimated_count == pytest.approx(10_000, rel=0.02)
    assert not filter.saturated
    filter.update(np.arange(100_000, 200_000))
    assert filter.saturated
