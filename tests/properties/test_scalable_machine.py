"""A growing filter beside a set: it forgets nothing, whatever is done, and keeps its rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from bloomery import ScalableBloomFilter
from properties.machines import RATES, SetMachine, driven
from properties.strategies import HASHERS


class ScalableBesideASet(SetMachine):
    """It starts with room for a few keys, so that it grows again and again."""

    @initialize(
        capacity=st.integers(1, 20),
        rate=st.sampled_from(RATES),
        growth=st.sampled_from([1.125, 1.5, 2.0]),
        hasher=st.sampled_from(HASHERS),
    )
    def start(self, capacity: int, rate: float, growth: float, hasher: Any) -> None:
        self.filter = ScalableBloomFilter(capacity, rate, growth=growth, hasher=hasher)

    @rule(start=st.integers(0, 10**6), count=st.integers(50, 800))
    def add_a_range(self, start: int, count: int) -> None:
        """So many keys that it grows more than once within the batch."""
        keys = np.arange(start, start + count)
        before = self.filter.copy()
        new = self.filter.add_many(keys)
        assert [before.add(key) for key in keys.tolist()] == list(new)
        assert before == self.filter
        self.held |= set(keys.tolist())

    @precondition(lambda self: self.aside is not None)
    @rule()
    def take_up_again(self) -> None:
        """What became of the other meanwhile has left this one alone."""
        assert self.aside is not None
        (self.filter, self.held), self.aside = self.aside, (self.filter, self.held)

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.held.clear()
        assert (self.filter.fill_ratio, self.filter.estimated_count) == (0, 0)
        assert "anything" not in self.filter

    @invariant()
    def the_rate_is_kept(self) -> None:
        assert self.filter.estimated_error_rate <= self.filter.error_rate
        assert self.filter.estimated_count <= len(self.held)
        assert not self.filter.saturated


TestScalableBesideASet = driven(ScalableBesideASet)
