"""The canary: its interval covers the true rate, whatever that is and while it changes."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloomery
from bloomery import _native
from bloomery.filters.redisbloom import RedisBloomFilter, RedisCuckooFilter
from bloomery.service.sampling.canary import PROBES, Window
from bloomery.sizing.intervals import wilson_interval
from conftest import first_fast
from unit.service.sampling.shelving import added

MUST = 0.93  # of the runs, in which the interval has to cover the true rate
TRUE_PROBES = 1 << 20
RUNS = 1000
SAMPLES = 8  # of one run


def coverage(probes: int, rate: float) -> float:
    """How often the interval covers the rate: the binomial distribution, summed."""
    deviation = math.sqrt(probes * rate * (1 - rate))
    first = max(0, int(probes * rate - 9 * deviation - 20))
    last = min(probes, int(probes * rate + 9 * deviation + 40))
    chance = math.exp(
        math.lgamma(probes + 1)
        - math.lgamma(first + 1)
        - math.lgamma(probes - first + 1)
        + first * math.log(rate)
        + (probes - first) * math.log1p(-rate)
    )
    covered = 0.0
    for hits in range(first, last + 1):
        low, high = wilson_interval(probes, hits)
        if low <= rate <= high:
            covered += chance
        chance *= (probes - hits) / (hits + 1) * rate / (1 - rate)
    return covered


@pytest.mark.parametrize("probes", [PROBES, 4 * PROBES, 16 * PROBES, 256 * PROBES])
def test_the_interval_covers_every_rate(probes: int) -> None:
    """By exact summation, for rates from 1e-9 to nearly 1: at least 95%."""
    rates = [10 ** (-step / 12) for step in range(4, 9 * 12)]
    rates += [1 - rate for rate in rates if rate < 0.5 and rate > 1e-6]
    covered = {rate: coverage(probes, rate) for rate in rates}
    assert min(covered.values()) > 0.949, min(covered.items(), key=lambda one: one[1])


@given(st.integers(0, 1 << 16), st.floats(0, 1))
def test_the_interval_is_around_the_share(probes: int, share: float) -> None:
    """It has the observed share within it, lies between 0 and 1, and is never empty."""
    hits = round(share * probes)
    low, high = wilson_interval(probes, hits)
    assert 0 <= low < high <= 1
    if probes:
        assert low <= hits / probes <= high
        assert (low == 0) or hits > 0
        assert (high == 1) or hits < probes


def keys(first: int, count: int) -> list[bytes]:
    """Keys that differ from those of other numbers."""
    return [b"key %d" % number for number in range(first, first + count)]


def made() -> dict[str, Any]:
    """A filter of each kind that can be probed; those that can be full for 5,000 keys."""
    return {
        "bloom": bloomery.BloomFilter(5000, 0.02),
        "classic": bloomery.BloomFilter(5000, 0.02, layout="classic"),
        "scalable": bloomery.ScalableBloomFilter(1000, 0.02),
        "counting": bloomery.CountingBloomFilter(5000, 0.02),
        "deletable": bloomery.DeletableBloomFilter(5000, 0.02),
        "cuckoo": bloomery.CuckooFilter(5000, 0.02, grow=True),
        "rotating": bloomery.RotatingBloomFilter(5000, 0.02),
        "static": bloomery.StaticFilter.build(keys(0, 5000), 0.02),
        "redisbloom": RedisBloomFilter(0.02, 2500),
        "rediscuckoo": RedisCuckooFilter(5000),
    }


@pytest.fixture(scope="module")
def absent() -> list[bytes]:
    """A million keys that are in no filter."""
    return keys(10**6, TRUE_PROBES)


CASES = [(kind, times) for kind in made() for times in (1, 3) if (kind, times) != ("static", 3)]


@pytest.mark.parametrize(("kind", "times"), first_fast(CASES))
def test_the_canary_covers_the_true_rate_of_a_filter(
    kind: str, times: int, absent: list[bytes]
) -> None:
    """In at least 93% of seeded runs, of every kind, at its capacity and with three times as many
    keys; the true rate is that of a million other keys."""
    shelf = _native.Shelf()
    shelf.put(b"one", made()[kind], 1)
    if kind != "static":
        assert added(shelf, b"one", keys(0, 5000 * times))[1] is None
    true = shelf.contains(b"one", absent).count(1) / TRUE_PROBES
    assert true > 0
    covered = 0
    chance = random.Random(7)
    for _ in range(RUNS):
        window = Window()
        for _ in range(SAMPLES):
            found = shelf.sample(b"one", PROBES, chance.getrandbits(64))
            assert found is not None
            assert found[8] is not None
            window.take(PROBES, found[8], found[5])
        low, high = wilson_interval(window.probes, window.hits)
        covered += low <= true <= high
    assert covered >= MUST * RUNS, (covered, true)


@pytest.mark.parametrize("step", [20, 100, 1000])
def test_the_canary_keeps_up_with_a_filter_that_fills(step: int) -> None:
    """While keys come, slowly or fast, the interval covers the rate of the moment."""
    covered = asked = 0
    for seed in range(4):
        chance = random.Random(seed)
        shelf, filter, window = _native.Shelf(), bloomery.BloomFilter(20_000, 0.01), Window()
        shelf.put(b"one", filter, 1)
        added(shelf, b"one", keys(0, 8000))
        for first in range(8000, min(30_000, 8000 + 300 * step), step):
            added(shelf, b"one", keys(first, step))
            found = shelf.sample(b"one", PROBES, chance.getrandbits(64))
            assert found is not None
            window.take(PROBES, found[8] or 0, found[5])
            low, high = wilson_interval(window.probes, window.hits)
            covered += low <= filter.estimated_error_rate <= high
            asked += 1
    assert covered >= MUST * asked, covered / asked


def test_the_canary_notices_an_emptied_filter() -> None:
    """Probes from before a filter was cleared say nothing about it now."""
    window = Window()
    for _ in range(40):
        window.take(PROBES, 100, 0.4)
    window.take(PROBES, 0, 0.0)
    assert (window.probes, window.hits) == (PROBES, 0)


def hitting(rate: float) -> Callable[[], int]:
    """Hits of a sample at a true rate."""
    chance = random.Random(3)
    return lambda: sum(chance.random() < rate for _ in range(PROBES))


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3])
def test_the_window_is_bounded(rate: float) -> None:
    """Older probes leave: neither probes nor errors nor memory become more and more."""
    window, hits = Window(), hitting(rate)
    for _ in range(600):
        window.take(PROBES, hits(), rate)
        assert len(window) <= 4
    assert PROBES * 40 < window.probes <= 1 << 16 or window.hits >= 400
    assert window.hits < 1500
    assert window.rate == pytest.approx(rate, rel=0.5)


def test_without_an_estimate_probes_only_grow_old() -> None:
    """A kind that cannot estimate is measured all the same."""
    window = Window()
    assert math.isnan(window.rate)
    for _ in range(300):
        window.take(PROBES, 1, math.nan)
    assert window.probes > 100 * PROBES
    assert window.rate == 1 / PROBES
