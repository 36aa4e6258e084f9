"""StaticFilter's promise: of any keys none is lost, and a maybe is wrong as often as was asked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import StaticFilter
from properties.strategies import HASHERS, keys


@given(
    st.lists(keys, max_size=300),
    st.sampled_from([0.5, 0.1, 0.01, 1e-3, 1e-5, 2**-8, 2**-16, 2**-32]),
    st.sampled_from(HASHERS),
    st.sampled_from([0, 1, 2**64 - 1]),
)
def test_no_key_is_lost(batch: list[Any], error_rate: float, hasher: Any, seed: int) -> None:
    """Any keys, of any kind, in any number, are there, also when saved and read again."""
    filter = StaticFilter.build(batch, error_rate, hasher=hasher, seed=seed)
    assert all(key in filter for key in batch)
    assert all(filter.contains_many(batch))
    assert filter.estimated_count == len({filter.hash_of(key) for key in batch})
    again = StaticFilter.from_bytes(filter.to_bytes())
    assert again == filter
    assert all(again.contains_many(batch))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2000), st.randoms())
def test_the_bytes_are_those_of_the_set(batch: list[int], random: Any) -> None:
    """Neither order nor copies nor the door change a byte."""
    filter = StaticFilter.build(batch)
    shuffled = [*batch, *batch[::2]]
    random.shuffle(shuffled)
    assert StaticFilter.build(np.array(shuffled, np.int64)) == filter
    assert np.all(filter.contains_many(np.array(batch, np.int64)))


@pytest.mark.parametrize("count", [1, 30, 1000, 30_000, 500_000])
@pytest.mark.parametrize("error_rate", [0.1, 0.01, 0.001])
def test_it_errs_as_often_as_it_says(error_rate: float, count: int) -> None:
    """The observed rate is the estimated one within 5 sigma, and no more than was asked."""
    filter = StaticFilter.build(np.arange(count), error_rate)
    assert np.all(filter.contains_many(np.arange(count)))
    probes = 10**6
    absent = np.arange(probes) + 2**40
    observed = np.count_nonzero(filter.contains_many(absent)) / probes
    expected = filter.estimated_error_rate
    assert observed == pytest.approx(expected, abs=5 * math.sqrt(expected / probes))
    assert expected <= error_rate
