"""The filters of a server and the one way to change them: a record is appended to the log, applied
in the order of the log, and then answered. Reads use what was applied.

    commands ──submit──> sequencer: one batch at a time ──> log ──> apply ──> results

A server and a node differ in the log (`BatchLog`): a file, or a stream of Redis.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from bloomery import _native, errors
from bloomery.filters import creation, saved
from bloomery.filters.internals import facts
from bloomery.service.clock import Clock
from bloomery.service.domain import operations
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import IN_PLACE, Op, Record, quoted
from bloomery.service.domain.policy import generation_of
from bloomery.service.domain.state import State, Steps, run_steps
from bloomery.service.events import Event
from bloomery.service.locks import NameLocks
from bloomery.storage import files, memory

if TYPE_CHECKING:
    from bloomery.service.durability.log import Log
    from bloomery.service.durability.no_log import NodeLog

_NONE: Set[int] = frozenset()
_DUE_PER_TICK = 256  # filters that expire or rotate in one tick
NO_ROOM = 2  # the answer to a key for which there was no memory
REFUSED = 3  # the answer to a key that the filter refused; the keys after it were applied
# A byte for each key: 0 or 1, or one of those; and the first refusal (code, message).
Outcome = tuple[bytes, tuple[str, str] | None]


class BatchLog(Protocol):
    """The log of a server: a file on its disk, or a stream of Redis that nodes share."""

    exclusive: bool  # no other process writes it

    @property
    def may_answer(self) -> bool:
        """Whether the filters are recent enough for reads that need not be strong."""

    @property
    def holds_lease(self) -> bool:
        """Whether this process decides what no client asked for."""

    def now(self) -> float:
        """Return the time that TTLs and windows use."""

    def draw_number(self) -> int:
        """Return a number for a new filter that no other filter has."""

    def check(self, op: Op) -> None:
        """Raise if the log cannot take this operation."""

    def append(self, number: int, records: list[Record]) -> None:
        """Append a batch and apply it; tell the sequencer (`applied`, `refused`) by its number."""

    def decide(self, op: Op, filter_id: int, data: bytes) -> None:
        """As the lease holder, do what no client asked for."""

    def running(self) -> float:
        """Return the time as it runs, although no record has it yet."""

    async def catch_up(self) -> None:
        """Return when all acknowledged writes are applied here; else StoreUnavailable."""

    async def finished(self, names: Iterable[bytes] | None = None) -> None:
        """Return when no thread applies a record to these names; None: to any."""


class Submission(Protocol):
    """The way into the log (`sequencer.Sequencer`)."""

    def submit(self, op: Op, filter_id: int, data: bytes) -> asyncio.Future[Any]:
        """Put an operation into the next batch; return a future of its result."""

    async def submit_keys(self, name: bytes, op: Op, keys: Any) -> Outcome:
        """Put keys into the next batch; return a byte for each when they are applied."""

    async def barrier(self) -> None:
        """Return when everything that was submitted before is applied, or refused."""


class Engine:
    """The state of a server, the native view of it, and the log."""

    def __init__(self, state: State, log: Log | NodeLog, clock: Clock | None = None) -> None:
        self.state = state
        self.log = log
        self.clock = clock or Clock(state.now)
        self.shelf = _native.Shelf()
        self.locks = NameLocks(self.shelf)
        self.problem: errors.LogUnavailable | None = None  # why writes are rejected
        # Keys that were present when a node's clients added them, by the number of the filter: the
        # log has no record of them.
        self.repeats: Counter[int] = Counter()
        self.frozen = False  # writes are rejected and time stands still
        self.memory_limit = 0  # bytes of all filters; 0: no limit
        self.filter_limit = 0  # bytes of one filter; 0: no limit
        self.on_change: Event[[Entry]] = Event()  # a filter is new, or was changed
        self.on_drop: Event[[Entry]] = Event()
        self.on_tick: Event[[]] = Event()  # a tick starts
        self.on_applied: Event[[]] = Event()  # records were applied, and not answered yet
        self.on_forget: Event[[Entry, list[bytes]]] = Event()  # keys that caches must read again
        # A policy rotated a filter after this many keys, which dropped this many.
        self.on_rotated: Event[[Entry, int, int]] = Event()
        self.on_exchange: Event[[]] = Event()  # a snapshot has replaced all filters
        self._touched: set[int] = set()  # filters that were changed or dropped
        self._open = False  # a tick is under way
        state.on_drop = self._dropped
        state.on_schedule = self._publish_due
        state.attach(self.shelf)

    # Set by the sequencer.
    sequencer: Submission
    batches: BatchLog

    def connect(self, sequencer: Submission, batches: BatchLog) -> None:
        """Use this sequencer and its log."""
        self.sequencer, self.batches = sequencer, batches
        self.shelf.exclusive = batches.exclusive

    # Ticks.

    def begin(self) -> None:
        """Start a tick, unless one is under way: submit what is due (TTLs, windows)."""
        if not self._open:
            self._open = True
            self.on_tick()
            self.pass_time()

    def end(self) -> None:
        """End the tick."""
        self._open = False

    @property
    def now(self) -> float:
        """The time that TTLs and windows use."""
        return self.batches.now()

    @property
    def running(self) -> float:
        """Return the time that a TTL starts from: on a node, `now` is that of the last entry."""
        return self.batches.running()

    def refuse(self, problem: errors.LogUnavailable) -> None:
        """Report that the log cannot be written."""
        self.problem = problem

    def accept(self) -> None:
        """Report that the log can be written again."""
        self.problem = None

    def set_memory_limit(self, nbytes: int, each: int = 0) -> None:
        """Limit the memory of all filters together, and of each; 0: no limit."""
        self.memory_limit, self.filter_limit = nbytes, each
        self.shelf.memory_limit, self.shelf.filter_limit = nbytes or None, each or None

    # Writes.

    async def perform(self, op: Op, entry: Entry, data: bytes = b"") -> Any:
        """Submit an operation on a filter; return the entry after it, if it still exists."""
        return await self.submit(op, entry.id, entry.name, data)

    async def make(self, op: Op, name: bytes, data: bytes) -> Entry:
        """Submit an operation that creates a filter; return its entry."""
        entry: Entry = await self.submit(op, self.batches.draw_number(), name, data)
        return entry

    async def submit(self, op: Op, filter_id: int, name: bytes, data: bytes) -> Any:
        """Submit an operation; return its result when it is applied. Conflict: another command
        changed the filter first, so nothing was done."""
        self._check(op)
        self._check_memory(op, data)
        return await self.sequencer.submit(op, filter_id, operations.named(name, data))

    async def submit_keys(self, name: bytes, op: Op, keys: Any) -> Outcome:
        """Submit keys to be added or removed; return a byte for each when they are applied."""
        self._check(op)
        if op != Op.REMOVE and not self.shelf.has_memory(name, len(keys)):
            if self.state.names[name].settings.get("kind") == "bank":
                # What fits depends on its memory, which a snapshot leaves more or less of.
                known = self.shelf.contains(name, keys)
                return bytes(0 if answer else NO_ROOM for answer in known), None
            op = IN_PLACE[op]
        return await self.sequencer.submit_keys(name, op, keys)

    def _check(self, op: Op) -> None:
        if self.frozen and self.problem is not None:
            raise self.problem
        self.batches.check(op)
        self.begin()

    def _check_memory(self, op: Op, data: bytes) -> Any:
        """Raise NotEnoughMemory unless there is memory for the filter that an operation creates. A
        record in the log must be applied, so the limit is checked before. Return an empty filter
        like the one that CREATE creates."""
        nbytes, filter, used = 0, None, _native.memory_used()
        if op == Op.CREATE:
            # Made once to see that it can be: memory that is not written costs little.
            settings = operations.read_fields(data)["settings"]
            filter = creation.create(settings, self.batches.now)
            nbytes = filter.nbytes
        elif op == Op.COPY:
            source = self.state.filters.get(operations.read_fields(data)["source"])
            nbytes = 0 if source is None or source.filter is None else source.filter.nbytes
        elif op == Op.CHUNK:
            position, fields, part = operations.read_chunk(data)
            if position == 1 and fields["format"] == "bloomery":
                nbytes = saved.expect(part[: files.HEADER_BYTES])[1]
            elif position == 1:
                nbytes = creation.class_of(fields["format"]).planned_nbytes(part)
        memory.check(nbytes)
        if self.filter_limit and nbytes > self.filter_limit:
            raise errors.NotEnoughMemory(
                f"a filter of {nbytes:,} bytes is larger than bytes-per-filter "
                f"({self.filter_limit:,}); lower its capacity, or raise bytes-per-filter"
            )
        limit = self.memory_limit
        if nbytes and limit and used + nbytes > limit:
            raise errors.NotEnoughMemory(
                f"a filter of {nbytes:,} bytes does not fit into maxmemory ({limit:,} bytes); drop "
                "filters, or raise maxmemory"
            )
        return filter

    async def settle(self, names: Iterable[bytes] | None = None) -> None:
        """Return when everything that was submitted before is applied to these names, or to all."""
        await self.sequencer.barrier()
        await self.batches.finished(names)

    async def make_with_keys(self, name: bytes, data: bytes, op: Op, keys: Any) -> Outcome:
        """Submit a new filter together with its first keys; return a byte for each key. Conflict:
        another command created the filter first."""
        self._check(op)
        filter = self._check_memory(Op.CREATE, data)
        number, hashing = self.batches.draw_number(), _native.Shelf()
        hashing.put(name, filter, number)
        body = hashing.hashes(name, keys)
        submit = self.sequencer.submit
        outcomes: tuple[Any, Any] = await asyncio.gather(
            submit(Op.CREATE, number, operations.named(name, data)),
            submit(op, number, operations.named(name, body)),
            return_exceptions=True,
        )
        if isinstance(outcomes[0], errors.FilterExists) or outcomes[1] is None:
            raise operations.Conflict(f"another command created filter {quoted(name)} first")
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        done: Outcome = outcomes[1]
        return done

    def decide(self, op: Op, entry: Entry, data: bytes = b"") -> None:
        """As the lease holder, do what no client asked for, without waiting for it."""
        self.batches.decide(op, entry.id, operations.named(entry.name, data))

    # Records of the log, in its order.

    def apply(self, op: int, filter_id: int, data: bytes, at: float) -> Any:
        """Apply a record; return its result: the outcome of keys, or the entry. Conflict, or
        another error, if it was refused: nothing has changed."""
        return run_steps(self.start(op, filter_id, data, max(self.state.now, at)))

    def start(self, op: int, filter_id: int, data: bytes, at: float) -> Steps:
        """Apply a record in steps (`State.steps`)."""
        steps = self.state.steps(op, filter_id, data, at)
        return self._finish(op, filter_id, operations.split(data)[1], steps)

    def _finish(self, op: int, filter_id: int, body: bytes, steps: Steps) -> Steps:
        before = self._generation(filter_id) if op == Op.ROTATE and body else None
        result = yield from steps
        if isinstance(result, Entry) and op == Op.FORGET:
            self.on_forget(result, operations.read_names(body))
        elif isinstance(result, Entry):
            self._changed(result)
            if before is not None:
                keys, count = before
                self.on_rotated(result, keys, count - result.filter.estimated_count)
        return result

    def _generation(self, filter_id: int) -> tuple[int, int] | None:
        entry = self.state.filters.get(filter_id)
        if entry is None or entry.filter is None or "generation_count" not in facts(entry.filter):
            return None
        return generation_of(entry)[0], entry.filter.estimated_count

    def _changed(self, entry: Entry) -> None:
        entry.changes += 1
        self._touched.add(entry.id)
        self.on_change(entry)

    def exchange(self, entries: Iterable[Entry], now: float) -> None:
        """Replace all filters by those of a snapshot."""
        with self.state.change():
            for entry in list(self.state.filters.values()):
                self.state.remove(entry)
            self.state.now = now
            for entry in entries:
                self.state.put(entry)
                self._changed(entry)
        self.on_exchange()

    # Reads.

    def find(self, name: bytes) -> Entry | None:
        """Return the entry of a name, unless it has expired; its items are up to date."""
        self.begin()
        entry = self.state.names.get(name)
        if entry is None:
            return None
        if entry.expires_at is not None and entry.expires_at <= self.now:
            self.pass_time()
            return None
        self.state.count(entry)
        return entry

    def take_touched(self) -> Set[int]:
        """Return the numbers of filters that were changed, dropped, or reached their threshold."""
        reached = self.shelf.take_reached()
        if not reached and not self._touched:
            return _NONE
        for number in reached:
            if number in self.state.filters:
                self.state.refresh(self.state.filters[number])
        touched, self._touched = self._touched, set()
        return touched.union(reached)

    def figures(self, entry: Entry) -> tuple[int, int, int]:
        """Return adds, checks and maybes since the server started."""
        present = self.state.filters.get(entry.id) is entry
        figures = self.shelf.figures(entry.name) if present else None
        if figures is None:
            return 0, 0, 0
        _, adds, checks, maybes = figures
        return adds + self.repeats[entry.id], checks, maybes

    # Time.

    def pass_time(self) -> None:
        """Submit the expiry of what is due. Commands on it wait until that is applied. Nodes have
        it in the log."""
        if self.frozen or self.problem is not None or not self.batches.exclusive:
            self.shelf.set_due(None)
            return
        due = self.state.due(self.now, _DUE_PER_TICK)
        if len(due) == _DUE_PER_TICK:
            asyncio.get_running_loop().call_soon(self.begin)
        for entry, op in due:
            self.locks.lock([entry.name])
            future = self.sequencer.submit(op, entry.id, operations.named(entry.name))
            future.add_done_callback(partial(self._passed, entry, entry.name, op))
        self._publish_due()

    def _publish_due(self) -> None:
        """Report to native code when the next filter expires or rotates: commands from then on
        come here and start a tick first. Nodes have it in the log."""
        if self.batches.exclusive and not self.frozen and self.problem is None:
            due, at = self.state.next_due, time.monotonic()
            self.shelf.set_due(None if due is None else at + due - self.now)

    def _passed(self, entry: Entry, name: bytes, op: Op, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # the next tick tries again
        self.locks.unlock([name])
        if self.state.filters.get(entry.id) is entry:
            self.state.schedule(entry)
        elif op is Op.DROP:
            self.state.expired += 1

    # Rebuilds: a new filter gets the keys of the old one while it is built.

    async def follow(self, entry: Entry, successor: Entry) -> None:
        """Add to the successor what is added to a filter, from now on."""
        live, new = entry.filter, successor.filter
        if (live.hasher, live.seed) != (new.hasher, new.seed):
            raise errors.InvalidParameter("a successor must have the same hasher and seed")
        if new.kind == "cuckoo" and not facts(new)["grow"]:
            raise errors.InvalidParameter("a successor must have room: a cuckoo filter must grow")
        await self.perform(
            Op.ADJUST, entry, operations.fields(settings={"successor": successor.id})
        )

    async def unfollow(self, entry: Entry) -> None:
        """Add no more to the successor of a filter."""
        await self.perform(Op.ADJUST, entry, operations.fields(settings={"successor": None}))

    async def succeed(self, entry: Entry, number: int) -> Entry:
        """Replace a filter by its successor, which gets its name, settings and expiry."""
        new: Entry = await self.perform(Op.SUCCEED, entry, operations.fields(successor=number))
        return new

    def _dropped(self, entry: Entry) -> None:
        self._touched.add(entry.id)
        self.repeats.pop(entry.id, None)
        self.on_drop(entry)
