"""A growing filter beside a set: it forgets nothing, whatever is done, and keeps its rate."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bloomery import ScalableBloomFilter
from properties.removing import RATES, batches, driven, int64s, journeys
from properties.strategies import HASHERS, lines, members


class ScalableBesideASet(RuleBasedStateMachine):
    """It starts with room for a few keys, so that it grows again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="bloomery-machine-"))
        self.journeys = journeys(self.folder)
        self.held: set[Any] = set()
        self.filter = ScalableBloomFilter(1)
        self.aside: tuple[ScalableBloomFilter, set[Any]] | None = None

    @initialize(
        capacity=st.integers(1, 20),
        rate=st.sampled_from(RATES),
        growth=st.sampled_from([1.125, 1.5, 2.0]),
        hasher=st.sampled_from(HASHERS),
    )
    def start(self, capacity: int, rate: float, growth: float, hasher: Any) -> None:
        self.filter = ScalableBloomFilter(capacity, rate, growth=growth, hasher=hasher)

    @rule(key=members)
    def add(self, key: Any) -> None:
        new = self.filter.add(key)
        assert not (new and key in self.held)
        self.held.add(key)

    @rule(keys=batches)
    def add_many(self, keys: list[Any]) -> None:
        for key, new in zip(keys, self.filter.add_many(keys), strict=True):
            assert not (new and key in self.held)
            self.held.add(key)

    @rule(keys=int64s)
    def add_array(self, keys: list[int]) -> None:
        self.filter.update(np.array(keys, "int64"))
        self.held |= set(keys)

    @rule(lines=lines)
    def add_lines(self, lines: list[bytes]) -> None:
        self.filter.add_lines(b"".join(line + b"\n" for line in lines))
        self.held |= set(lines)

    @rule(start=st.integers(0, 10**6), count=st.integers(50, 800))
    def add_a_range(self, start: int, count: int) -> None:
        """So many keys that it grows more than once within the batch."""
        keys = np.arange(start, start + count)
        before = self.filter.copy()
        new = self.filter.add_many(keys)
        assert [before.add(key) for key in keys.tolist()] == list(new)
        assert before == self.filter
        self.held |= set(keys.tolist())

    @rule(keys=batches)
    def ask(self, keys: list[Any]) -> None:
        assert self.filter.contains_many(keys) == [key in self.filter for key in keys]

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.journeys)))
        before = self.filter
        self.filter = self.journeys[name](before)
        assert self.filter == before

    @rule()
    def put_aside(self) -> None:
        self.aside = (self.filter.copy(), set(self.held))

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
    def nothing_is_forgotten(self) -> None:
        held = list(self.held)
        assert self.filter.contains_many(held) == [True] * len(held)

    @invariant()
    def the_rate_is_kept(self) -> None:
        assert self.filter.estimated_error_rate <= self.filter.error_rate
        assert self.filter.estimated_count <= len(self.held)
        assert not self.filter.saturated

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


TestScalableBesideASet = driven(ScalableBesideASet)
