"""Commands of every sort beside a model in plain Python, over a server that is stopped and killed
in between. What is dumped before the end and after the start is the same, byte for byte."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from conftest import effort
from integration.durability.load import KINDS
from integration.resp.wire import Connection, Refused
from integration.servers import BloomeryServer, Serve

pytestmark = pytest.mark.slow
names = st.sampled_from([b"a", b"b", b"c", b"\xff\x00 \r\n"])
keys = st.sampled_from([f"k{number}".encode() for number in range(60)] + [b"", b"\x00\xff"])
many = st.lists(keys, min_size=1, max_size=30)
kinds = st.sampled_from(list(KINDS))
COPIES = 3  # of a key: more may find no room
REMOVES = {"counting", "cuckoo", "rediscuckoo"}
ONCE = {"bloom", "scalable", "rotating"}  # where BF.CARD is the number of distinct keys


@dataclass
class Model:
    """A filter: how often each key was added, and when it ends."""

    kind: str
    keys: Counter[bytes] = field(default_factory=Counter)
    unsure: set[bytes] = field(default_factory=set)  # removed, where that need not take them out
    expires_at: int = -1

    @property
    def door(self) -> str:
        """Which commands it answers to."""
        return "CF" if self.kind == "rediscuckoo" else "BF"


class Commands(RuleBasedStateMachine):
    """The rules; the server is of the test that runs them."""

    server: ClassVar[BloomeryServer]

    def __init__(self) -> None:
        super().__init__()
        self.connection = Connection(self.server.resp_port)
        self.filters: dict[bytes, Model] = {}
        self.ends = self.saves = 0  # each takes a second: a few of them for each run

    def teardown(self) -> None:
        """Leave nothing to the next run."""
        self.connection.ask("FLUSHALL")
        self.connection.close()

    @initialize()
    def begin(self) -> None:
        """Nothing is left of the run before."""
        assert self.connection.ask("KEYS", "*") == []

    @rule(name=names, kind=kinds)
    def reserve(self, name: bytes, kind: str) -> None:
        """A new name gets a filter, a taken one an error."""
        command, *rest = KINDS.get(kind, KINDS["scalable"])
        if name in self.filters:
            with pytest.raises(Refused):
                self.connection.ask(command, name, *rest)
        else:
            assert self.connection.ask(command, name, *rest) == b"OK"
            self.filters[name] = Model(kind)

    @rule(name=names, these=many)
    def add(self, name: bytes, these: list[bytes]) -> None:
        """Each key is new once; where copies count, each time."""
        model = self.filters.get(name)
        if model is None:
            return
        these = [key for key in these if model.keys[key] + these.count(key) <= COPIES]
        if not these:
            return
        if model.door == "CF":
            assert self.connection.ask("CF.INSERT", name, "ITEMS", *these) == [1] * len(these)
        else:
            answers = self.connection.ask("BF.MADD", name, *these)
            for at, (key, answer) in enumerate(zip(these, answers, strict=True)):
                if key not in model.unsure:
                    assert answer == int(not model.keys[key] and key not in these[:at])
        model.keys.update(these)
        model.unsure -= set(these)

    @rule(name=names, key=keys)
    def remove(self, name: bytes, key: bytes) -> None:
        """One copy less of what is there; of what is not, 0."""
        model = self.filters.get(name)
        if model is None:
            return
        if model.kind not in {*REMOVES, "deletable"}:
            with pytest.raises(Refused):
                self.connection.ask("BF.DEL", name, key)
            return
        if model.kind == "deletable":
            if model.keys[key] == 1:
                self.connection.ask("BF.DEL", name, key)
                model.keys[key] = 0
                model.unsure.add(key)
            return
        answer = self.connection.ask(f"{model.door}.DEL", name, key)
        assert answer == int(model.keys[key] > 0)
        model.keys[key] -= answer

    @rule(name=names, to=names, replace=st.booleans())
    def copy(self, name: bytes, to: bytes, replace: bool) -> None:
        """A copy has the keys and the end of what it was made from."""
        words = (b"COPY", name, to, b"REPLACE")[: 4 if replace else 3]
        if name == to:
            with pytest.raises(Refused):
                self.connection.ask(*words)
            return
        done = name in self.filters and (replace or to not in self.filters)
        assert self.connection.ask(*words) == int(done)
        if done:
            one = self.filters[name]
            self.filters[to] = Model(one.kind, one.keys.copy(), one.unsure.copy(), one.expires_at)

    @rule(name=names, to=names)
    def rename(self, name: bytes, to: bytes) -> None:
        """A filter takes its new name from whoever had it."""
        if name in self.filters:
            assert self.connection.ask("RENAME", name, to) == b"OK"
            self.filters[to] = self.filters.pop(name)
        else:
            with pytest.raises(Refused):
                self.connection.ask("RENAME", name, to)

    @rule(name=names)
    def drop(self, name: bytes) -> None:
        """Dropped is dropped."""
        assert self.connection.ask("DEL", name) == int(name in self.filters)
        self.filters.pop(name, None)

    @rule(name=names)
    def clear(self, name: bytes) -> None:
        """A filter without its keys."""
        model = self.filters.get(name)
        if model is not None and model.door == "BF":
            assert self.connection.ask("BF.CLEAR", name) == b"OK"
            model.keys.clear()
            model.unsure.clear()

    @rule(name=names, seconds=st.integers(1000, 9000))
    def expire(self, name: bytes, seconds: int) -> None:
        """A filter ends when it was told to."""
        at = int(time.time() + seconds) * 1000
        done = self.connection.ask("PEXPIREAT", name, at)
        assert done == int(name in self.filters)
        if done:
            self.filters[name].expires_at = at

    @rule(name=names)
    def persist(self, name: bytes) -> None:
        """Or never."""
        model = self.filters.get(name)
        ended = model is not None and model.expires_at != -1
        assert self.connection.ask("PERSIST", name) == int(ended)
        if model is not None:
            model.expires_at = -1

    @rule(name=names)
    def rotate(self, name: bytes) -> None:
        """What came in this snapshot is kept by the next one."""
        model = self.filters.get(name)
        if model is not None and model.kind == "rotating":
            assert self.connection.ask("BF.ROTATE", name) == b"OK"
            model.kind = "rotated"

    @precondition(lambda self: self.filters and self.saves < 2)
    @rule()
    def save(self) -> None:
        """A snapshot changes nothing."""
        self.saves += 1
        assert self.connection.ask("SAVE") == b"OK"

    @precondition(lambda self: self.filters and self.ends < 2)
    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        """After an end and a start every filter is as it was, byte for byte."""
        self.ends += 1
        before = self.dump()
        self.connection.close()
        if kill:
            self.server.kill()
        else:
            assert self.server.stop() == 0
        self.server.start()
        self.connection = Connection(self.server.resp_port)
        assert self.dump() == before
        assert self.connection.info()["recovery_problems"] == "0"

    def dump(self) -> dict[bytes, list[Any]]:
        """All that can be told of all filters."""
        found: dict[bytes, list[Any]] = {}
        for name, model in self.filters.items():
            told = [self.connection.ask(f"{model.door}.INFO", name)]
            told.append(self.connection.ask("PEXPIRETIME", name))
            iterator = 0
            while True:
                iterator, data = self.connection.ask(f"{model.door}.SCANDUMP", name, iterator)
                told.append((iterator, data))
                if iterator == 0:
                    break
            found[name] = told
        return found

    @invariant()
    def agrees(self) -> None:
        """Names, keys, counts and ends are the model's."""
        assert set(self.connection.ask("KEYS", "*")) == set(self.filters)
        every = [f"k{number}".encode() for number in range(60)]
        for name, model in self.filters.items():
            assert self.connection.ask("PEXPIRETIME", name) == model.expires_at
            answers = self.connection.ask(f"{model.door}.MEXISTS", name, *every)
            for key, answer in zip(every, answers, strict=True):
                if key not in model.unsure:
                    assert answer == int(model.keys[key] > 0), (model.kind, name, key)
            if model.kind in ONCE:
                distinct = sum(count > 0 for count in model.keys.values())
                assert self.connection.ask("BF.CARD", name) == distinct
            if model.door == "CF":
                counts = self.connection.ask_all([("CF.COUNT", name, key) for key in every])
                assert counts == [model.keys[key] for key in every]


@pytest.mark.parametrize("layout", ["bloomery", "redisbloom"])
def test_the_server_beside_a_model(serve: Serve, layout: str) -> None:
    """Whatever is asked of a server, it answers as a plain model does, through kills, stops and
    snapshots, in either layout."""

    class Run(Commands):
        server = serve("--bf-layout", layout, "--set", "snapshot-log-bytes=65536")

    effort_spent = settings(max_examples=effort(2, 8, 100), stateful_step_count=40)
    run_state_machine_as_test(Run, settings=effort_spent)
