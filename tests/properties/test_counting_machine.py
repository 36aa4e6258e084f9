"""A counting filter beside a Counter: it forgets nothing, and never counts too few."""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import invariant

from bloomery import CountingBloomFilter
from properties.machines import driven
from properties.removing import RemovingBesideACounter


class CountingBesideACounter(RemovingBesideACounter):
    """Counts are at least the Counter's, up to what a counter can count."""

    def make(self, capacity: int, error_rate: float, choice: int) -> Any:
        bits = (4, 8)[choice % 2]
        return CountingBloomFilter(capacity, error_rate, counter_bits=bits, seed=choice)

    @invariant()
    def no_count_is_too_low(self) -> None:
        for key, times in self.held.items():
            most = 2**self.filter.counter_bits - 1
            assert self.filter.count(key) >= min(times, most)


TestCountingBesideACounter = driven(CountingBesideACounter)
