"""How often each kind errs, and what a key takes: no more than was asked for, at any size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bloomery import CuckooFilter, ScalableBloomFilter
from bloomery.filters import COMMON_KINDS
from properties.family import holding
from properties.strategies import HASHERS
from properties.test_rates import five_sigma, wrong

PROBES = 10**6
# What a draw of this many keys may differ from the plan, beyond the chance of the probes.
DRAW = 1.06
# Those whose keys can still be added to, and taken from, in one table of fingerprints.
TABLES = ["scalable", "cuckoo", "rotating"]


def check(filter: Any, error_rate: float, probes: int = PROBES) -> float:
    """The rate observed, which is the one estimated and no higher than the one asked for."""
    estimated = filter.estimated_error_rate
    observed = wrong(filter, probes) / probes
    assert observed == pytest.approx(estimated, abs=five_sigma(max(estimated, 1e-9), probes))
    assert observed <= error_rate * DRAW + five_sigma(error_rate, probes)
    return observed


@pytest.mark.parametrize("error_rate", [0.1, 0.01, 1e-3])
@pytest.mark.parametrize("kind", COMMON_KINDS)
def test_a_full_filter_errs_as_asked(kind: str, error_rate: float) -> None:
    """At full capacity each kind errs as often as it says, and no more often than was asked."""
    filter = holding(kind, np.arange(200_000), error_rate)
    assert np.all(filter.contains_many(np.arange(200_000)))
    assert check(filter, error_rate) > error_rate / 8
    assert filter.estimated_error_rate <= error_rate * DRAW


@pytest.mark.slow
@pytest.mark.parametrize("error_rate", [0.5, 0.1, 0.01, 1e-3, 1e-4])
@pytest.mark.parametrize("hasher", HASHERS)
@pytest.mark.parametrize("kind", COMMON_KINDS)
def test_by_every_hash(kind: str, hasher: Any, error_rate: float) -> None:
    """So it is by every hash, for keys that differ in their last digits only."""
    filter = holding(kind, np.arange(100_000) * 1000, error_rate, hasher=hasher, seed=5)
    check(filter, error_rate)


@pytest.mark.parametrize("kind", COMMON_KINDS)
def test_small_filters_keep_the_rate(kind: str) -> None:
    """Filters of a few keys keep the rate on average, over many seeds."""
    for capacity, error_rate in ((1, 0.1), (7, 0.1), (30, 0.01), (200, 0.01)):
        rates = []
        for seed in range(100):
            filter = holding(
                kind, np.arange(capacity), error_rate, seed=seed * 0x9E3779B97F4A7C15 % 2**64
            )
            rates.append(wrong(filter, 2000) / 2000)
        spread = max(float(np.std(rates)), math.sqrt(error_rate / 2000)) / 10
        assert np.mean(rates) <= error_rate + 5 * spread


def sizes() -> list[Any]:
    """Sizes in steps of the first: the largest takes its time."""
    return [1, 3, 10, 100, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("growth", [1.125, 2.0])
@pytest.mark.parametrize("error_rate", [0.1, 0.01, 1e-3])
@pytest.mark.parametrize("times", sizes())
def test_a_growing_filter_keeps_the_rate(times: int, error_rate: float, growth: float) -> None:
    """Grown to any size, the whole errs no more often than was asked for at the start."""
    filter = ScalableBloomFilter(1000, error_rate, growth=growth)
    filter.update(np.arange(1000 * times))
    assert np.all(filter.contains_many(np.arange(1000 * times)))
    check(filter, error_rate)
    assert filter.estimated_error_rate <= error_rate
    # A key that a fingerprint already covers is none of its own.
    assert 1000 * times * (1 - error_rate) <= filter.estimated_count <= 1000 * times


@pytest.mark.slow
def test_a_growing_filter_stays_small() -> None:
    """Grown from 1,000 keys at 1%, a key takes 16 bits at a million and 14 at ten at most."""
    filter = ScalableBloomFilter(1000, 0.01)
    for count, bits in ((10**6, 16), (10**7, 14)):
        filter.update(np.arange(count))
        assert 8 * filter.nbytes / count <= bits
    assert wrong(filter, PROBES) / PROBES <= 0.01


@pytest.mark.parametrize("error_rate", [0.01, 1e-3, 1e-4, 1e-6])
def test_a_cuckoo_filter_stays_small(error_rate: float) -> None:
    """Filled to 95%, a key takes at most 1.15 (log2(1/p) + 3) bits; no size is rounded up far."""
    for capacity in (100_000, 131_073, 200_000):
        filter = CuckooFilter(capacity, error_rate)
        slots = 8 * filter.nbytes / filter.info()["slot_bits"]
        count = int(0.95 * slots)
        filter.update(np.arange(count))
        assert filter.fill_ratio == pytest.approx(0.95, abs=0.001)
        assert 8 * filter.nbytes / count <= 1.15 * (math.log2(1 / error_rate) + 3)
        assert capacity <= count + capacity * 0.01
    check(filter, error_rate)


@pytest.mark.parametrize("kind", TABLES)
def test_the_rate_follows_the_count(kind: str) -> None:
    """Half full a table errs half as often; emptied it errs no more."""
    half = holding(kind, np.arange(100_000), 0.01)
    full = holding(kind, np.arange(100_000), 0.01)
    half.clear()
    half.update(np.arange(50_000))
    assert half.estimated_error_rate == pytest.approx(full.estimated_error_rate / 2, rel=0.1)
    check(half, 0.01)
    half.clear()
    assert half.estimated_error_rate == wrong(half, 1000) == 0


@pytest.mark.parametrize("error_rate", [0.1, 0.01])
def test_removing_gives_the_rate_back(error_rate: float) -> None:
    """A filter that was full, grown, and half emptied errs as its entries say."""
    filter = CuckooFilter(1000, error_rate, grow=True)
    filter.update(np.arange(50_000))
    filter.remove_many(np.arange(0, 50_000, 2))
    assert np.all(filter.contains_many(np.arange(1, 50_000, 2)))
    check(filter, error_rate)


@pytest.mark.parametrize("window", [60, None])
def test_rotating_keeps_the_rate(window: float | None) -> None:
    """Generation after generation, with as many keys in a window as planned, the rate is kept."""
    now = [0.0]
    filter = holding(
        "rotating", np.arange(8000), 0.01, window=window, generations=8, clock=lambda: now[0]
    )
    for round in range(1, 30):
        now[0] += 7.5
        filter.update(np.arange(1000) + 8000 + 1000 * round)
        assert filter.estimated_error_rate <= 0.01
        assert filter.estimated_count <= 9001 + (8000 if round < 9 and window else 0)
    check(filter, 0.01)
