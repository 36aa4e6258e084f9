"""A filter is accused of erring too often when it does, and not by chance."""

import random
from collections.abc import Iterator

import pytest

from bloomery.guard.observed import Observation

WINDOW = 65_536  # absent keys


def windows(rate: float, seed: int) -> Iterator[Observation]:
    """What is seen of a filter that errs so often, each time that it does."""
    rng = random.Random(seed)
    keys = wrong = 0
    while True:
        keys += 1 + int(rng.expovariate(rate))
        if keys > WINDOW:
            return
        wrong += 1
        yield Observation(wrong, keys - wrong, 1.0)


@pytest.mark.slow
def test_a_filter_that_keeps_to_its_rate_is_not_accused() -> None:
    """Asked after every error, for whole windows, of filters that err exactly as often as allowed:
    the interval's own lower end would accuse a third of them."""
    seen = [list(windows(0.01, seed)) for seed in range(100)]
    assert sum(any(one.interval[0] > 0.01 for one in window) for window in seen) > 15
    assert not any(one.surely_above(0.01) for window in seen for one in window)


@pytest.mark.parametrize(("rate", "within"), [(0.02, 12_000), (0.05, 3_000)])
def test_one_that_does_not_is(rate: float, within: int) -> None:
    """A filter that errs twice as often is found out within some thousand absent keys."""
    for seed in range(20):
        first = next(one for one in windows(rate, seed) if one.surely_above(0.01))
        assert 1000 <= first.keys <= within


def test_a_few_keys_accuse_nobody() -> None:
    """One error among the first four keys is 25%, and means nothing."""
    assert not Observation(1, 3, 1.0).surely_above(0.01)
    assert not Observation(0, 0, 1.0).surely_above(0.01)
