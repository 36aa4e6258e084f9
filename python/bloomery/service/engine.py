"""Changes to the filters in memory, in the order that makes them durable: an operation is done and
noted for the log, the log is written, and only then is anybody answered.

A turn is what one round of the event loop brings (`group_commit`). `begin` sets its time, `end`
returns what is to be logged. If the log cannot be written, writes are refused and checks go on,
until the log has what is in memory.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bloomery import BloomFilter, _native, errors
from bloomery.filters.internals import facts
from bloomery.service.clock import Clock
from bloomery.service.domain import operations
from bloomery.service.domain.operations import HASHES, MAKES, Op
from bloomery.service.domain.state import Entry, FilterDropped, State, kept_settings
from bloomery.service.events import Event
from bloomery.service.policy.policy import generation_of, limit_and_threshold, refusal

if TYPE_CHECKING:
    from bloomery.service.durability.log import Log, Row
    from bloomery.service.durability.no_log import NodeLog

# Stands on the shelf for a filter that is still being loaded.
_UNREADY = BloomFilter(1)
_NONE: Set[int] = frozenset()
_NUMBER_BITS = 52  # of a filter's number on nodes: a double in JSON holds it
_NON_SCALING = "non scaling filter is full"  # RedisBloom's words


NO_ROOM = 2  # the answer to a key for which there was no memory
REFUSED = 3  # on a node, to a key that was refused: those behind it were tried
# A byte for each key: 0 or 1, or one of those; and the refusal (code, message) of the first that
# was refused. On a server alone there is no byte for that, nor for those behind it.
Outcome = tuple[bytes, tuple[str, str] | None]

# What brings keys to a filter that its successor would not get, or takes them all.
_OTHER_KEYS = (Op.MERGE, Op.CLEAR, Op.CHUNK, Op.ROTATE)


class SharedLog(Protocol):
    """The log that a node shares with others, as operations use it (`replication/node.py`). What is
    submitted is done when the log has it, in the log's order, on all nodes."""

    @property
    def holds_lease(self) -> bool:
        """Does this node hold the lease, and so decide for all?"""

    def decide(self, op: Op, filter_id: int, data: bytes) -> None:
        """As the lease holder: do what no client asked for, unless another node holds the lease by
        then."""

    @property
    def may_answer(self) -> bool:
        """Is this node's copy recent enough for reads that need not be strong?"""

    async def submit(self, op: Op, filter_id: int, data: bytes) -> Entry | None:
        """Do an operation; the entry that it was done to, if it is still there."""

    async def submit_keys(self, name: bytes, op: Op, keys: Any) -> Outcome:
        """Add or remove keys: a byte for each, whether refused or not."""

    async def catch_up(self) -> None:
        """Return when this copy has all that was acknowledged before; else StoreUnavailable."""


class Successor(NamedTuple):
    """The new filter of a rebuild, until it takes the place of the live one."""

    id: int
    on_failure: Callable[[str], None]


