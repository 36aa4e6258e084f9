"""A cuckoo filter beside a Counter: what was added is there, as often at least, until removed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from bloomery import CuckooFilter
from bloomery.errors import FilterFull
from properties.machines import RATES, FilterMachine, batches, driven, int64s
from properties.strategies import lines, members

MOST = 7  # copies of one key


class CuckooBesideACounter(FilterMachine):
    """Of fixed size, so that it fills up, or growing from a few keys on."""

    def __init__(self) -> None:
        super().__init__()
        self.held: Counter[Any] = Counter()
        self.filter = CuckooFilter(1)

    @initialize(
        capacity=st.integers(1, 300),
        rate=st.sampled_from(RATES),
        grow=st.booleans(),
        seed=st.integers(0, 99),
    )
    def start(self, capacity: int, rate: float, grow: bool, seed: int) -> None:
        capacity = capacity % 20 + 1 if grow else capacity
        self.filter = CuckooFilter(capacity, rate, grow=grow, seed=seed)

    @rule(key=members, times=st.sampled_from([1, 1, 1, 2, 9]))
    def add(self, key: Any, times: int) -> None:
        for _ in range(times):
            before = self.filter.copy()
            try:
                new = self.filter.add(key)
            except FilterFull:
                assert self.filter == before
                self.may_refuse(key)
                return
            assert not (new and key in self.held)
            self.held[key] += 1

    def may_refuse(self, key: Any) -> None:
        """One that grows refuses only a key that is there, or looks as if it were, 7 times."""
        assert not self.filter.info()["grow"] or self.filter.count(key) >= MOST

    @rule(keys=batches)
    def add_many(self, keys: list[Any]) -> None:
        self.batch(keys, keys)

    @rule(keys=int64s)
    def add_array(self, keys: list[int]) -> None:
        self.batch(np.array(keys, "int64"), keys)

    @rule(start=st.integers(0, 10**6), count=st.integers(50, 400))
    def add_a_range(self, start: int, count: int) -> None:
        self.batch(np.arange(start, start + count), list(range(start, start + count)))

    @rule(lines=lines)
    def add_lines(self, lines: list[bytes]) -> None:
        self.batch(b"".join(line + b"\n" for line in lines), lines)

    def batch(self, batch: Any, keys: list[Any]) -> None:
        """Add a batch: what comes before a key that is refused is in, and nothing else."""
        before = self.filter.estimated_count
        try:
            self.filter.add_lines(batch) if isinstance(batch, bytes) else self.filter.update(batch)
            taken = len(keys)
        except FilterFull:
            taken = self.filter.estimated_count - before
            self.may_refuse(keys[taken])
        self.held.update(keys[:taken])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.held)))
        assert self.filter.remove(key) is True
        self.removed([key])

    @precondition(lambda self: self.held)
    @rule(data=st.data(), share=st.sampled_from([0.1, 0.5, 1.0]))
    def remove_many(self, data: st.DataObject, share: float) -> None:
        """Each key as often as it is there, or fewer, in any order."""
        keys = list(self.held.elements())
        data.draw(st.randoms(use_true_random=False)).shuffle(keys)
        keys = keys[: int(len(keys) * share)]
        assert all(self.filter.remove_many(keys))
        self.removed(keys)

    def removed(self, keys: list[Any]) -> None:
        self.held.subtract(keys)
        self.held += Counter()  # keeps what is above 0

    @rule(key=members)
    def remove_what_is_not_there(self, key: Any) -> None:
        if key not in self.filter:
            before = self.filter.copy()
            with pytest.raises(KeyError):
                self.filter.remove(key)
            assert self.filter.discard(key) is False
            assert self.filter == before

    @invariant()
    def no_copy_is_forgotten(self) -> None:
        assert all(self.filter.count(key) >= times for key, times in self.held.items())

    @invariant()
    def every_copy_is_counted(self) -> None:
        assert self.filter.estimated_count == self.held.total()


TestCuckooBesideACounter = driven(CuckooBesideACounter)
