"""A filter beside a Python set: whatever is done to both, the filter forgets nothing."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bloomery import BloomFilter
from properties.strategies import journeys, lines, make, members, shapes

int64s = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30)
batches = st.lists(members | st.tuples(members, members), max_size=30)


class FilterBesideASet(RuleBasedStateMachine):
    """Every rule does the same to the filter and to the set it is measured against."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="bloomery-machine-"))
        self.journeys = journeys(self.folder)
        self.held: set[Any] = set()
        self.filter = BloomFilter(1)
        self.aside: tuple[BloomFilter, set[Any]] | None = None

    @initialize(shape=shapes, capacity=st.integers(1, 2000))
    def start(self, shape: dict[str, Any], capacity: int) -> None:
        self.filter = make(shape, capacity)

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
        _, used, seen, _ = self.filter.add_lines(b"".join(line + b"\n" for line in lines))
        assert (used, seen) == (sum(map(len, lines)) + len(lines), len(lines))
        self.held |= set(lines)

    @rule(keys=batches)
    def ask(self, keys: list[Any]) -> None:
        assert self.filter.contains_many(keys) == [key in self.filter for key in keys]

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.journeys)))
        self.filter = self.journeys[name](self.filter)
        if self.filter.read_only:
            self.filter = self.filter.copy()

    @rule()
    def put_aside(self) -> None:
        self.aside = (self.filter.copy(), set(self.held))

    @precondition(lambda self: self.aside is not None and self._fits())
    @rule()
    def merge(self) -> None:
        assert self.aside is not None
        self.filter |= self.aside[0]
        self.held |= self.aside[1]

    @precondition(lambda self: self.aside is not None and self._fits())
    @rule()
    def narrow(self) -> None:
        assert self.aside is not None
        self.filter &= self.aside[0]
        self.held &= self.aside[1]

    def _fits(self) -> bool:
        return self.aside is not None and self.aside[0].num_bits == self.filter.num_bits

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.held.clear()
        assert self.filter.fill_ratio == 0
        assert "anything" not in self.filter

    @invariant()
    def nothing_is_forgotten(self) -> None:
        held = list(self.held)
        assert self.filter.contains_many(held) == [True] * len(held)

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


TestFilterBesideASet = pytest.mark.slow(FilterBesideASet.TestCase)
TestFilterBesideASet.settings = settings(
    max_examples=max(10, settings().max_examples // 4), stateful_step_count=25
)
