"""How much memory a bank takes, and how often it errs, for each user."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bloomery import FilterBank, sizing
from conftest import first_fast


def observed(bank: FilterBank, user: int, probes: int) -> float:
    """The share of keys never added that are answered with a maybe."""
    absent = np.arange(probes) + 2**40
    return float(np.mean(bank.contains_many(user, absent)))


@pytest.mark.parametrize("error_rate", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("keys", first_fast([10, 1000, 5000]))
def test_every_user_is_within_the_rate(error_rate: float, keys: int) -> None:
    """At the size that was planned, at 3 and at 20 times of it, and far below."""
    bank, probes = FilterBank(error_rate, keys), 200_000
    for user, count in enumerate((max(1, keys // 50), keys, 3 * keys, 20 * keys)):
        bank.update(user, np.arange(count))
        assert all(bank.contains_many(user, np.arange(count)))
        rate, told = observed(bank, user, probes), bank.info(user)["estimated_error_rate"]
        margin = 5 * math.sqrt(error_rate / probes)
        assert told <= error_rate
        assert rate <= error_rate + margin
        assert rate == pytest.approx(told, abs=margin)


def test_errors_fall_differently_for_each_user() -> None:
    """A key that is taken for another by one user is not for the next."""
    bank = FilterBank(0.1, 1000)
    for user in range(20):
        bank.update(user, np.arange(1000))
    masks = np.array([bank.contains_many(user, np.arange(5000) + 10**6) for user in range(20)])
    assert 0.02 < masks.mean() < 0.1
    assert masks.all(axis=0).sum() == 0


def plain_bits(count: int, error_rate: float) -> int:
    return sizing.plan(count, error_rate).num_bits


@pytest.mark.slow
def test_users_of_the_planned_size_take_what_plain_filters_do() -> None:
    """200 users with 5,000 keys each at 1%: at most 1.15 times a plain filter's bits."""
    bank = FilterBank(0.01, 5000)
    for part in range(10):  # in turns, so that every user grows while others do
        keys = np.arange(part * 500, part * 500 + 500)
        bank.update(np.arange(200).repeat(500), np.tile(keys, 200))
    assert 8 * bank.nbytes <= 1.15 * 200 * plain_bits(5000, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("keys_per_filter", [1000, 3000, 5000])
def test_users_of_all_sizes_take_little_more(keys_per_filter: int) -> None:
    """Sizes spread log-normally over 10 to 100,000: at most 1.8 times the plain filters' bits."""
    rng = np.random.default_rng(3)
    sizes = np.exp(rng.normal(math.log(1000), 1.5, 400)).astype(int)
    sizes = np.clip(sizes, 10, 100_000)
    bank = FilterBank(0.01, keys_per_filter)
    for user, count in enumerate(sizes):
        bank.update(user, np.arange(count))
    plain = sum(plain_bits(int(count), 0.01) for count in sizes)
    assert 8 * bank.nbytes <= 1.8 * plain
    for user in rng.integers(0, 400, 20):
        told = bank.info(int(user))["estimated_error_rate"]
        assert told <= 0.01
        assert observed(bank, int(user), 20_000) <= 0.01 + 5 * math.sqrt(0.01 / 20_000)
