"""How often a maybe is wrong: as often as the plan says, and no more often than was asked."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter, sizing
from bloomery.filters import AnyFilter
from privates import bloom_of, fold_from
from properties.strategies import HASHERS, LAYOUTS

CAPACITY = 500_000
# Enough probes for a hundred wrong answers at least, so that 5 sigma is half of the rate.
PROBES = {0.3: 10**6, 0.1: 10**6, 0.01: 10**6, 1e-3: 10**6, 1e-4: 10**6, 1e-5: 10**7}


def full(capacity: int, error_rate: float, layout: Any, hasher: Any, seed: int = 0) -> BloomFilter:
    """A filter with as many keys as it was made for."""
    filter = BloomFilter(capacity, error_rate, layout=layout, hasher=hasher, seed=seed)
    filter.update(np.arange(capacity))
    return filter


def wrong(filter: AnyFilter, probes: int) -> int:
    """How many of so many keys that were never added are a maybe; a million at a time."""
    found = 0
    for start in range(0, probes, 10**6):
        absent = np.arange(start, min(start + 10**6, probes)) + 2**40
        found += int(np.count_nonzero(filter.contains_many(absent)))
    return found


def five_sigma(rate: float, probes: int) -> float:
    """The most by which an honest filter's observed rate differs from its true one."""
    return 5 * math.sqrt(rate * (1 - rate) / probes)


@pytest.mark.slow
@pytest.mark.parametrize("error_rate", PROBES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hasher", HASHERS)
def test_full_filter_errs_as_planned(error_rate: float, layout: Any, hasher: Any) -> None:
    """A full filter errs as often as its bits say and its plan foretold, within 5 sigma."""
    filter, probes = full(CAPACITY, error_rate, layout, hasher), PROBES[error_rate]
    plan = sizing.plan(CAPACITY, error_rate, layout=layout)
    observed, margin = wrong(filter, probes) / probes, five_sigma(error_rate, probes)
    assert observed == pytest.approx(filter.estimated_error_rate, abs=margin)
    # The bits themselves are a draw: with so many keys their rate is within a few percent.
    assert filter.estimated_error_rate == pytest.approx(plan.expected_error_rate, rel=0.06)
    assert observed == pytest.approx(plan.expected_error_rate, rel=0.06, abs=margin)
    if layout == "blocked":
        assert plan.expected_error_rate <= error_rate
        assert observed <= error_rate * 1.06 + margin


@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_default_hasher_errs_as_planned(error_rate: float, layout: Any) -> None:
    """The quick form of the test above: a full filter of 100,000 keys errs as it should."""
    filter, probes = full(100_000, error_rate, layout, "xxh3"), 300_000
    observed = wrong(filter, probes) / probes
    assert observed == pytest.approx(
        filter.estimated_error_rate, abs=five_sigma(error_rate, probes)
    )
    assert observed <= error_rate * 1.1 + five_sigma(error_rate, probes)


@pytest.mark.parametrize("hasher", HASHERS)
@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-3])
@pytest.mark.parametrize("capacity", [1, 2, 7, 30, 100, 1000])
def test_small_filters_keep_the_rate(capacity: int, error_rate: float, hasher: Any) -> None:
    """Blocked filters for a handful of keys keep the rate on average, over many seeds."""
    rates = []
    for i in range(100):
        # Far apart: seeds 0, 1, 2 … of FNV-1a only give the same dense ints in another order.
        seed = i * 0x9E3779B97F4A7C15 % 2**64
        filter = full(capacity, error_rate, "blocked", hasher, seed)
        rates.append(wrong(filter, 2000) / 2000)
    mean = statistics.fmean(rates)
    spread = max(statistics.stdev(rates), math.sqrt(error_rate / 2000)) / math.sqrt(len(rates))
    assert mean <= error_rate + 5 * spread
    expected = sizing.plan(capacity, error_rate).expected_error_rate
    assert mean == pytest.approx(expected, abs=5 * spread)


