"""A new filter for a live one, from its source, while clients go on: the cure for deletions and for
saturation.

    followed: adds go to both ──settle──> the source is read ──> the new one has the name

A client writes a key to the filter and then to the source. Who did the first before the new filter
was there has `settle` seconds for the second: the reading begins only then, and finds it. The new
filter stays under a name of its own until it takes the place; a crash leaves the old one as it was,
and what was built so far ends by itself within the hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bloomery import errors
from bloomery.service.commands import NO_ROOM, shown
from bloomery.service.keytypes import forms
from bloomery.service.policy import capacity_of
from bloomery.storage.state import Entry

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["Rebuild", "Rebuilds", "Rows"]

PREFIX = b"\x00rebuild:"
KINDS = ("bloom", "scalable", "counting", "deletable", "cuckoo")
SETTLE = 5.0  # seconds
_BATCH = 10_000  # keys: half a millisecond of the loop
_UNFINISHED = 3600.0  # seconds without a batch, after which what was built is forgotten
_ROOM = 1.25  # times as many keys as there are


class Rows(Protocol):
    """All keys of a source."""

    def count(self) -> int:
        """How many there are."""

    def batches(self, size: int) -> Generator[list[Any], None, None]:
        """The keys, some at a time, as of one moment after this is called."""


@dataclass(slots=True)
class Rebuild:
    """How far one is."""

    state: str  # settling, reading, done or failed
    began_at: float
    rows: int = 0  # that were read
    of: int | None = None
    ended_at: float | None = None
    problem: str | None = None

    def shown(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


class Rebuilds:
    """The filters of a server that are built anew, and those that were."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._states: dict[int, Rebuild] = {}  # by the number of the filter that has the name
        self._tasks: dict[int, asyncio.Task[None]] = {}
        before = server.engine.on_drop

        def forget(entry: Entry) -> None:
            before(entry)
            self._states.pop(entry.id, None)

        server.engine.on_drop = forget

    def of(self, entry: Entry) -> Rebuild | None:
        """How far the rebuild of a filter is, or how the last one ended."""
        return self._states.get(entry.id)

    def start(
        self,
        name: bytes,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        settle: float = SETTLE,
    ) -> Rebuild:
        """Begin to build a filter anew; without a capacity, for as many keys as the source has, in
        all their forms, and a quarter more, if that is more than before."""
        entry = self.server.commands.find(name)
        rows: Rows = self.server.commands.lookups.rows(entry)
        kind = getattr(entry.filter, "kind", None)
        if kind not in KINDS:
            raise errors.InvalidParameter(
                f"{shown(name)} is a {kind} filter: one of kind {', '.join(KINDS)} can be rebuilt"
            )
        if entry.id in self._tasks:
            raise errors.InvalidParameter(f"{shown(name)} is being rebuilt already")
        state = self._states[entry.id] = Rebuild("settling", time.time())
        work = _Work(self.server, entry, state, rows, capacity, error_rate, settle)
        task = asyncio.create_task(self._run(work))
        self._tasks[entry.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(entry.id, None))
        return state

    async def _run(self, work: _Work) -> None:
        state, name = work.state, shown(work.entry.name)
        try:
            await work.run(self._states)
        except asyncio.CancelledError:
            state.state, state.problem = "failed", "the server was stopped"
            raise
        except Exception as problem:  # noqa: BLE001  # whoever looks is told
            state.state, state.problem = "failed", str(problem)
            known = isinstance(problem, errors.BloomeryError)
            self.server.say(
                f"{name} was not rebuilt: {problem}",
                level="warning" if known else "error",
                problem=None if known else problem,
            )
        else:
            state.state = "done"
            took = time.time() - state.began_at
            self.server.say(f"{name} was rebuilt of {state.rows:,} keys in {took:.1f} s")
        finally:
            state.ended_at = time.time()
            work.forget()

    async def stop(self) -> None:
        """End: the filters stay as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Work:
    """One rebuild."""

    def __init__(
        self,
        server: Server,
        entry: Entry,
        state: Rebuild,
        rows: Rows,
        capacity: int | None,
        error_rate: float | None,
        settle: float,
    ) -> None:
        self.server, self.entry, self.state, self.rows = server, entry, state, rows
        self._capacity, self._error_rate, self._settle = capacity, error_rate, settle
        self._name = PREFIX + secrets.token_hex(8).encode()
        self._made: Entry | None = None
        self._given_up: str | None = None

    async def run(self, states: dict[int, Rebuild]) -> None:
        """Do it; from the moment on when the new filter has the name, the state is its own."""
        self.state.of = await asyncio.to_thread(self.rows.count)
        each = 1.0 if self._capacity else await asyncio.to_thread(self._forms)
        self._make(int(_ROOM * each * self.state.of))
        await self.server.turns.logged()
        await asyncio.sleep(self._settle)
        self.state.state = "reading"
        batches = self.rows.batches(_BATCH)
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                await self._add(batch)
        finally:
            with contextlib.suppress(ValueError):  # a thread of ours still reads: it ends soon
                batches.close()
        self.server.turns.join()
        self._check()
        new = self.server.engine.succeed(self.entry)
        states[new.id], self._made = self.state, None
        await self.server.turns.logged()

    def _forms(self) -> float:
        """In how many forms a key of the source goes into the filter, by those of one batch."""
        batches = self.rows.batches(_BATCH)
        with contextlib.closing(batches):
            some = next(batches, [])
        return sum(len(forms(key)) for key in some) / len(some) if some else 1.0

    def _make(self, least: int) -> None:
        commands, old = self.server.commands, self.entry.filter
        wanted = self._capacity or max(capacity_of(self.entry), least)
        rate = old.error_rate if self._error_rate is None else self._error_rate
        more: dict[str, Any] = {"grow": True} if old.kind == "cuckoo" else {}
        if old.kind == "bloom":
            more["layout"] = old.layout
        elif old.kind == "counting":
            more["counter_bits"] = old.counter_bits
        self.server.turns.join()
        self._check()
        made = commands.create(
            self._name,
            old.kind,
            capacity=wanted,
            error_rate=rate,
            hasher=old.hasher,
            seed=old.seed,
            **more,
        )
        self._made = made
        self._keep()
        self.server.engine.follow(self.entry, made, self._give_up)

    def _keep(self) -> None:
        """Let it not end for a while."""
        self.server.commands.expire(self._name, self.server.engine.state.now + _UNFINISHED)

    async def _add(self, batch: list[Any]) -> None:
        keys = [form for key in batch for form in forms(key)]
        self.server.turns.join()
        self._check()
        answers, refused = self.server.commands.add(self._name, keys)
        if refused is not None:
            raise errors.FilterFull(
                f"the source has more keys than the new filter takes ({refused[1]}): rebuild it "
                "with a larger capacity"
            )
        if NO_ROOM in answers:
            raise errors.NotEnoughMemory("there is no memory for the new filter (maxmemory)")
        self._keep()
        self.state.rows += len(batch)
        await self.server.turns.logged()

    def _give_up(self, why: str) -> None:
        self._given_up = why

    def _check(self) -> None:
        """Raise if it cannot go on."""
        if self._given_up is not None:
            raise errors.InvalidParameter(self._given_up)
        if self.entry.id not in self.server.engine.state.filters:
            raise errors.InvalidParameter("the filter was dropped")

    def forget(self) -> None:
        """Leave nothing behind."""
        engine = self.server.engine
        engine.give_up(self.entry.id, "the rebuild has ended")
        if self._made is not None and engine.problem is None:
            self.server.turns.join()
            self.server.commands.drop(self._name)
