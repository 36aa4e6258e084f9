"""A filter beside a plain collection that holds the same keys: what all such machines share."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import bloomery
from properties.strategies import lines, members

RATES = (0.5, 0.1, 0.01, 1e-3, 1e-5)
int64s = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30)
batches = st.lists(members, max_size=30)


def journeys(folder: Path) -> dict[str, Callable[[Any], Any]]:
    """Every way a filter can become another one without losing a key, by name."""
    path = folder / "filter.bloom"

    def through_file(filter: Any, **how: bool) -> Any:
        filter.save(path)
        return bloomery.open(path, **how)

    return {
        "copy": lambda f: f.copy(),
        "bytes": lambda f: type(f).from_bytes(f.to_bytes()),
        "pickle": lambda f: pickle.loads(pickle.dumps(f)),
        "load": through_file,
        "mmap": lambda f: through_file(f, mmap=True).copy(),
    }


class FilterMachine(RuleBasedStateMachine):
    """Every rule does the same to the filter and to what it is measured against (`held`). A
    subclass makes both, and adds."""

    filter: Any = None
    held: Any

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="bloomery-machine-"))
        self.journeys = journeys(self.folder)
        self.aside: tuple[Any, Any] | None = None

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.journeys)))
        before = self.filter
        self.filter = self.journeys[name](before)
        assert self.filter == before

    @rule()
    def clear(self) -> None:
        self.filter.clear()
        self.held.clear()
        assert self.filter.fill_ratio == 0
        assert "anything" not in self.filter

    @invariant()
    def nothing_is_forgotten(self) -> None:
        held = list(self.held)
        assert self.filter is None or self.filter.contains_many(held) == [True] * len(held)

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class SetMachine(FilterMachine):
    """A filter beside a set."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[Any] = set()

    @rule(key=members)
    def add(self, key: Any) -> None:
        new = self.filter.add(key)
        assert not (new and key in self.held)
        self.held.add(key)

    @rule(keys=st.lists(members | st.tuples(members, members), max_size=30))
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

    @rule()
    def put_aside(self) -> None:
        self.aside = (self.filter.copy(), set(self.held))


def driven(machine: type[RuleBasedStateMachine]) -> Any:
    """The machine as a test, with as many examples as the profile has time for."""
    case: Any = machine.TestCase
    case.settings = settings(
        max_examples=max(10, settings().max_examples // 4), stateful_step_count=25
    )
    return pytest.mark.slow(case)
