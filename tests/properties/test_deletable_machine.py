"""A deletable filter beside a Counter: it forgets nothing but what it says it has removed."""

from __future__ import annotations

from typing import Any

from bloomery import DeletableBloomFilter, sizing
from properties.machines import driven
from properties.removing import RemovingBesideACounter


class DeletableBesideACounter(RemovingBesideACounter):
    """A key that was taken out is gone; one that is there twice cannot be."""

    def make(self, capacity: int, error_rate: float, choice: int) -> Any:
        lines = sizing.deletable_plan(capacity, error_rate, regions=1).num_bits // 512
        regions = lines * (16, 32, 64, 128)[choice % 4]
        return DeletableBloomFilter(capacity, error_rate, regions=regions, seed=choice)

    def removed(self, key: Any) -> None:
        assert self.held[key] == 1
        assert key not in self.filter
        super().removed(key)


TestDeletableBesideACounter = driven(DeletableBesideACounter)
