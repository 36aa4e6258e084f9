"""A source that goes and comes at any moment, as a model: every write once and in order, every
look-up answered, nothing denied that is there."""

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
from bloomery.guard import Answer, Guard, SqliteQueue
from bloomery.guard.parts import Item
from conftest import effort
from unit.guard.flaky import QUIET, Flaky
from unit.guard.table import Memory


class Unsure(SqliteQueue):
    """A queue that may fail when it is told what is done."""

    fails = False

    def done(self, items: Sequence[Item]) -> None:
        """Sometimes."""
        if self.fails:
            raise QueueUnavailable("the disk is away")
        super().done(items)


class Outages(RuleBasedStateMachine):
    """A source that goes and comes; what was acknowledged is the model."""

    keys = st.integers(0, 11)

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.source = Flaky()
        self.queue = Unsure(Path(self.folder.name) / "q", fsync=False)
        self.cache = Memory()
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
        self.filter = filter(32 if filter is CuckooFilter else 8, 0.2)
        self.start()

    def start(self) -> None:
        self.guard = Guard(
            self.filter,
            self.source,
            cache=self.cache,
            queue=self.queue,
            on_answer=lambda key, answer: self.answered.append((key, answer)),
            **QUIET,
        )

    @rule(mode=st.sampled_from(["up", "down", "late"]))
    def turn(self, mode: str) -> None:
        """The source goes, or comes."""
        self.source.mode = mode

    @rule(key=keys, adds=st.booleans())
    def write(self, key: int, adds: bool) -> None:
        """Every write is acknowledged, by the source or by the queue."""
        self.number += 1
        token = f"t{self.number}"
        before = self.states[-1]
        if adds:
            answer = self.guard.add(key, self.number, idempotency_key=token)
            self.states.append({**before, key: self.number})
        else:
            answer = self.guard.remove(key, idempotency_key=token)
            self.states.append({one: value for one, value in before.items() if one != key})
            if answer.confirmed:
                assert answer.found == (key in before)
        self.tokens.append(token)

    @rule(key=keys)
    def look(self, key: int) -> None:
        """A confirmed answer knows every write before it; any other waits."""
        answer = self.guard.get(key)
        if answer.by in ("source", "cache"):
            assert (answer.found, answer.value) == (
                key in self.states[-1],
                self.states[-1].get(key),
            )
        elif answer.by == "unconfirmed":
            assert answer.queued is not None
            self.asked[answer.queued] = (key, len(self.states) - 1)

    @rule()
    def drain(self) -> None:
        """By hand, until the source goes."""
        self.guard.drain()
        self.hear()

    @rule()
    def drain_in_vain(self) -> None:
        """The source does some, and the queue cannot be told."""
        self.queue.fails = True
        with contextlib.suppress(QueueUnavailable):
            self.guard.drain()
        self.queue.fails = False
        self.hear()

    @rule()
    def restart(self) -> None:
        """Another guard on the same queue: what it knew is gone."""
        self.guard._core.closing = True
        self.guard._wake.set()
        assert self.guard._drainer is not None
        self.guard._drainer.join()  # it may hold the lease: then another would not drain
        self.start()

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
        """At no moment the filter denies what the source holds."""
        assert all(key in self.filter for key in self.source.rows)

    @precondition(lambda self: hasattr(self, "guard"))
    @invariant()
    def nothing_is_forgotten(self) -> None:
        """What a guard remembers of the queue is in the queue."""
        assert len(self.guard._core.copies) <= self.queue.writes()

    def teardown(self) -> None:
        """In the end the source has every write once, in order, and every look-up its answer."""
        try:
            if hasattr(self, "guard"):
                self.source.mode = "up"
                self.drain()
                assert (self.queue.waiting(), self.queue.parked()) == (0, [])
                assert list(self.source.did) == self.tokens
                assert self.source.rows == self.states[-1]
                assert self.asked == {}
                self.nothing_is_denied()
                self.guard.close()
        finally:
            self.queue.close()
            self.folder.cleanup()


TestOutages = pytest.mark.slow(Outages.TestCase)
TestOutages.settings = settings(max_examples=effort(10, 60, 2000), stateful_step_count=30)
