"""Sizes of exact sets: what is planned is what is built, and no smaller plan is left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bloomery import ExactSet
from bloomery.errors import InvalidParameter
from bloomery.sizing import exact_plan


@pytest.mark.parametrize(
    ("members", "non_members", "error_rate"),
    [(1000, 100_000, None), (300, 300, None), (90_000, 700, None), (500, 9000, 1e-4), (40, 0, 0.1)],
)
def test_what_is_planned_is_built(members: int, non_members: int, error_rate: Any) -> None:
    """The size is the planned one, but for which non-members pass the first level by chance."""
    plan = exact_plan(members, non_members, error_rate=error_rate)
    exact = ExactSet.build(np.arange(members), -1 - np.arange(non_members), error_rate=error_rate)
    info = exact.info()
    assert info["fingerprint_bits"] == plan.fingerprint_bits
    assert info["holds_non_members"] == plan.holds_non_members
    assert exact.estimated_error_rate == plan.error_rate
    assert exact.nbytes == pytest.approx(plan.nbytes, rel=0.05, abs=64)


def test_ten_million_and_a_hundred_thousand() -> None:
    """100 k among 10 M: 9.95 bits a member; 8.09 is the least, 9.56 an ideal cascade's."""
    plan = exact_plan(100_000, 10_000_000)
    assert 8 * plan.nbytes / 100_000 == pytest.approx(9.95, abs=0.01)
    assert plan.least_bits / 100_000 == pytest.approx(8.09, abs=0.01)
    assert plan.cascade_bits / 100_000 == pytest.approx(9.56, abs=0.01)
    # log2 C(n, r) by Stirling's leading terms, which is another way than the plan's.
    share = 100_000 / 10_100_000
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    assert plan.least_bits == pytest.approx(10_100_000 * entropy, rel=1e-4)
    # The best rate of a first level was found by differentiation: no other is better.
    for rate in np.geomspace(1e-5, 1, 400):
        bits = 100_000 * math.log2(1 / rate) + 2 * 10_000_000 * rate + 100_000
        assert bits >= plan.cascade_bits - 1e-6


@pytest.mark.parametrize("non_members", [0, 1, 50, 3000, 10**6, 10**9])
def test_the_plan_is_the_smallest(non_members: int) -> None:
    """A lower rate never takes less, and no rate at all takes the least."""
    free = exact_plan(1000, non_members)
    sizes = [exact_plan(1000, non_members, error_rate=2.0**-w).nbytes for w in range(1, 33)]
    assert sizes == sorted(sizes)
    assert free.nbytes <= sizes[0]
    assert 8 * free.nbytes >= free.least_bits


def test_none_on_a_side() -> None:
    """Without members, and without non-members, there is hardly anything to keep."""
    assert exact_plan(0, 10**6).nbytes == 64
    assert exact_plan(10**6, 0).nbytes == 64
    assert exact_plan(0, 10**6).error_rate == 0
    assert exact_plan(10**6, 0).error_rate == 1
    assert exact_plan(0, 0).cascade_bits == exact_plan(0, 0).least_bits == 0


@pytest.mark.parametrize("wrong", [-1, 1.5, "10", None, True, 2**50])
def test_numbers_that_are_none(wrong: Any) -> None:
    """What is no number of keys is refused by name."""
    with pytest.raises(InvalidParameter, match=r"^members must be"):
        exact_plan(wrong, 5)
    with pytest.raises(InvalidParameter, match=r"^non_members must be"):
        exact_plan(5, wrong)


def test_figures_for_programs() -> None:
    """`as_dict` has every figure, ready for JSON."""
    figures = exact_plan(10, 100).as_dict()
    assert {"members", "nbytes", "least_bits", "cascade_bits", "error_rate"} <= set(figures)
