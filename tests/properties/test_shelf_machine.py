"""Whatever is done to the filters of an engine, its native shelf shows the same ones, and a replay
of its log leads to them."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bloomery import errors
from bloomery.service.clock import Clock
from conftest import effort
from unit.service.durability.serving import SETTINGS
from unit.service.opened import assert_replay_is_same, opened

NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])
KEYS = st.lists(st.binary(min_size=1, max_size=3), max_size=20)


class ShelfMachine(RuleBasedStateMachine):
    """An engine without a server; the native shelf is written by its state alone."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.time = 1000.0
        self.loop = asyncio.new_event_loop()
        clock = Clock(self.time, lambda: self.time, lambda: self.time)
        self.opened = opened(Path(self.folder.name), clock, fsync="never")
        self.served = self.loop.run_until_complete(self.opened.__aenter__())
        self.engine, self.commands = self.served.engine, self.served.commands

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.settle()
            self.loop.run_until_complete(self.opened.__aexit__(None, None, None))
            self.loop.close()
            assert_replay_is_same(Path(self.folder.name), self.served.state)
            self.folder.cleanup()

    def do(self, operation: Any, *arguments: Any, **options: Any) -> None:
        """Do a command, which may be refused."""
        names = [argument for argument in arguments if isinstance(argument, bytes)]
        work = self.commands.run(names, lambda: operation(*arguments, **options))
        try:
            self.loop.run_until_complete(work)
        except errors.BloomeryError:
            return

    def settle(self) -> None:
        """Let everything that was submitted be applied."""

        async def idle() -> None:
            while not self.served.sequencer.idle:
                await asyncio.sleep(0)
            await self.served.batches.finished()

        self.loop.run_until_complete(idle())

    @rule(name=NAMES, kind=st.sampled_from([*SETTINGS]))
    def create(self, name: bytes, kind: str) -> None:
        self.do(self.commands.create, name, kind, **SETTINGS[kind])

    @rule(name=NAMES, keys=KEYS)
    def add(self, name: bytes, keys: list[bytes]) -> None:
        self.do(self.commands.add, name, keys)

    @rule(name=NAMES, keys=KEYS)
    def remove(self, name: bytes, keys: list[bytes]) -> None:
        self.do(self.commands.remove, name, keys)

    @rule(name=NAMES, operation=st.sampled_from(["drop", "clear", "rotate", "compact"]))
    def change(self, name: bytes, operation: str) -> None:
        self.do(getattr(self.commands, operation), name)

    @rule(name=NAMES, to=NAMES, operation=st.sampled_from(["rename", "merge"]))
    def with_another(self, name: bytes, to: bytes, operation: str) -> None:
        self.do(getattr(self.commands, operation), name, to)

    @rule(name=NAMES, to=NAMES, replace=st.booleans())
    def copy(self, name: bytes, to: bytes, replace: bool) -> None:
        self.do(self.commands.copy, name, to, replace=replace)

    @rule(name=NAMES, seconds=st.none() | st.floats(1, 100))
    def expire(self, name: bytes, seconds: float | None) -> None:
        self.do(self.commands.expire, name, None if seconds is None else self.time + seconds)

    @rule(seconds=st.floats(0.1, 60))
    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.engine.begin()
        self.settle()

    @precondition(lambda self: len(self.engine.state.names) > 0)
    @rule(name=NAMES, to=NAMES, cut=st.integers(50, 200))
    def load(self, name: bytes, to: bytes, cut: int) -> None:
        """Also what is still being loaded is on the shelf."""
        entry = self.engine.state.names.get(name)
        if entry is not None and entry.filter is not None and hasattr(entry.filter, "to_bytes"):
            data = entry.filter.to_bytes()
            self.do(self.commands.load, to, 1, data[:cut])
            self.do(self.commands.load, to, 1 + cut, data[cut:])

    @invariant()
    def is_the_same(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.settle()
        state, shelf = self.engine.state, self.engine.shelf
        assert len(shelf) == len(state.names) == len(state.filters)
        for name, entry in state.names.items():
            assert (entry.name, state.filters[entry.id]) == (name, entry)
            figures = shelf.figures(name)
            assert figures is not None
            assert figures[0] == state.count(entry)


ShelfMachine.TestCase.settings = settings(max_examples=effort(20, 100, 2000))
TestShelf = ShelfMachine.TestCase
