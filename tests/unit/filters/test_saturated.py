"""When a filter says that it is full: by more keys than the noise of their estimate could be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter, CountingBloomFilter, DeletableBloomFilter, sizing
from bloomery.filters import AnyFilter
from bloomery.integrations.redis.config import planned
from bloomery.integrations.redis.header import plain_info

Maker = Callable[[int, int], Any]  # of capacity and seed

MAKERS: dict[str, Maker] = {
    "blocked": lambda n, seed: BloomFilter(n, 0.01, seed=seed),
    "two lines": lambda n, seed: BloomFilter(n, 1e-5, seed=seed),
    "classic": lambda n, seed: BloomFilter(n, 0.01, layout="classic", seed=seed),
    "classic, above 0.3": lambda n, seed: BloomFilter(n, 0.354, layout="classic", seed=seed),
    "counting": lambda n, seed: CountingBloomFilter(n, 0.01, seed=seed),
    "counting, 8 bits": lambda n, seed: CountingBloomFilter(n, 0.01, counter_bits=8, seed=seed),
    "deletable": lambda n, seed: DeletableBloomFilter(n, 1e-4, seed=seed),
}


def filled(make: Maker, capacity: int, count: int, seeds: int) -> Iterator[AnyFilter]:
    """Filters for so many keys that hold `count` of them, each with a seed of its own."""
    for i in range(seeds):
        filter = make(capacity, i * 0x9E3779B97F4A7C15 % 2**64)
        filter.update(np.arange(count))
        yield filter


@pytest.mark.parametrize("capacity", [1, 10, 100, 1000, 20_000])
@pytest.mark.parametrize("kind", MAKERS)
def test_full_is_not_saturated(kind: str, capacity: int) -> None:
    """Filters with just as many keys as they are made for never call themselves saturated."""
    found = list(filled(MAKERS[kind], capacity, capacity, 40))
    assert not any(filter.saturated for filter in found)
    assert not any(filter.info()["saturated"] for filter in found)


@pytest.mark.parametrize("count", [1000, 400_000])
def test_made_of_its_keys_it_is_not_saturated(count: int) -> None:
    """A filter that is made of its keys has room for them, whichever they are."""
    for first in range(0, 60 * count, count):
        assert not BloomFilter.from_keys(np.arange(first, first + count)).saturated


@pytest.mark.parametrize("kind", MAKERS)
def test_overfull_is_saturated(kind: str) -> None:
    """A tenth more keys than 20,000 is seen, each time."""
    assert all(filter.saturated for filter in filled(MAKERS[kind], 20_000, 22_000, 20))
    assert all(filter.info()["saturated"] for filter in filled(MAKERS[kind], 20_000, 22_000, 2))


@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-5, 1e-9])
@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_saturated_before_the_rate_has_doubled(layout: Any, error_rate: float) -> None:
    """From 1,000 keys on, a filter that errs twice as often as was asked for is saturated."""
    capacity = 1000
    plan = sizing.plan(capacity, error_rate, layout=layout)
    shape = (layout, plan.num_bits, plan.num_hashes, plan.lines_per_key)
    count = capacity
    while sizing.expected_error_rate(*shape, count) < min(2 * error_rate, 0.9):
        count += 1

    def make(n: int, seed: int) -> BloomFilter:
        return BloomFilter(n, error_rate, layout=layout, seed=seed)

    assert all(filter.saturated for filter in filled(make, capacity, count, 40))


@pytest.mark.parametrize("count", [200, 1000, 2000])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_standard_error_is_the_spread(kind: str, count: int) -> None:
    """Estimates of many filters of one size are as far apart as `sizing` says."""
    found = list(filled(MAKERS[kind], 1000, count, 150))
    one = found[0]
    shape = (one.num_bits, one.num_hashes, one.lines_per_key)
    if isinstance(one, BloomFilter):
        said = sizing.count_error(one.layout, *shape, count)
    else:
        plan: Any = sizing.deletable_plan(1000, 1e-4)
        if isinstance(one, CountingBloomFilter):
            plan = sizing.counting_plan(1000, 0.01, counter_bits=one.counter_bits)
        said = sizing.cell_count_error(*shape, plan.line_cells, count)
    spread = statistics.stdev(filter.estimated_count for filter in found)
    # The spread of 150 is itself within 6%; whole numbers add up to 0.3.
    assert spread == pytest.approx(math.hypot(said, 0.29), rel=0.25)


def test_nothing_to_estimate() -> None:
    """No keys, or hardly a bit: no error; far more keys than bits: no limit to it."""
    assert sizing.count_error("classic", 1000, 7, 0, 0) == 0.0
    assert sizing.count_error("classic", 1, 7, 0, 10) == 0.0
    assert sizing.cell_count_error(5120, 6, 1, 128, 0) == 0.0
    assert sizing.count_error("classic", 1000, 7, 0, 1e12) == math.inf
    assert sizing.count_error("blocked", 512, 6, 1, 1e12) == math.inf


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_a_filter_in_redis_says_the_same(layout: Any) -> None:
    """From the same bits a filter in Redis has the same opinion as one in memory."""
    config = planned(5000, 0.01, layout, "xxh3", 0, 1)
    for count, saturated in ((5000, False), (5500, True)):
        for filter in filled(
            lambda n, seed: BloomFilter(n, 0.01, layout=layout, seed=seed), 5000, count, 10
        ):
            assert isinstance(filter, BloomFilter)
            info = plain_info(
                config.header,
                config.kind,
                config.shards,
                round(filter.fill_ratio * filter.num_bits),
            )
            assert info["saturated"] == filter.saturated == saturated
