"""A source that goes and comes at any moment, as a model, with two guards on one filter, one cache
and one queue: every write once and in order, every look-up answered, nothing denied that is
there."""

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bloomery import BloomFilter, CountingBloomFilter, CuckooFilter, DeletableBloomFilter
from bloomery.errors import QueueUnavailable
from bloomery.guard import Answer, Guard, LocalCache, SqliteQueue
from bloomery.guard.protocols import Item
from conftest import effort
from privates import end_drainer
from unit.guard.flaky import QUIET, Flaky, end_lease


class Unsure(SqliteQueue):
    """A queue that may fail when it is told what is done."""

    fails = False

    def done(self, items: Sequence[Item]) -> int:
        """Sometimes."""
        if self.fails:
            raise QueueUnavailable("the disk is away")
        return super().done(items)


class Outages(RuleBasedStateMachine):
    """A source that goes and comes; what was acknowledged is the model."""

    keys = st.integers(0, 11)
    which = st.integers(0, 1)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.source = Flaky()
        self.queue = Unsure(Path(self.folder.name) / "q", fsync=False)
        self.cache = LocalCache(100)
        self.states: list[dict[int, Any]] = [{}]  # after each acknowledged write
        self.tokens: list[str] = []
        self.asked: dict[str, tuple[int, int]] = {}  # look-ups that wait: key, and when asked
        self.answered: list[tuple[int, Answer]] = []
        self.number = 0

    @initialize(
        filter=st.sampled_from(
            [BloomFilter, CountingBloomFilter, CuckooFilter, DeletableBloomFilter]
        )
    )
    def begin(self, filter: Any) -> None:
        """Small filters: keys share most of their bits."""
        self.filter = filter(96 if filter is CuckooFilter else 8, 0.2)
        self.guards = [self.start(), self.start()]

    def start(self) -> Guard:
        made = Guard(
            self.filter,
            self.source,
            cache=self.cache,
            queue=self.queue,
            on_answer=lambda key, answer: self.answered.append((key, answer)),
            **QUIET,
        )
        self.hold(made)
        return made

    def hold(self, guard: Guard) -> None:
        """Let it drain when it is told to: two at once have no order that a model could know."""
        end_drainer(guard)

    @rule(mode=st.sampled_from(["up", "down", "late"]))
    def turn(self, mode: str) -> None:
        """The source goes, or comes."""
        self.source.mode = mode

    @rule(which=which, key=keys, adds=st.booleans())
    def write(self, which: int, key: int, adds: bool) -> None:
        """Every write is acknowledged, by the source or by the queue."""
        self.number += 1
        token = f"t{self.number}"
        before = self.states[-1]
        if adds:
            answer = self.guards[which].add(key, self.number, idempotency_key=token)
            self.states.append({**before, key: self.number})
        else:
            answer = self.guards[which].remove(key, idempotency_key=token)
            self.states.append({one: value for one, value in before.items() if one != key})
            if answer.confirmed:
                assert answer.found == (key in before)
        self.tokens.append(token)

    @rule(which=which, key=keys)
    def look(self, which: int, key: int) -> None:
        """A confirmed answer knows every write before it, of either guard; any other waits."""
        answer = self.guards[which].get(key)
        if answer.by in ("source", "cache"):
            assert (answer.found, answer.value) == (
                key in self.states[-1],
                self.states[-1].get(key),
            )
        elif answer.by == "unconfirmed":
            assert answer.queued is not None
            self.asked[answer.queued] = (key, len(self.states) - 1)

    @rule(which=which)
    def drain(self, which: int) -> None:
        """By hand, until the source goes."""
        self.guards[which].drain()
        self.hear()

    @rule(which=which)
    def drain_in_vain(self, which: int) -> None:
        """The source does some, and the queue cannot be told."""
        self.queue.fails = True
        with contextlib.suppress(QueueUnavailable):
            self.guards[which].drain()
        self.queue.fails = False
        end_lease(Path(self.folder.name) / "q")
        self.hear()

    @rule(which=which)
    def restart(self, which: int) -> None:
        """Another guard on the same queue: what it knew is gone."""
        self.guards[which] = self.start()

    def hear(self) -> None:
        """Each answer was true at some moment after it was asked for."""
        waiting = {item.idempotency_key for item in self.queue.head(10_000)}
        told = {token: asked for token, asked in self.asked.items() if token not in waiting}
        for key, since in told.values():
            answers = [answer for one, answer in self.answered if one == key]
            possible = [(key in state, state.get(key)) for state in self.states[since:]]
            assert any((answer.found, answer.value) in possible for answer in answers)
        self.asked = {token: at for token, at in self.asked.items() if token in waiting}
        if not self.asked:
            self.answered.clear()

    @invariant()
    def nothing_is_denied(self) -> None:
        """At no moment the filter denies what the source holds, or is to get."""
        assert all(key in self.filter for key in [*self.source.rows, *self.queue.keys()])

    @precondition(lambda self: hasattr(self, "guards"))
    @invariant()
    def copies_are_few(self) -> None:
        """A cuckoo filter is not filled by keys that are written often."""
        if self.filter.kind == "cuckoo":
            assert all(self.filter.count(key) <= 7 for key in range(12))

    def teardown(self) -> None:
        """In the end the source has every write once, in order, and every look-up its answer."""
        try:
            if hasattr(self, "guards"):
                self.source.mode = "up"
                self.drain(0)
                assert (self.queue.waiting(), self.queue.parked()) == (0, [])
                assert list(self.source.did) == self.tokens
                assert self.source.rows == self.states[-1]
                assert self.asked == {}
                self.nothing_is_denied()
                for guard in self.guards:
                    guard.close()
        finally:
            self.queue.close()
            self.folder.cleanup()


TestOutages = pytest.mark.slow(Outages.TestCase)
TestOutages.settings = settings(max_examples=effort(10, 60, 2000), stateful_step_count=30)
