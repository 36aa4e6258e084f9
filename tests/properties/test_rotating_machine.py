"""A rotating filter beside a dict of generations: seen in the window, and forgotten after it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bloomery import RotatingBloomFilter
from properties.machines import batches, driven, int64s, journeys
from properties.strategies import members
from unit.clocks import Clock

EACH = 4.0  # seconds of a generation; times are whole quarters, so that the model's are exact
NEVER = range(10**9, 10**9 + 50)  # added


class RotatingBesideADict(RuleBasedStateMachine):
    """The dict has, by its hash, each key and the number of the generation in which it was last
    added. At an error rate of 1e-9 an answer that is not the dict's is a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="bloomery-machine-"))
        self.journeys = journeys(self.folder)
        self.clock = Clock(1000.0)
        self.started = 1000.0
        self.generation = self.filled = 0
        self.last: dict[int, tuple[Any, int]] = {}  # "a" and b"a" are one key
        self.filter: Any = None

    @initialize(
        capacity=st.integers(1, 200),
        generations=st.sampled_from([1, 2, 3, 7, 8, 31]),
        by_fill=st.booleans(),
    )
    def start(self, capacity: int, generations: int, by_fill: bool) -> None:
        self.generations, self.each = generations, -(-capacity // generations)
        self.window = None if by_fill else EACH * generations
        options: Any = {"window": self.window, "generations": generations, "clock": self.clock}
        self.filter = RotatingBloomFilter(capacity, 1e-9, **options)

    def tick(self) -> None:
        """Let the model's time pass."""
        passed = int((self.clock.now - self.started) // EACH)
        if self.window is not None and passed > 0:
            self.started += passed * EACH
            self.turn(passed)

    def turn(self, times: int = 1) -> None:
        self.generation += times
        self.filled = 0

    def age(self, key: Any) -> int:
        """How many generations ago it was last added; more than there are if it never was."""
        _, number = self.last.get(self.filter.hash_of(key), (key, -1000))
        return self.generation - number

    def seen(self, key: Any) -> bool:
        return self.age(key) <= self.generations

    def added(self, key: Any, new: bool) -> None:
        assert new != self.seen(key)
        if self.age(key) > 0:
            self.last[self.filter.hash_of(key)] = (key, self.generation)
            self.filled += 1
            if self.window is None and self.filled >= self.each:
                self.turn()

    @rule(key=members)
    def add(self, key: Any) -> None:
        self.added(key, self.filter.add(key))

    @rule(keys=batches)
    def add_many(self, keys: list[Any]) -> None:
        for key, new in zip(keys, self.filter.add_many(keys), strict=True):
            self.added(key, new)

    @rule(keys=int64s)
    def add_array(self, keys: list[int]) -> None:
        for key, new in zip(keys, self.filter.add_many(np.array(keys, "int64")), strict=True):
            self.added(key, new)

    @rule(start=st.integers(0, 500), count=st.integers(10, 600))
    def burst(self, start: int, count: int) -> None:
        """More than it was made for, some of it seen before."""
        keys = np.arange(start, start + count)
        for key, new in zip(keys.tolist(), self.filter.add_many(keys), strict=True):
            self.added(key, new)

    @rule(quarters=st.sampled_from([1, 3, 15, 16, 17, 40, 100]))
    def wait(self, quarters: int) -> None:
        self.clock.now += quarters / 4

    @rule(whole=st.integers(0, 40))
    def wait_for_an_edge(self, whole: int) -> None:
        """To the very moment at which a generation ends, or just before it."""
        self.clock.now = max(self.clock.now, self.started + whole // 2 * EACH - whole % 2 / 4)

    @rule(quarters=st.sampled_from([1, 20, 1000]))
    def go_back(self, quarters: int) -> None:
        self.clock.now -= quarters / 4

    @rule()
    def rotate(self) -> None:
        self.filter.rotate()
        self.tick()
        self.turn()
        self.started = self.clock.now

    @rule(data=st.data(), quarters=st.sampled_from([0, 1, 16, 30, 200]))
    def travel(self, data: st.DataObject, quarters: int) -> None:
        """By a file or another way, which takes its time."""
        name = data.draw(st.sampled_from(sorted(self.journeys)))
        made = self.journeys[name](self.filter)
        made.set_clock(self.clock)
        assert made == self.filter
        self.clock.now += quarters / 4
        self.filter = made

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.last.clear()
        self.filled = 0

    @invariant()
    def it_sees_what_the_dict_does(self) -> None:
        if self.filter is None:
            return
        self.tick()
        keys = [key for key, _ in self.last.values()]
        asked = [*keys, *NEVER]
        assert self.filter.contains_many(asked) == [self.seen(key) for key in asked]
        for key in keys[-20:]:
            found = self.filter.generation_of(key)
            assert (found.age if found else None) == (self.age(key) if self.seen(key) else None)
        self.last = {h: held for h, held in self.last.items() if self.seen(held[0])}

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


TestRotatingBesideADict = driven(RotatingBesideADict)
