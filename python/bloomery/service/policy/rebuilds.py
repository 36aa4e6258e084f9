"""Rebuilds a filter from its source while clients go on using it: the cure for deletions and for
saturation.

    followed: adds go to both ──settle──> the source is read ──> the new one has the name

A client writes a key to the filter and then to the source. Who did the first before the new filter
was there has `settle` seconds for the second: the reading begins only then, and finds it. The new
filter stays under a name that nobody is told until it takes the place; a crash leaves the old one
as it was, and what was built so far is dropped at the next start.

Who takes a key out of the source and then out of the filter has the same time: the place is taken
so late that a key that was gone before the reading began is taken out of the old filter. The new
one never had it, and to take out of a filter what is not in it harms other keys.

On nodes one of them does it: each step is an entry of the shared log, the last one among them, so
that all take the new filter at the same entry. A node that dies leaves the old one as it was; what
it built ends within a minute, since nobody lets it live on.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from bloomery import errors
from bloomery.filters.creation import PARAMETERS
from bloomery.guard.sources.sql.source import SqlSource
from bloomery.guard.sources.workers import Workers
from bloomery.service.commands import NO_ROOM, Commands
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import quoted
from bloomery.service.domain.policy import capacity_of, policy_of
from bloomery.service.listing import BUILT
from bloomery.service.lookup.keytypes import forms
from bloomery.service.observe.logs import Say

_T = TypeVar("_T")
KINDS = ("bloom", "scalable", "counting", "deletable", "cuckoo")
SETTLE = 5.0  # seconds
_MOST = 8  # at once: each has a connection and a filter of its own
PREFIX = BUILT
_BATCH = 10_000  # keys: half a millisecond of the loop
_UNFINISHED = 3600.0  # seconds without a batch, after which what was built is forgotten
# On nodes: how long what was built outlives the node that built it, and how often that is put off.
_OUTLIVES, _PUT_OFF = 60.0, 15.0
_ROOM = 1.5  # times as many keys as there are: with a quarter more somebody is warned at once
_SIZES = {"capacity", "initial_capacity", "error_rate"}


@dataclass(slots=True)
class Rebuild:
    """The progress of a rebuild."""

    state: str  # settling, reading, done or failed; elsewhere: another node does it
    began_at: float
    rows: int = 0  # that were read
    of: int | None = None
    ended_at: float | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


class RebuildTask:
    """One rebuild, to be run as a task."""

    def __init__(
        self,
        commands: Commands,
        entry: Entry,
        state: Rebuild,
        rows: SqlSource,
        capacity: int | None,
        error_rate: float | None,
        settle: float,
    ) -> None:
        self.entry, self.state, self.rows = entry, state, rows
        self._commands, self._engine = commands, commands.engine
        self._capacity, self._error_rate, self._settle = capacity, error_rate, settle
        self._name = PREFIX + secrets.token_hex(8).encode()
        self._new: Entry | None = None
        self._followed = False  # the filter's settings name the new one
        self._source = entry.settings.get("source")
        # Not one of the event loop's threads: the source may hang, and those write the log.
        self._thread = Workers(1, "bloomery-rebuild")

    async def run(self, states: dict[int, Rebuild]) -> None:
        """Do it; from the moment on when the new filter has the name, the state is its own."""
        keeping = asyncio.create_task(self._keep_alive())
        try:
            await self._build()
        finally:  # before it replaces the old filter, which must not expire
            keeping.cancel()
            await asyncio.wait([keeping])
        await self._take_place(states)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_PUT_OFF)
            if self._new is not None:
                with contextlib.suppress(errors.BloomeryError):  # the next step tells
                    await self._postpone_expiry()

    async def _build(self) -> None:
        """Make the new filter, and read the source into it."""
        await self._create(await self._ask_source(self._count))
        await asyncio.sleep(self._settle)
        self.state.state = "reading"
        batches = self.rows.batches(_BATCH)
        try:
            batch = await self._ask_source(next, batches, None)
            settled = time.monotonic() + self._settle
            while batch is not None:
                await self._add(batch)
                batch = await self._ask_source(next, batches, None)
        finally:
            self._thread.submit(batches.close)  # behind what it does
        if hasattr(self.entry.filter, "remove"):
            await asyncio.sleep(settled - time.monotonic())

    async def _take_place(self, states: dict[int, Rebuild]) -> None:
        """Let the new filter have the name."""
        await self._engine.locks.unlocked(self.entry.name)
        self._check()
        assert self._new is not None
        new = await self._engine.succeed(self.entry, self._new.id)
        states[new.id], self._new = self.state, None
        self._commands.listing.hidden.discard(self._name)

    async def _ask_source(self, what: Callable[..., _T], *args: Any) -> _T:
        """Call the source, in its thread."""
        asked = asyncio.wrap_future(self._thread.submit(what, *args))
        try:
            return await asyncio.wait_for(asked, _UNFINISHED)
        except asyncio.TimeoutError:
            text = f"the source {self._source} has not answered for {_UNFINISHED:g} s"
            raise errors.SourceUnavailable(text) from None

    def _count(self) -> int:
        """How many keys there are to be, as far as the first rows tell: some have two forms."""
        self.state.of = self.rows.count()
        batches = self.rows.batches(_BATCH)
        batch = next(batches, [])
        batches.close()
        return self.state.of * sum(len(forms(key)) for key in batch) // max(1, len(batch))

    async def _create(self, keys: int) -> None:
        commands, old, settings = self._commands, self.entry.filter, self.entry.settings
        wanted = self._capacity
        if wanted is None:
            wanted = max(capacity_of(self.entry), int(_ROOM * keys))
        rate = old.error_rate if self._error_rate is None else self._error_rate
        names = [name for name in PARAMETERS[old.kind] if name in settings and name not in _SIZES]
        more = {name: settings[name] for name in names}
        more |= {"hasher": old.hasher, "seed": old.seed}
        if old.kind == "bloom":
            more["layout"] = old.layout
        elif old.kind == "counting":
            more["counter_bits"] = old.counter_bits
        elif old.kind == "cuckoo":  # that it can grow is not to change what it does when full
            more |= {"grow": True, "on_full": policy_of(self.entry).on_full}
        self._check()
        with commands.own_name(self._name):
            successor = await commands.create(
                self._name, old.kind, capacity=wanted, error_rate=rate, **more
            )
        commands.listing.hidden.add(self._name)
        self._new = successor
        await self._postpone_expiry()
        await self._engine.follow(self.entry, successor)
        self._followed = True

    async def _postpone_expiry(self) -> None:
        """Let the new filter expire later than it would: a crash must not leave it for ever."""
        await self._commands.expire(self._name, self._engine.now + _OUTLIVES)

    async def _add(self, batch: list[Any]) -> None:
        keys = [form for key in batch for form in forms(key)]
        self._check()
        answers, refused = await self._commands.add(self._name, keys)
        if refused is not None:
            raise errors.FilterFull(
                f"the source has more keys than the new filter takes ({refused[1]}): rebuild it "
                "with a larger capacity"
            )
        if NO_ROOM in answers:
            raise errors.NotEnoughMemory("there is no memory for the new filter (maxmemory)")
        await self._postpone_expiry()
        self.state.rows += len(batch)

    def _check(self) -> None:
        """Raise if it cannot go on."""
        entry = self._engine.state.filters.get(self.entry.id)
        if entry is None:
            raise errors.InvalidParameter("the filter was dropped")
        self.entry = entry  # a node that loads a snapshot has others
        if self.entry.settings.get("source") != self._source:
            raise errors.InvalidParameter(
                "the filter was bound to another source during the rebuild"
            )
        if self._new is not None and self._new.id not in self._engine.state.filters:
            raise errors.InvalidParameter("what was built so far was dropped")
        followed = self._new is not None and self.entry.settings.get("successor") == self._new.id
        if self._followed and not followed:
            raise errors.InvalidParameter(
                "another command changed the entire filter during the rebuild; start it again"
            )

    async def forget(self) -> None:
        """Release the source, and drop the new filter if it did not replace the old one."""
        engine = self._engine
        self._thread.submit(self.rows.close)
        with contextlib.suppress(errors.BloomeryError):  # then it expires
            entry = engine.state.filters.get(self.entry.id)
            if self._new is not None:
                if entry is not None and entry.settings.get("successor") == self._new.id:
                    await engine.unfollow(entry)
                await self._commands.drop(self._new.name)
        self._commands.listing.hidden.discard(self._name)


class Rebuilds:
    """The rebuilds that are under way, and how the last one of each filter ended."""

    def __init__(self, commands: Commands, say: Say) -> None:
        self._commands, self._say = commands, say
        self._states: dict[int, Rebuild] = {}  # by the number of the filter that has the name
        self._tasks: dict[int, asyncio.Task[None]] = {}
        commands.engine.on_drop.subscribe(lambda entry: self._states.pop(entry.id, None))

    async def drop_unfinished(self) -> None:
        """Drop the filters of rebuilds that a crash interrupted. One without an expiry belongs to a
        user."""
        names = self._commands.engine.state.names.items()
        left = [name for name, entry in names if name.startswith(PREFIX) and entry.expires_at]
        if left:
            await self._commands.drop(*left)

    def of(self, entry: Entry) -> Rebuild | None:
        """How far the rebuild of a filter is, or how the last one ended, if it was done here."""
        state = self._states.get(entry.id)
        built = self._commands.engine.state.filters.get(entry.settings.get("successor", 0))
        if built is not None and entry.id not in self._tasks:  # another node knows more
            return Rebuild("elsewhere", built.created_at, self._commands.engine.state.count(built))
        return state

    def start(
        self,
        name: bytes,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        settle: float = SETTLE,
    ) -> Rebuild:
        """Begin to build a filter anew; without a capacity, for as many keys as the source has, in
        all their forms, and half as many more, if that is more than before."""
        entry, engine = self._commands.find(name), self._commands.engine
        kind = getattr(entry.filter, "kind", None)
        if kind not in KINDS:
            raise errors.InvalidParameter(
                f"{quoted(name)} is a {kind} filter: one of kind {', '.join(KINDS)} can be rebuilt"
            )
        if entry.id in self._tasks or entry.settings.get("successor") in engine.state.filters:
            raise errors.InvalidParameter(f"{quoted(name)} is being rebuilt already")
        if len(self._tasks) >= _MOST:
            raise errors.ServerUnavailable(f"{_MOST} filters are being rebuilt: try again later")
        rows: SqlSource = self._commands.lookups.rows(entry)
        state = self._states[entry.id] = Rebuild("settling", time.time())
        work = RebuildTask(self._commands, entry, state, rows, capacity, error_rate, settle)
        task = asyncio.create_task(self._run(work))
        self._tasks[entry.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(entry.id, None))
        return state

    async def _run(self, work: RebuildTask) -> None:
        state, name = work.state, quoted(work.entry.name)
        try:
            await work.run(self._states)
        except asyncio.CancelledError:
            state.state, state.problem = "failed", "the server was stopped"
            raise
        except Exception as problem:  # noqa: BLE001  # whoever looks is told
            state.state, state.problem = "failed", str(problem)
            known = isinstance(problem, errors.BloomeryError)
            self._say(
                f"{name} was not rebuilt: {problem}",
                level="warning" if known else "error",
                problem=None if known else problem,
            )
        else:
            state.state = "done"
            took = time.time() - state.began_at
            self._say(f"{name} was rebuilt of {state.rows:,} keys in {took:.1f} s")
        finally:
            state.ended_at = time.time()
            await work.forget()

    async def stop(self) -> None:
        """End: the filters stay as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
