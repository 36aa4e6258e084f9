"""A rebuild beside everything else: writes, removals, late commits, the queue, in any order.

Every flow of the guard is stepped by hand: a rule takes one step of one of them, so that a shrunk
failure is the shortest interleaving that goes wrong. After each step, what the source holds is in
the filter that answers. Filters are small and err often, so that harm done to a neighbour shows.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bloomery import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    DeletableBloomFilter,
    ScalableBloomFilter,
    errors,
)
from bloomery.guard import Guard
from bloomery.guard.driver import Call
from bloomery.guard.lookups import confirm
from bloomery.guard.queues.draining import drain
from bloomery.guard.rebuilding import rebuild
from bloomery.guard.writes import add, remove
from privates import core_of
from unit.guard.stepping import Steps
from unit.guard.table import Line, Memory, Table

KEYS = [f"key {n}" for n in range(5)]
OUTCOMES = ("done", "done", "lost", "unheard", "late")


def made(kind: Any) -> Any:
    """A filter that errs, but has room for some copies of each key."""
    return kind(64, 0.05) if kind is CuckooFilter else kind(8, 0.3)


class RebuildingBesideWrites(RuleBasedStateMachine):
    """A subclass says of which kind the filters are."""

    kind: Any = None
    queued = False

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cache = Table(), Memory()
        self.flows: list[Steps] = []
        self.late: list[Callable[[], object]] = []
        self.rebuilt: Any = None
        self.outcome = "done"
        options: dict[str, Any] = {"failures": 10**6}
        if self.queued:
            options |= {"queue": Line(), "on_outage": "queue"}
        guard = Guard(made(self.kind), self.table, cache=self.cache, **options)
        guard.close()  # draining is a rule
        self.core = core_of(guard)

    @initialize(keys=st.sets(st.sampled_from(KEYS)))
    def fill(self, keys: set[str]) -> None:
        self.core.filter.update(sorted(keys))
        self.table.rows = dict.fromkeys(sorted(keys), 0)

    def call(self, wanted: Call) -> Any:
        """Do a call; of one to the source, what the rule said comes of it."""
        what: Any = wanted.what
        if getattr(what, "__self__", None) is not self.table or self.outcome == "done":
            return what(*wanted.args)
        if self.outcome == "unheard":
            what(*wanted.args)
        elif self.outcome == "late" and what.__name__ != "get_many":
            self.late.append(lambda: what(*wanted.args))
        raise TimeoutError("no answer within 5 s")

    def begin(self, flow: Any) -> None:
        self.flows.append(Steps(flow, self.call))

    @rule(key=st.sampled_from(KEYS), value=st.integers(0, 9))
    def add(self, key: str, value: int) -> None:
        self.begin(add(self.core, key, value, None))

    @rule(key=st.sampled_from(KEYS))
    def remove(self, key: str) -> None:
        self.begin(remove(self.core, key, None))

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    def look_up(self, keys: list[str]) -> None:
        self.begin(confirm(self.core, keys))

    @precondition(lambda self: self.rebuilt is None or self.rebuilt.ended)
    @rule(at_once=st.booleans(), size=st.integers(1, 3))
    def rebuild(self, at_once: bool, size: int) -> None:
        def batches() -> Iterator[list[str]]:
            """The rows of this moment; or, page by page, of the moment a page is read."""
            rows = sorted(self.table.rows)
            return (
                (rows[n : n + size] for n in range(0, len(rows), size))
                if at_once
                else ([key for key in [key] if key in self.table.rows] for key in KEYS)
            )

        self.rebuilt = Steps(rebuild(self.core, made(self.kind), batches, None), self.call)
        self.flows.append(self.rebuilt)

    @precondition(lambda self: self.queued)
    @rule()
    def drain(self) -> None:
        self.begin(drain(self.core))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def commit_late(self, data: st.DataObject) -> None:
        self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))()

    @precondition(lambda self: any(flow.ready for flow in self.flows))
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), steps=st.integers(1, 6))
    def go_on(self, data: st.DataObject, outcome: str, steps: int) -> None:
        flow = data.draw(st.sampled_from([flow for flow in self.flows if flow.ready]))
        self.outcome = outcome
        for _ in range(steps):
            if flow.ready:
                flow.step()
                self.nothing_is_denied()
        self.outcome = "done"
        assert flow.problem is None or isinstance(flow.problem, errors.SourceUnavailable)
        self.flows = [flow for flow in self.flows if not flow.ended]

    @invariant()
    def nothing_is_denied(self) -> None:
        held = list(self.table.rows)
        assert self.core.filter.contains_many(held) == [True] * len(held)

    def teardown(self) -> None:
        """All that began ends, and nothing is left behind; nor is anything denied by then."""
        while any(flow.ready for flow in self.flows):
            for flow in self.flows:
                flow.finish()
        for commit in self.late:
            commit()
        self.nothing_is_denied()
        assert all(flow.ended for flow in self.flows)
        assert self.core.flights.table == {}
        assert self.core.writers.under_way() == []
        assert self.core.filters[1] is None


def case(kind: Any, queued: bool) -> Any:
    """The machine for filters of this kind, as a test."""
    name = f"Rebuilding{kind.__name__}{'Queued' if queued else ''}"
    machine = type(name, (RebuildingBesideWrites,), {"kind": kind, "queued": queued})
    made: Any = machine.TestCase  # type: ignore[attr-defined]
    made.settings = settings(
        max_examples=max(5, settings().max_examples // 4), stateful_step_count=50
    )
    return pytest.mark.slow(made)


TestBloom = case(BloomFilter, queued=False)
TestCounting = case(CountingBloomFilter, queued=False)
TestCuckoo = case(CuckooFilter, queued=False)
TestDeletable = case(DeletableBloomFilter, queued=False)
TestScalable = case(ScalableBloomFilter, queued=False)
TestBloomQueued = case(BloomFilter, queued=True)
TestCountingQueued = case(CountingBloomFilter, queued=True)
TestDeletableQueued = case(DeletableBloomFilter, queued=True)


class Rows:
    """A table of a real SQLite file: a connection for each question, as threads need it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE rows (key TEXT PRIMARY KEY, value INT)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def run(self, sql: str, *args: Any) -> list[Any]:
        """Do one statement."""
        connection = self._open()
        try:
            return connection.execute(sql, args).fetchall()
        finally:
            connection.close()

    def get_many(self, keys: Sequence[str]) -> dict[str, int]:
        """The rows with these keys."""
        marks = ", ".join("?" * len(keys))
        return dict(self.run(f"SELECT key, value FROM rows WHERE key IN ({marks})", *keys))

    def add(self, key: str, value: int, idempotency_key: str) -> bool:
        """Update, or insert: writes of one key come one after the other."""
        if self.run("UPDATE rows SET value = ? WHERE key = ? RETURNING 1", value, key):
            return False
        self.run("INSERT INTO rows VALUES (?, ?)", key, value)
        return True

    def remove(self, key: str, idempotency_key: str) -> bool:
        """Delete."""
        return bool(self.run("DELETE FROM rows WHERE key = ? RETURNING 1", key))

    def batches(self) -> Iterator[list[str]]:
        """All keys, of the moment of the first batch, by a cursor."""
        connection = self._open()
        cursor = connection.execute("SELECT key FROM rows")
        while rows := cursor.fetchmany(20):
            yield [key for (key,) in rows]
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BloomFilter, CountingBloomFilter, CuckooFilter])
def test_threads_beside_rebuilds_are_never_denied(tmp_path: Path, kind: Any) -> None:
    """Threads that write to a SQLite table while its filter is rebuilt over and over: each always
    finds what it wrote, and at the end the filter has all that the table has."""
    source = Rows(tmp_path / "rows.sqlite")
    guard = Guard(kind(400, 0.05), source, cache=Memory(), timeout=None)
    problems: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for n in range(40):
                key = f"{number}: {n}"
                guard.add(key, n)
                assert guard.get(key).value == n, key
                if n % 3 == 0:
                    guard.remove(key)
                    assert not guard.get(key), key
                    guard.add(key, -n)
                if n % 4 == 0:
                    guard.remove(key)
        except BaseException as problem:  # noqa: BLE001 - raised below
            problems.append(problem)

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    rebuilds = 0
    while any(thread.is_alive() for thread in threads):
        guard.rebuild(kind(400, 0.05), source.batches)
        rebuilds += 1
    for thread in threads:
        thread.join()
    assert problems == []
    assert rebuilds >= 2
    keys = [key for (key,) in source.run("SELECT key FROM rows")]
    assert len(keys) == 4 * 30
    assert all(guard.filter.contains_many(keys))
