"""The filter of a segment."""

import numpy as np
import pytest

import bloomery
from bloomery.errors import CorruptData, InvalidParameter
from bloomery.segments import filters


@pytest.mark.parametrize("count", [1, 10, 100, 1000, 20_000, 60_000])
@pytest.mark.parametrize("chance", [0.001, 0.01, 0.1])
def test_it_holds_every_key_in_the_fewest_bytes(count: int, chance: float) -> None:
    """It says maybe to each of its keys, keeps its rate, and is no larger than either kind."""
    keys = np.arange(count)
    data, distinct = filters.build(lambda: keys, chance)
    filter = bloomery.filters.SavedFilter.from_bytes(data)
    assert distinct == count
    assert np.all(filter.contains_many(keys))  # type: ignore[attr-defined]
    others = np.arange(10**9, 10**9 + 100_000)
    assert np.mean(filter.contains_many(others)) < chance * 1.15 + 1e-4  # type: ignore[attr-defined]
    static = bloomery.StaticFilter.build(keys, chance)
    plain = bloomery.BloomFilter(count, chance)
    assert filter.nbytes == min(static.nbytes, plain.nbytes)
    assert filters.open_saved(data).maybes(0) == [0]


def test_keys_that_come_twice_count_once() -> None:
    """A column of few values gets a filter for few keys."""
    data, distinct = filters.build(lambda: np.zeros(100_000, np.int64), 0.01)
    assert (distinct, len(data)) == (1, 192)


def test_damage_is_refused() -> None:
    """A byte that changed is an error, and never a no."""
    data, _ = filters.build(lambda: range(300), 0.01)
    for at in range(0, len(data), 7):
        with pytest.raises(CorruptData):
            filters.open_saved(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("chance", [0, 1, -0.5, "much", float("nan")])
def test_a_chance_that_is_none_is_refused(chance: object) -> None:
    """The error calls it what the user called it."""
    with pytest.raises(InvalidParameter, match="fp_chance"):
        filters.check_fp_chance(chance)  # type: ignore[arg-type]
