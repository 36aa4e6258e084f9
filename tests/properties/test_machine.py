"""A filter beside a Python set: whatever is done to both, the filter forgets nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from properties.machines import SetMachine, driven
from properties.strategies import journeys, make, shapes


class FilterBesideASet(SetMachine):
    """Of any shape; only filters of one size are merged."""

    def __init__(self) -> None:
        super().__init__()
        self.journeys = journeys(self.folder)

    @initialize(shape=shapes, capacity=st.integers(1, 2000))
    def start(self, shape: dict[str, Any], capacity: int) -> None:
        self.filter = make(shape, capacity)

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.journeys)))
        self.filter = self.journeys[name](self.filter)
        if self.filter.read_only:
            self.filter = self.filter.copy()

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


TestFilterBesideASet = driven(FilterBesideASet)