@pytest.mark.parametrize(
    ("capacity", "error_rate", "seeds", "probes"),
    [
        (1, 0.01, 1000, 500),
        (10, 0.01, 2500, 500),
        (30, 0.3, 500, 500),
        (1, 0.001, 1000, 2000),
        (5, 0.001, 2000, 2000),
        pytest.param(10, 0.001, 10_000, 2000, marks=pytest.mark.soak),
        pytest.param(10, 1e-5, 1500, 100_000, marks=pytest.mark.soak),
        pytest.param(100, 1e-7, 50, 20_000_000, marks=pytest.mark.soak),
    ],
)
def test_small_classic_filters_keep_the_rate(
    capacity: int, error_rate: float, seeds: int, probes: int
) -> None:
    """Classic filters for a handful of keys keep the rate on average, and err as the plan says."""
    rates = []
    for i in range(seeds):
        seed = i * 0x9E3779B97F4A7C15 % 2**64
        rates.append(wrong(full(capacity, error_rate, "classic", "xxh3", seed), probes) / probes)
    mean = statistics.fmean(rates)
    spread = max(statistics.stdev(rates), math.sqrt(error_rate / probes)) / math.sqrt(seeds)
    assert mean <= error_rate + 4 * spread
    expected = sizing.plan(capacity, error_rate, layout="classic").expected_error_rate
    assert mean == pytest.approx(expected, rel=0.05, abs=4 * spread)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-5])
def test_the_rate_follows_the_count(error_rate: float, layout: Any) -> None:
    """Half full a filter errs far less; overfull it errs more, and says so."""
    capacity = 50_000
    half = BloomFilter(capacity, error_rate, layout=layout)
    half.update(np.arange(capacity // 2))
    assert half.estimated_error_rate < error_rate * 0.7
    assert not half.saturated
    over = half.copy()
    over.update(np.arange(2 * capacity))
    assert over.saturated
    observed = wrong(over, 300_000) / 300_000
    assert observed > error_rate
    assert observed == pytest.approx(
        over.estimated_error_rate, abs=five_sigma(over.estimated_error_rate, 300_000)
    )


@pytest.mark.parametrize(
    ("layout", "error_rate", "lines"),
    [("blocked", 0.01, 1), ("blocked", 1e-5, 2), ("classic", 0.01, 0), ("classic", 1e-5, 0)],
)
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 1.0, 1.5])
def test_estimated_count(layout: Any, error_rate: float, lines: int, share: float) -> None:
    """The count estimated from the fill is within 1% of the truth, or 10 keys."""
    filter = BloomFilter(200_000, error_rate, layout=layout)
    assert filter.lines_per_key == lines
    count = int(200_000 * share)
    filter.update(np.arange(count))
    assert filter.estimated_count == pytest.approx(count, rel=0.01, abs=10)


@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-4, 1e-6])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 10, 777, 4096, 20_000, 33_333, 60_000, 99_000])
def test_folding_keeps_the_rate(count: int, layout: Any, error_rate: float) -> None:
    """However full, a folded filter keeps its keys and errs no more often than was asked."""
    filter = BloomFilter(100_000, error_rate, layout=layout)
    filter.update(np.arange(count))
    folded, probes = filter.fold(), 200_000
    assert folded.contains_many(np.arange(count)).all()  # type: ignore[union-attr]
    assert folded.error_rate == error_rate
    assert folded.estimated_error_rate <= error_rate
    assert wrong(folded, probes) / probes <= error_rate + five_sigma(error_rate, probes)
    if (load := count / 100_000) < 0.4:
        # What is needed, plus what sharing boundaries costs, plus the steps the fold is tried in.
        assert folded.num_bits <= filter.num_bits * load / (1 - load) * 1.15 + 1024


def test_folding_to_a_divisor_is_building_smaller() -> None:
    """Where the size divides, the folded filter is bit for bit the one built at that size."""
    for layout in LAYOUTS:
        parts = (64_000, 0.01, layout, 512 * 1200, 6, 1 if layout == "blocked" else 0, "xxh3", 0)
        large = bloom_of(*parts)
        small = bloom_of(*parts[:3], 512 * 300, *parts[4:])
        large.update(np.arange(9000))
        small.update(np.arange(9000))
        folded = bloom_of(*parts[:3], 512 * 300, *parts[4:])
        fold_from(folded, large)
        assert folded == small