class Engine:
    """The state of a server, its hot path, and its log."""

    def __init__(self, state: State, log: Log | NodeLog, clock: Clock | None = None) -> None:
        self.state = state
        self.log = log
        self.clock = clock or Clock(state.now)
        self.shelf = _native.Shelf()
        self.problem: errors.LogUnavailable | None = None  # why writes are refused
        self.shared: SharedLog | None = None  # of a node
        # On a node, keys that were there when they were added through it, by the number of the
        # filter: the log has nothing of them.
        self.repeats: Counter[int] = Counter()
        self.frozen = False  # time stands still: nothing expires or is forgotten
        self.on_change: Event[[Entry]] = Event()  # a filter is new, or was changed
        self.on_drop: Event[[Entry]] = Event()
        self.on_begin: Event[[]] = Event()  # of a turn
        self.on_end: Event[[]] = Event()
        self.on_forget: Event[[Entry, list[bytes]]] = Event()  # names of keys that caches forget
        # A rotating filter began a new generation, since the last was full with so many keys: all
        # nodes hear of it when it is done, and how many keys that forgot.
        self.on_rotated: Event[[Entry, int, int]] = Event()
        self.on_exchange: Event[[]] = Event()  # all filters are others now
        self._locked: set[bytes] = set()  # names of filters that a thread or a transaction works on
        self._owner = False  # is it the one that works on them who asks now?
        self._touched: set[int] = set()  # filters that were changed or dropped in this turn
        self._open = False  # has this turn begun?
        self._rows: list[Row] = []  # of this turn, as far as they were gathered
        self._successors: dict[int, Successor] = {}  # by the number of what each is to replace
        state.on_drop = self._dropped
        state.attach(_EntryShelf(self.shelf))

    # Turns.

    def begin(self) -> None:
        """Begin a turn, unless one has begun: set its time, and do what is due (TTLs, windows)."""
        if not self._open:
            self._open = True
            self.on_begin()
            self._pass_time()

    def end(self) -> list[Row]:
        """End the turn; what was noted in it, to be logged with its time."""
        self.on_end()
        self._open = False
        if self.shared is not None:  # what is noted waits for `replication.turns`
            return []
        self.gather()
        rows, self._rows = self._rows, []
        return rows

    def refuse(self, problem: errors.LogUnavailable) -> None:
        """Take no writes until the log can be written again."""
        self.problem = problem
        self.shelf.refusing = True

    def accept(self) -> None:
        """Take writes again: the log has what it lacked."""
        self.problem = None
        self.shelf.refusing = False

    # Changes.

    def change(self, op: Op, filter_id: int, data: bytes = b"") -> Entry | None:
        """Do an operation and note it for the log; refused ones have changed nothing."""
        # Half of it may be done, by a thread that has changed the filter: then it is noted all the
        # same, for the log to be written when it can be. The client gets the problem as its answer.
        if self.problem is not None and not self.state.deferral.resumed:
            raise self.problem
        self.begin()
        self._check_unlocked(self.state.filters.get(filter_id))
        if op == Op.RENAME:
            to = operations.name_of(operations.read_fields(data)["name"])
            self._check_unlocked(self.state.names.get(to))
        if op in _OTHER_KEYS and filter_id in self._successors:
            self.give_up(filter_id, f"the filter was changed meanwhile ({op.name.lower()})")
        entry = self.state.apply(op, filter_id, data, self.state.now)
        self.shelf.note(filter_id, op, data)
        if entry is not None:
            self._changed(entry)
        return entry

    async def perform(self, op: Op, filter_id: int, data: bytes = b"") -> Entry | None:
        """Do an operation: here and at once, or on all nodes of a shared log."""
        if self.shared is None:
            return self.change(op, filter_id, data)
        return await self.shared.submit(op, filter_id, data)

    async def make(self, op: Op, data: bytes) -> Entry:
        """Do an operation that makes a filter. Its number is the next one, or one that nobody else
        will draw: operations of several nodes come in no order that any of them knows."""
        number = self.state.next_id if self.shared is None else 1 + secrets.randbits(_NUMBER_BITS)
        entry = await self.perform(op, number, data)
        assert entry is not None
        return entry

    def _check_unlocked(self, entry: Entry | None) -> None:
        if entry is not None and self.is_locked(entry):
            raise errors.ServerUnavailable("this filter is worked on: try again in a moment")

    def _changed(self, entry: Entry) -> None:
        entry.changes += 1
        self._touched.add(entry.id)
        self.on_change(entry)

    # Locks: a filter that a thread works on as a whole, or a transaction has begun with, is changed
    # by nobody else. Who waits for one does so in `background`.

    def lock(self, names: Iterable[bytes]) -> None:
        """Let nobody else change filters of these names; the native path hands their commands to
        Python."""
        for name in names:
            self._locked.add(name)
            self.shelf.set_locked(name, True)

    def unlock(self, names: Iterable[bytes]) -> None:
        """Let everybody change them again."""
        for name in names:
            self._locked.remove(name)
            self.shelf.set_locked(name, False)

    @contextmanager
    def as_owner(self) -> Iterator[None]:
        """Let the caller, who has locked filters, change them; without an await inside."""
        self._owner = True
        try:
            yield
        finally:
            self._owner = False

    def is_locked(self, entry: Entry) -> bool:
        """Is a filter locked against the current caller?"""
        return not self._owner and entry.name in self._locked

    # Entries of a shared log, in its order: nothing is noted.

    def apply_shared(self, op: int, filter_id: int, data: bytes, at: float) -> Any:
        """Do an operation that the shared log has, at its time; what it comes to: for hashes a byte
        each, else the entry."""
        if op in HASHES:
            self.state.now = at
            entry = self.state.filters.get(filter_id)
            if entry is None:
                raise FilterDropped("the filter was dropped meanwhile")
            if "successor" in entry.settings and op != Op.REMOVE:
                self._apply_to_successor(entry, data)
            return self.shelf.apply(entry.name, op, data)
        if op not in MAKES and filter_id not in self.state.filters:
            raise FilterDropped("the filter was dropped meanwhile")
        if op == Op.ROTATE and data:
            return self._apply_rotation(filter_id, data, at)
        entry = self.state.apply(op, filter_id, data, at)
        if entry is not None and op == Op.FORGET:
            self.on_forget(entry, operations.read_names(data))
        elif entry is not None:
            if op in _OTHER_KEYS or (op == Op.ADJUST and "source" in operations.read_fields(data)):
                entry.settings.pop("successor", None)
            self._changed(entry)
        return entry

    def _apply_rotation(self, filter_id: int, data: bytes, at: float) -> Entry:
        """Rotate a filter, as the lease holder has decided."""
        entry = self.state.filters[filter_id]
        keys, before = generation_of(entry)[0], entry.filter.estimated_count
        self.state.apply(Op.ROTATE, filter_id, data, at)
        entry.settings.pop("successor", None)
        self._changed(entry)
        self.on_rotated(entry, keys, before - entry.filter.estimated_count)
        return entry

    def _apply_to_successor(self, entry: Entry, data: bytes) -> None:
        """Add what is added to a filter to the one that is to take its place, on all nodes; if that
        cannot have it, nothing takes its place."""
        successor = self.state.filters.get(entry.settings["successor"])
        if successor is None or self.shelf.apply(successor.name, Op.ADD, data)[1] is not None:
            del entry.settings["successor"]

    def pass_shared_time(self, now: float) -> None:
        """Expire and rotate what is due by this time, which all nodes agree on."""
        self.state.pass_time(now)

    def exchange(self, entries: Iterable[Entry], now: float) -> None:
        """Have other filters from now on, as a snapshot of the shared log has them."""
        for entry in list(self.state.filters.values()):
            self.state.remove(entry)
        self.state.now = now
        for entry in entries:
            self.state.put(entry)
            self._changed(entry)
        self.on_exchange()

    def find(self, name: bytes) -> Entry | None:
        """Return the entry of that name, unless its time is over; its items are up to date."""
        self.begin()
        entry = self.state.names.get(name)
        if entry is not None and entry.expires_at is not None:
            self._pass_time()  # its time may have come since the turn began
            entry = self.state.names.get(name)
        if entry is not None:
            self.state.count(entry)
        return entry

    def take_touched(self) -> Set[int]:
        """Numbers of filters that were changed or dropped in this turn, or that reached their
        threshold; those have their next one now."""
        reached = self.shelf.take_reached()
        if not reached and not self._touched:
            return _NONE
        for number in reached:
            if number in self.state.filters:
                self.state.refresh(self.state.filters[number])
        touched, self._touched = self._touched, set()
        return touched.union(reached)

    def figures(self, entry: Entry) -> tuple[int, int, int]:
        """Adds, checks and maybes since the server started."""
        figures = self.shelf.figures(entry.name)
        if figures is None:
            return 0, 0, 0
        _, adds, checks, maybes = figures
        return adds + self.repeats[entry.id], checks, maybes

    def _pass_time(self) -> None:
        if self.frozen or self.shared is not None:  # time of nodes is in the log
            return
        for record in self.state.pass_time(self.clock.now(), self.is_locked):
            self.shelf.note(*record)

    # A filter that is built anew, while the one it is to replace goes on.

    async def follow(
        self, entry: Entry, successor: Entry, on_failure: Callable[[str], None]
    ) -> None:
        """From now on add to the successor what is added to a filter, in the same turn; tell
        `on_failure` if that cannot go on, and why. On nodes the filter's settings tell."""
        live, new = entry.filter, successor.filter
        if (live.hasher, live.seed) != (new.hasher, new.seed):
            raise errors.InvalidParameter("a successor must have the same hasher and seed")
        if new.kind == "cuckoo" and not facts(new)["grow"]:
            raise errors.InvalidParameter("a successor must have room: a cuckoo filter must grow")
        if self.shared is not None:
            fields = operations.fields(successor=successor.id)
            await self.perform(Op.ADJUST, entry.id, fields)
            return
        self._successors[entry.id] = Successor(successor.id, on_failure)
        self._set_followed(entry, True)

    def give_up(self, filter_id: int, why: str) -> None:
        """Let a filter have no successor."""
        successor = self._successors.pop(filter_id, None)
        if successor is not None:
            entry = self.state.filters.get(filter_id)
            if entry is not None:
                self._set_followed(entry, False)
            successor.on_failure(why)

    def _set_followed(self, entry: Entry, followed: bool) -> None:
        entry.followed = followed
        self.state.refresh(entry)

    async def succeed(self, entry: Entry, number: int) -> Entry:
        """Put the successor of this number in a filter's place, under its name, with its settings
        and its end."""
        if self.shared is not None:
            fields = operations.fields(successor=number)
            new = await self.perform(Op.SUCCEED, entry.id, fields)
            assert new is not None
            return new
        self._check_unlocked(entry)
        self.gather()  # so that it has what was added in this turn too
        successor = self._successors.pop(entry.id, None)
        if successor is None:
            raise errors.InvalidParameter("the filter has no successor (any more)")
        self._set_followed(entry, False)  # whether or not what follows can be done
        self.change(Op.ADJUST, successor.id, operations.fields(**kept_settings(entry)))
        self.change(Op.EXPIRE, successor.id, operations.fields(at=entry.expires_at))
        name = operations.fields(name=operations.text_of(entry.name))
        renamed = self.change(Op.RENAME, successor.id, name)
        assert renamed is not None
        return renamed

    def gather(self) -> None:
        """Collect the noted operations for the log; repeat adds on the filter that a rebuild is
        making, which are noted in turn."""
        now = self.state.now
        while records := self.shelf.take_log():
            self._rows += [(now, *record) for record in records]
            for number, op, data in records:
                successor = self._successors.get(number)
                if successor is not None and op == Op.ADD:
                    try:
                        self._pass_on(successor.id, data)
                    except Exception as problem:  # noqa: BLE001  # others wait for their answers
                        self.give_up(number, str(problem))

    def _pass_on(self, filter_id: int, data: bytes) -> None:
        """Add to a successor. It is no `on_change`, as no add is: there may be thousands a second,
        and the registry would be written for each."""
        if self.problem is not None:
            raise self.problem
        self.state.apply(Op.ADD, filter_id, data, self.state.now)
        self.shelf.note(filter_id, Op.ADD, data)

    def _dropped(self, entry: Entry) -> None:
        self.give_up(entry.id, "the filter was dropped")
        self._touched.add(entry.id)
        self.repeats.pop(entry.id, None)
        self.on_drop(entry)


class _EntryShelf:
    """The native shelf as `State` writes it."""

    def __init__(self, shelf: _native.Shelf) -> None:
        self._shelf = shelf

    def put(self, entry: Entry) -> None:
        """Show a filter as it is now."""
        filter, (limit, threshold) = entry.filter, limit_and_threshold(entry)
        asked = limit is not None and "on_full" in entry.settings
        self._shelf.put(
            entry.name,
            _UNREADY if filter is None else filter,
            entry.id,
            family=entry.settings.get("door", "bf"),
            items=entry.items,
            limit=limit,
            full=f"this filter {refusal(entry)}" if asked else _NON_SCALING,
            threshold=threshold,
            loading=filter is None,
            followed=entry.followed,
        )

    def drop(self, name: bytes) -> None:
        """Show none of this name."""
        self._shelf.drop(name)

    def items(self, entry: Entry) -> int:
        """How many keys a filter holds; if it is not on the shelf yet, what its entry says."""
        figures = self._shelf.figures(entry.name)
        return entry.items if figures is None else figures[0]
