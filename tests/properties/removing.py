"""A filter from which keys can be removed beside a Counter: the rules all such kinds share."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from properties.machines import RATES, FilterMachine, batches, int64s
from properties.strategies import lines, members


class RemovingBesideACounter(FilterMachine):
    """Every rule does the same to the filter and to the Counter it is measured against. A subclass
    makes the filter, and may know more about its counts."""

    def __init__(self) -> None:
        super().__init__()
        self.held: Counter[Any] = Counter()

    def make(self, capacity: int, error_rate: float, choice: int) -> Any:
        """An empty filter; `choice` is a number to choose what else there is to choose."""
        raise NotImplementedError

    def removed(self, key: Any) -> None:
        """Called when the filter has said that the key was taken out."""
        self.held[key] -= 1
        self.held += Counter()  # keeps what is above 0

    @initialize(
        capacity=st.integers(1, 300), rate=st.sampled_from(RATES), choice=st.integers(0, 99)
    )
    def start(self, capacity: int, rate: float, choice: int) -> None:
        self.filter = self.make(capacity, rate, choice)

    @rule(key=members, times=st.sampled_from([1, 1, 1, 2, 20]))
    def add(self, key: Any, times: int) -> None:
        for _ in range(times):
            new = self.filter.add(key)
            assert not (new and key in self.held)
            self.held[key] += 1

    @rule(keys=batches)
    def add_many(self, keys: list[Any]) -> None:
        for key, new in zip(keys, self.filter.add_many(keys), strict=True):
            assert not (new and key in self.held)
            self.held[key] += 1

    @rule(keys=int64s)
    def add_array(self, keys: list[int]) -> None:
        self.filter.update(np.array(keys, "int64"))
        self.held.update(keys)

    @rule(lines=lines)
    def add_lines(self, lines: list[bytes]) -> None:
        self.filter.add_lines(b"".join(line + b"\n" for line in lines))
        self.held.update(lines)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(list(self.held)))
        if self.filter.remove(key):
            self.removed(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove_many(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(list(self.held)), unique_by=id, max_size=20))
        for key, gone in zip(keys, self.filter.remove_many(keys), strict=True):
            if gone:
                self.removed(key)

    @rule(key=members)
    def remove_what_is_not_there(self, key: Any) -> None:
        if key not in self.filter:
            assert key not in self.held
            before = self.filter.copy()
            with pytest.raises(KeyError):
                self.filter.remove(key)
            assert self.filter.discard(key) is False
            assert self.filter == before

    @rule()
    def put_aside(self) -> None:
        self.aside = (self.filter.copy(), Counter(self.held))

    @precondition(lambda self: self.aside is not None)
    @rule()
    def merge(self) -> None:
        assert self.aside is not None
        self.filter |= self.aside[0]
        self.held += self.aside[1]

    @precondition(lambda self: self.aside is not None)
    @rule()
    def narrow(self) -> None:
        assert self.aside is not None
        self.filter &= self.aside[0]
        self.held &= self.aside[1]
