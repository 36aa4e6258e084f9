"""Anything a server does, and a kill at any time: the filters come back as they were."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bloomery import errors
from bloomery.service.domain import operations
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import IN_PLACE, Op
from bloomery.service.durability import snapshotter
from bloomery.service.engine import REFUSED
from conftest import effort
from unit.service.durability.serving import REMOVING, SETTINGS, Server, assert_same, missing, packed

MAY_BE_FULL = ("cuckoo", "rediscuckoo")
HASHES = st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([1, 2**63, 12345]), max_size=40)
NUMBERS = st.integers(0, 5)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # it syncs in no time
# Every filter is changed in a mapped file, however small.
snapshotter.MAP_FROM = 0


def text_of(entry: Entry) -> str:
    """The name of a filter, as records have it."""
    return operations.text_of(entry.name)


class ServerMachine(RuleBasedStateMachine):
    """Beside the server, the keys that each filter must have."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.copies = 0
        self.server = Server(self.folder / "0")
        self.keys: dict[int, Counter[int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "server"):
            self.server.log.close()
            shutil.rmtree(self.folder)

    def pick(self, number: int) -> Any:
        """One of the filters."""
        entries = list(self.server.state.filters.values())
        return entries[number % len(entries)]

    def do(self, op: Op, number: int, body: bytes = b"", name: str | None = None) -> Any:
        """Do an operation; return its result, or None if it was refused. The log has it all the
        same, and a replay refuses it too."""
        try:
            return self.server.do(op, number, body, name=None if name is None else name.encode())
        except operations.DamagedRecord:
            raise
        except errors.BloomeryError:
            return None

    @rule(kind=st.sampled_from([*SETTINGS]), name=st.sampled_from("abcdef"))
    def create(self, kind: str, name: str) -> None:
        number = self.server.state.next_id
        chosen = {"kind": kind, **SETTINGS[kind]}
        if self.do(Op.CREATE, number, operations.fields(settings=chosen), name):
            self.keys[number] = Counter()

    def has_filters(self) -> bool:
        return bool(self.server.state.filters)

    @precondition(has_filters)
    @rule(number=NUMBERS, hashes=HASHES)
    def add(self, number: int, hashes: list[int]) -> None:
        entry = self.pick(number)
        for value in hashes:
            before = entry.filter.to_bytes()
            (answers, _) = self.do(Op.ADD, entry.id, packed(value, kind=entry.settings["kind"]))
            copies = entry.settings["kind"] not in MAY_BE_FULL or entry.filter.to_bytes() != before
            if answers[0] != REFUSED and copies:
                self.keys[entry.id][value] += 1

    @precondition(has_filters)
    @rule(
        number=NUMBERS,
        seed=st.integers(0, 2**64 - 1),
        count=st.integers(1, 400),
        op=st.sampled_from([Op.ADD, Op.ADD_NEW, Op.ADD_IN_PLACE, Op.ADD_NEW_IN_PLACE]),
    )
    def add_many(self, number: int, seed: int, count: int, op: Op) -> None:
        entry = self.pick(number)
        if op in IN_PLACE.values() and entry.settings["kind"] == "bank":
            return  # the log has no such record
        if entry.settings["kind"] not in MAY_BE_FULL:
            values = [(seed + n) * 0x9E3779B97F4A7C15 % 2**64 for n in range(count)]
            (answers, _) = self.do(op, entry.id, packed(*values, kind=entry.settings["kind"]))
            # A key that may be present is not added again if only new ones are.
            stored = {0, 1} if op in (Op.ADD, Op.ADD_IN_PLACE) else {1}
            taken = [
                value for value, answer in zip(values, answers, strict=True) if answer in stored
            ]
            self.keys[entry.id].update(taken)

    @precondition(has_filters)
    @rule(number=NUMBERS, which=st.integers(0, 50))
    def remove(self, number: int, which: int) -> None:
        entry = self.pick(number)
        keys = self.keys[entry.id]
        if entry.settings["kind"] in REMOVING and keys:
            value = list(keys)[which % len(keys)]
            self.do(Op.REMOVE, entry.id, packed(value))
            keys[value] -= 1
            if keys[value] <= 0:
                del keys[value]

    @precondition(has_filters)
    @rule(number=NUMBERS, op=st.sampled_from([Op.DROP, Op.CLEAR]))
    def forget(self, number: int, op: Op) -> None:
        entry = self.pick(number)
        self.do(op, entry.id)
        self.keys[entry.id] = Counter()

    @precondition(has_filters)
    @rule(
        number=NUMBERS,
        to=st.sampled_from("abcdef"),
        replace=st.booleans(),
        seconds=st.none() | st.floats(0, 100),
    )
    def rename(self, number: int, to: str, replace: bool, seconds: float | None) -> None:
        """All of it or nothing: the name may be taken."""
        fields: dict[str, Any] = {"to": to, "replace": replace}
        fields |= {} if seconds is None else self._changes(seconds)
        self.do(Op.RENAME, self.pick(number).id, operations.fields(**fields))

    @precondition(has_filters)
    @rule(number=NUMBERS, name=st.sampled_from("abcdef"), replace=st.booleans())
    def copy(self, number: int, name: str, replace: bool) -> None:
        source, made = self.pick(number), self.server.state.next_id
        fields = operations.fields(source=source.id, of=text_of(source), replace=replace)
        if self.do(Op.COPY, made, fields, name):
            self.keys[made] = Counter(self.keys[source.id])

    @precondition(has_filters)
    @rule(number=NUMBERS, other=NUMBERS)
    def merge(self, number: int, other: int) -> None:
        target, source = self.pick(number), self.pick(other)
        if self.do(Op.MERGE, target.id, operations.fields(sources=[[source.id, text_of(source)]])):
            self.keys[target.id] += self.keys[source.id]

    @precondition(has_filters)
    @rule(number=NUMBERS, op=st.sampled_from([Op.ROTATE, Op.COMPACT]))
    def turn(self, number: int, op: Op) -> None:
        entry = self.pick(number)
        if self.do(op, entry.id) and op == Op.ROTATE:
            self.keys[entry.id] = Counter()  # some of them

    @precondition(has_filters)
    @rule(number=NUMBERS, seconds=st.none() | st.floats(0, 100))
    def expire(self, number: int, seconds: float | None) -> None:
        at = None if seconds is None else self.server.now + seconds
        self.do(Op.EXPIRE, self.pick(number).id, operations.fields(at=at))

    @precondition(has_filters)
    @rule(number=NUMBERS, seconds=st.floats(0, 100))
    def adjust(self, number: int, seconds: float) -> None:
        self.do(Op.ADJUST, self.pick(number).id, operations.fields(**self._changes(seconds)))

    def _changes(self, seconds: float) -> dict[str, Any]:
        return {"settings": {"warn_at": 0.5}, "at": self.server.now + seconds}

    @rule(seconds=st.floats(0.01, 90))
    def wait(self, seconds: float) -> None:
        self.server.wait(seconds)
        for entry in self.server.state.filters.values():
            if entry.settings["kind"] == "rotating":
                self.keys[entry.id] = Counter()  # some of them

    @rule()
    def cut(self) -> None:
        self.server.log.cut()
        self.server.log.sync()

    @rule()
    def snapshot(self) -> None:
        self.server.snapshot()

    @rule()
    def crash(self) -> None:
        """Go on from what a kill would leave."""
        self.copies += 1
        reborn = Server(self.server.killed(self.folder / str(self.copies)))
        assert reborn.recovery.problems == []
        assert_same(reborn.state, self.server.state)
        for entry in reborn.state.filters.values():
            known = packed(*self.keys[entry.id], kind=entry.settings["kind"])
            assert missing(entry.filter, known) == 0, "a key is lost"
        reborn.now = self.server.now
        self.server.log.close()
        self.server = reborn


# Many files are copied in each step of these: fewer examples than elsewhere.
ServerMachine.TestCase.settings = settings(max_examples=effort(20, 40, 2000))
TestServer = pytest.mark.slow(ServerMachine.TestCase)
