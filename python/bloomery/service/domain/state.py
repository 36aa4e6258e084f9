"""All filters of a server, and what every operation does to them: the same when it is applied live
and when the log is replayed, so that a replay leads to the same memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from bloomery import BloomFilter, _native, errors
from bloomery.filters import creation
from bloomery.filters.files import Loading
from bloomery.filters.internals import add_hashes, check_compatible, facts, sections
from bloomery.service.domain import operations
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import (
    LARGE,
    Conflict,
    DamagedRecord,
    Op,
    UnknownOperation,
    quoted,
)
from bloomery.service.domain.policy import limit_and_threshold, refusal
from bloomery.storage import memory

_T = TypeVar("_T")
# A window that never ends is not scheduled.
_CENTURY = 3.2e9
# Bytes of a new filter: a larger one gets its memory when keys are added.
_MAX_TOUCHED = 4 << 30
# Takes the place of a filter on the shelf while its chunks are loaded.
_INCOMPLETE = BloomFilter(1)
_CALL = 4 << 10  # bytes: to merge two small filters takes as long as so much memory
_SPARE = 64 << 20  # bytes: with these free, a forged size and not the machine lacks memory
_NON_SCALING = "non scaling filter is full"  # RedisBloom's error
# Operations that change the keys of a filter in a way that the new filter of a rebuild misses.
_OTHER_KEYS = (Op.MERGE, Op.CLEAR, Op.CHUNK, Op.ROTATE)


class LongWork(NamedTuple):
    """The part of an operation that goes through many bytes. It changes only filters whose names
    the operation has, so a thread can do it while other filters are used."""

    nbytes: int
    run: Callable[[], Any]

    @property
    def is_long(self) -> bool:
        """Whether it takes milliseconds."""
        return self.nbytes > LARGE


Steps: TypeAlias = Generator[LongWork, Any, Any]


class State:
    """The filters of a server.

    `on_drop` is called with each entry that is dropped. An operation that is refused has changed
    nothing.

    `filters` (by number) and `names` are views: entries are put, dropped and renamed here alone,
    and the shelf of a running server (`attach`) follows each step.

    Time is what the records say: a rotating filter uses `now`, the time of the last record that was
    applied. So a replay expires exactly what the server expired.
    """

    def __init__(self) -> None:
        self._filters: dict[int, Entry] = {}
        self._names: dict[bytes, Entry] = {}
        self.filters: Mapping[int, Entry] = MappingProxyType(self._filters)
        self.names: Mapping[bytes, Entry] = MappingProxyType(self._names)
        self._shelf: _native.Shelf | None = None
        self._scratch = _native.Shelf()  # applies keys where no server runs
        self._hidden: set[bytes] = set()  # names to take off the shelf
        self._changing = False  # an operation is under way
        self.next_id = 1
        self._last_refused = 0  # the highest number of a filter that was refused: keys can follow
        self.numbers_are_drawn = False  # nodes draw numbers, and do not count them
        self._time = _native.Time()  # rotating filters use it
        self.on_drop: Callable[[Entry], object] = lambda entry: None
        self.on_schedule: Callable[[], object] = lambda: None  # the next due time may have changed
        self.expired = 0  # filters, since the process started
        self._due: list[tuple[float, int]] = []  # a heap: when to look at which filter

    @property
    def now(self) -> float:
        """The time of the last record."""
        return self._time.seconds

    @now.setter
    def now(self, seconds: float) -> None:
        self._time.seconds = seconds

    # Entries: no other method changes which exist, and under which name.

    def attach(self, shelf: _native.Shelf) -> None:
        """Show all filters on a shelf from now on."""
        self._shelf = shelf
        for entry in self._filters.values():
            self._show(entry)

    def put(self, entry: Entry) -> None:
        """Publish an entry with its filter, new or from a snapshot."""
        self.set_clock(entry)
        self._filters[entry.id] = self._names[entry.name] = entry
        self.next_id = max(self.next_id, entry.id + 1)
        self.schedule(entry)
        self._show(entry)

    def remove(self, entry: Entry) -> None:
        """Remove an entry with its filter."""
        del self._filters[entry.id], self._names[entry.name]
        self._hide(entry.name)
        self.on_drop(entry)

    def _set_name(self, entry: Entry, name: bytes) -> None:
        """Give a free name to an entry."""
        self.count(entry)
        before, entry.name = entry.name, name
        self._names[name] = self._names.pop(before)
        self._show(entry)
        self._hide(before)

    def _show(self, entry: Entry) -> None:
        if self._shelf is not None:
            put_on(self._shelf, entry.name, entry)

    def _hide(self, name: bytes) -> None:
        """Take a name off the shelf, at the end of the operation."""
        self._hidden.add(name)
        if not self._changing:
            self._hide_all()

    def _hide_all(self) -> None:
        names, self._hidden = self._hidden, set()
        if self._shelf is not None:
            for name in names.difference(self._names):
                self._shelf.drop(name)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Publish what follows so that a name which gets another filter has one at any moment:
        workers read at any moment."""
        before, self._changing = self._changing, True
        try:
            yield
        finally:
            self._changing = before
            if not before:
                self._hide_all()

    def count(self, entry: Entry) -> int:
        """Return how many keys a filter has now."""
        if self._shelf is not None and self._filters.get(entry.id) is entry:
            figures = self._shelf.figures(entry.name)
            entry.items = entry.items if figures is None else figures[0]
        return entry.items

    def refresh(self, entry: Entry) -> None:
        """Give the shelf the limit and the threshold that follow from an entry now."""
        self.count(entry)
        self._show(entry)

    # Operations.

    def apply(self, op: int, filter_id: int, data: bytes, at: float) -> Any:
        """Apply an operation; return the entry that it changed, if it still exists, or the outcome
        of its keys."""
        return run_steps(self.steps(op, filter_id, data, max(self.now, at)))

    def steps(self, op: int, filter_id: int, data: bytes, at: float) -> Steps:
        """Apply an operation in steps. It yields the work that takes long, and expects the result;
        before that it has changed nothing.

        Each step is done at the time of the record. If the operation waited for a thread, later
        records are applied by then, but a replay applies them afterwards."""
        steps = self._steps(op, filter_id, data)
        resume = partial(next, steps)
        while True:
            latest, self.now = max(self.now, at), at
            try:
                with self.change():
                    work = resume()
            except StopIteration as end:
                return end.value
            finally:
                self.now = latest
            try:
                resume = partial(steps.send, (yield work))
            except Exception as problem:  # noqa: BLE001  # the operation decides what it means
                resume = partial(steps.throw, problem)

    def _steps(self, op: int, filter_id: int, data: bytes) -> Steps:
        if op not in _METHODS:
            raise UnknownOperation(
                f"operation {op} is unknown; a newer version of bloomery wrote it, so upgrade"
            )
        name, body = operations.split(data)
        try:
            done = _METHODS[op](self, filter_id, name, body)
            if isinstance(done, Generator):
                done = yield from done
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            if isinstance(problem, errors.BloomeryError):
                raise
            raise DamagedRecord(f"{Op(op).name} lacks fields that it needs") from problem
        if isinstance(done, Entry):
            if op in _OTHER_KEYS:
                done.settings.pop("successor", None)
            self._show(done)
        return done

    def names_in(self, op: int, filter_id: int, data: bytes) -> list[bytes]:
        """Return the names that a record is about, with that of the filter's successor, which gets
        the same keys."""
        names, entry = operations.names_in(op, data), self._filters.get(filter_id)
        number = None if entry is None else entry.settings.get("successor")
        return [*names, self._filters[number].name] if number in self._filters else names

    def due(self, now: float, limit: int | None = None) -> list[tuple[Entry, Op]]:
        """Return the filters that expire or rotate by this time, with the operation for each, and
        no more than the limit. They are scheduled again by `schedule`."""
        found: list[tuple[Entry, Op]] = []
        numbers: set[int] = set()
        while self._due and self._due[0][0] <= now and len(found) != limit:
            entry = self._filters.get(heapq.heappop(self._due)[1])
            if entry is None or entry.id in numbers:
                continue
            numbers.add(entry.id)
            if entry.expires_at is not None and entry.expires_at <= now:
                found.append((entry, Op.DROP))
            elif entry.filter is not None and _due(entry) <= now:
                found.append((entry, Op.TICK))
        return found

    def pass_time(self, now: float) -> None:
        """Expire and rotate what is due by this time, which the log has."""
        for entry, op in self.due(now):
            self.apply(op, entry.id, operations.named(entry.name), now)
            self.expired += op is Op.DROP
        self.now = max(self.now, now)

    def schedule(self, entry: Entry) -> None:
        """Look at a filter again when it expires or rotates."""
        if entry.expires_at is not None:
            heapq.heappush(self._due, (entry.expires_at, entry.id))
        if entry.filter is not None and (due := _due(entry)) < self.now + _CENTURY:
            heapq.heappush(self._due, (due, entry.id))
        self.on_schedule()

    @property
    def next_due(self) -> float | None:
        """When to look at a filter next; None if none expires or rotates."""
        return self._due[0][0] if self._due else None

    def set_clock(self, entry: Entry) -> None:
        """Make a rotating filter use the time of the records."""
        if entry.filter is not None and entry.filter.kind == "rotating":
            entry.filter.set_clock(self._time)

    @contextmanager
    def _stopped_clock(self, *filters: Any) -> Any:
        """Keep the time of rotating filters while a thread works on them: other records move it."""
        stopped = _native.Time()
        stopped.seconds = self.now
        rotating = [filter for filter in filters if filter.kind == "rotating"]
        for filter in rotating:
            filter.set_clock(stopped)
        try:
            yield stopped.seconds
        finally:
            for filter in rotating:
                filter.set_clock(self._time)

    def filter_of(self, entry: Entry) -> Any:
        """Return the filter of an entry, to be read or changed."""
        if entry.filter is None:
            raise errors.InvalidParameter(f"{quoted(entry.name)} is still being loaded")
        return entry.filter

    def set_filter(self, entry: Entry, filter: Any) -> None:
        """Give another filter to an entry."""
        entry.filter = filter

    def _entry(self, filter_id: int, name: bytes) -> Entry:
        """Return the entry that a record is for; Conflict if it is no longer what it was."""
        entry = self._present(filter_id, name)
        self.count(entry)
        return entry

    def _present(self, filter_id: int, name: bytes) -> Entry:
        """As `_entry`, without an up-to-date count of its keys."""
        entry = self._filters.get(filter_id)
        if (
            entry is None
            and filter_id >= max(self.next_id, self._last_refused + 1)
            and not self.numbers_are_drawn
        ):
            raise DamagedRecord(f"filter number {filter_id} does not exist")
        if entry is None or entry.name != name:
            raise Conflict(f"another command changed filter {quoted(name)} first; retry")
        return entry

    def _require_new(self, filter_id: int, name: bytes, *, replace: bool = False) -> None:
        """Raise unless a filter of this number and name can be created. A server creates large
        filters in threads, so filters with later numbers can be created first."""
        in_order = self._shelf is None and not self.numbers_are_drawn
        if filter_id in self._filters or (in_order and filter_id < self.next_id):
            raise DamagedRecord(f"filter number {filter_id} was used before")
        if name in self._names and not replace:
            self._last_refused = max(self._last_refused, filter_id)
            raise errors.FilterExists(f"filter {quoted(name)} already exists")

    def _release_name(self, name: bytes) -> None:
        """Drop the filter that has a name, if one has."""
        if name in self._names:
            self.remove(self._names[name])

    # Keys.

    def _keys(self, op: Op, filter_id: int, name: bytes, body: bytes) -> Steps:
        """Add or remove keys; return their outcome."""
        entry = self._entry(filter_id, name)
        filter = self.filter_of(entry)
        data = operations.named(name, body)
        entry.settings.pop("loadable", None)
        if "successor" in entry.settings and op != Op.REMOVE:
            self._add_to_successor(entry, body)
        if self._shelf is None:
            return self._apply_keys(entry, filter, op, data)
        self._show(entry)
        work = partial(self._shelf.apply_one, filter_id, op, data)
        if not self._shelf.needs_room(name, len(body) // 8):
            return work()
        with self._stopped_clock(filter):
            outcome = yield LongWork(LARGE + 1, work)  # it grows
        return outcome

    def _apply_keys(self, entry: Entry, filter: Any, op: Op, data: bytes) -> Any:
        scratch = self._scratch
        put_on(scratch, entry.name, replace(entry, filter=filter))
        try:
            outcome = scratch.apply_one(entry.id, op, data)
            figures = scratch.figures(entry.name)
            entry.items = 0 if figures is None else figures[0]
        finally:
            scratch.drop(entry.name)
        return outcome

    def _add_to_successor(self, entry: Entry, body: bytes) -> None:
        """Add the keys to the filter that is to replace this one; if it cannot have them, it does
        not replace it."""
        successor = self._filters.get(entry.settings["successor"])
        if successor is not None:
            outcome = run_steps(self._keys(Op.ADD, successor.id, successor.name, body))
            if outcome is not None and outcome[1] is None:
                return
        del entry.settings["successor"]

    def _add(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        return self._keys(Op.ADD, filter_id, name, body)

    def _remove(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        return self._keys(Op.REMOVE, filter_id, name, body)

    def _add_new(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        return self._keys(Op.ADD_NEW, filter_id, name, body)

    def _add_in_place(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        return self._keys(Op.ADD_IN_PLACE, filter_id, name, body)

    def _add_new_in_place(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        return self._keys(Op.ADD_NEW_IN_PLACE, filter_id, name, body)

    # The other operations, each by the name of its code.

    def _create(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        settings, now = operations.read_fields(body)["settings"], self.now
        self._require_new(filter_id, name)
        # A key needs a byte or more, whatever the kind.
        nbytes = int(settings.get("capacity", 0))
        touch = self._shelf is not None  # a replay gets the memory that it needs
        filter = yield LongWork(nbytes, partial(_created, settings, lambda: now, touch=touch))
        entry = Entry(filter_id, name, filter, now, settings=settings)
        entry.settings["kind"] = filter.kind
        self.put(entry)
        return entry

    def _drop(self, filter_id: int, name: bytes, body: bytes) -> None:
        self.remove(self._entry(filter_id, name))

    def _rename(self, filter_id: int, name: bytes, body: bytes) -> Entry:
        entry, fields = self._entry(filter_id, name), operations.read_fields(body)
        to = operations.name_of(fields["to"])
        if to != name:
            if to in self._names and not fields["replace"]:
                raise errors.FilterExists(f"filter {quoted(to)} already exists")
            self._release_name(to)  # as Redis does
            self._set_name(entry, to)
        self._amend(entry, fields)
        return entry

    def _amend(self, entry: Entry, fields: dict[str, Any]) -> None:
        """Change settings and expiry, if a record has them."""
        for setting, value in fields.get("settings", {}).items():
            if value is None:
                entry.settings.pop(setting, None)
            else:
                entry.settings[setting] = value
        if "source" in fields.get("settings", {}):
            entry.settings.pop("successor", None)  # it is built from the other source
        if "at" in fields:
            entry.expires_at = fields["at"]
            self.schedule(entry)

    def _copy(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        fields, now = operations.read_fields(body), self.now
        source = self._entry(fields["source"], operations.name_of(fields["of"]))
        if source.name == name:
            raise errors.InvalidParameter(f"{quoted(name)} cannot be copied onto itself")
        self._require_new(filter_id, name, replace=fields["replace"])
        filter = self.filter_of(source)
        with self._stopped_clock(filter):
            copy = yield LongWork(filter.nbytes, filter.copy)
        self._release_name(name)
        settings = {key: value for key, value in source.settings.items() if key != "successor"}
        entry = Entry(filter_id, name, copy, now, source.expires_at, source.items, settings)
        self.put(entry)
        self._amend(entry, fields)
        return entry

    def _expire(self, filter_id: int, name: bytes, body: bytes) -> Entry:
        entry, fields = self._entry(filter_id, name), operations.read_fields(body)
        if fields.get("expected", entry.expires_at) != entry.expires_at:
            raise Conflict(f"another command changed the expiry of {quoted(name)} first; retry")
        entry.expires_at = fields["at"]
        self.schedule(entry)
        return entry

    def _adjust(self, filter_id: int, name: bytes, body: bytes) -> Entry:
        entry = self._entry(filter_id, name)
        self._amend(entry, operations.read_fields(body))
        return entry

    def _clear(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        entry = self._entry(filter_id, name)
        filter = self.filter_of(entry)
        with self._stopped_clock(filter):
            yield LongWork(filter.nbytes, filter.clear)
        entry.items = 0
        return entry

    def _merge(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        fields = operations.read_fields(body)
        entry = self._entry(filter_id, name)
        sources = [
            self._present(number, operations.name_of(text)) for number, text in fields["sources"]
        ]
        target, others = self.filter_of(entry), [self.filter_of(source) for source in sources]
        union = fields.get("how", "union") == "union"
        nbytes = max(target.nbytes, _CALL) * len(others)
        with self._stopped_clock(target, *others):
            items = yield LongWork(nbytes, partial(_merged, target, others, union=union))
        entry.items = items
        return entry

    def _rotate(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        entry = self._entry(filter_id, name)
        filter = self.filter_of(entry)
        if not hasattr(filter, "rotate"):
            raise errors.ReadOnlyFilter(
                f"{quoted(name)} is a {filter.kind} filter; only a rotating filter can rotate"
            )
        if body and operations.read_fields(body)["began"] != facts(filter)["generation_started"]:
            raise errors.InvalidParameter(f"{quoted(name)} has already rotated")
        with self._stopped_clock(filter):
            items = yield LongWork(filter.nbytes, partial(_rotated, filter))
        entry.items = items
        self.schedule(entry)
        return entry

    def _succeed(self, filter_id: int, name: bytes, body: bytes) -> Entry:
        old, number = self._entry(filter_id, name), operations.read_fields(body)["successor"]
        if old.settings.get("successor") != number or number not in self._filters:
            raise errors.InvalidParameter(f"{quoted(name)} has no successor any more")
        new = self._filters[number]
        filter = self.filter_of(new)
        self.count(new)
        self.remove(new)
        # The number stays: keys that other nodes are about to add by it are for the new filter.
        self.set_filter(old, filter)
        old.items, old.created_at = new.items, new.created_at
        # A cuckoo filter's successor can grow; its policy says whether it does, as before.
        own = {key: value for key, value in new.settings.items() if key != "successor"}
        old.settings = own | kept_settings(old)
        return old

    def _forget(self, filter_id: int, name: bytes, body: bytes) -> Entry:
        return self._entry(filter_id, name)  # for caches: the filter does not change

    def _tick(self, filter_id: int, name: bytes, body: bytes) -> Entry:
        entry = self._entry(filter_id, name)
        filter = self.filter_of(entry)
        add_hashes(filter, b"")  # every use of the filter first expires what is due
        entry.items = filter.estimated_count
        self.schedule(entry)
        return entry

    def _compact(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        entry = self._entry(filter_id, name)
        filter = self.filter_of(entry)
        compacted = yield LongWork(filter.nbytes, partial(_compacted, filter))
        entry.filter = compacted
        return entry

    # Chunks of saved filters.

    def _chunk(self, filter_id: int, name: bytes, body: bytes) -> Steps:
        position, fields, part = operations.read_chunk(body)
        if position == 1:
            entry = yield from self._first_chunk(filter_id, name, fields, part)
            return entry
        entry = self._entry(filter_id, name)
        if entry.loading is not None:
            yield from self._load(entry, position - 1, part)
        elif "loadable" in entry.settings:
            filter = self.filter_of(entry)
            # The kernel makes the memory now: a huge page took 5 ms.
            yield LongWork(filter.nbytes, partial(filter.load_chunk, position, part))
        else:
            raise errors.ReadOnlyFilter(
                f"filter {quoted(name)} is in use, and a chunk would overwrite its keys; delete it "
                "first, then load all chunks"
            )
        return entry

    def _first_chunk(
        self, filter_id: int, name: bytes, fields: dict[str, Any], part: bytes
    ) -> Generator[LongWork, Any, Entry]:
        """Start to load a filter. The `format` of its chunks is "bloomery", where a position is one
        more than an offset in the file, or a kind of RedisBloom, with its positions."""
        settings, now = fields.get("settings", {}), self.now
        self._require_new(filter_id, name, replace=fields.get("replace", False))
        entry = Entry(filter_id, name, None, now, fields.get("expires_at"), settings=settings)
        if fields["format"] == "bloomery":
            entry.loading = Loading()
            yield from self._load(entry, 0, part)
        else:
            entry.filter = creation.class_of(fields["format"]).from_dump(part)
            entry.settings |= {"kind": entry.filter.kind, "loadable": True}
            entry.items = entry.filter.estimated_count  # as its header says
            self._publish(entry)
        return entry

    def _load(self, entry: Entry, offset: int, part: bytes) -> Generator[LongWork, Any, None]:
        assert entry.loading is not None
        work = partial(_loaded, entry, offset, part, self.now)
        loading, filter, items = yield LongWork(entry.loading.nbytes_of(part), work)
        entry.loading, entry.filter = loading, filter
        if filter is not None:
            entry.loading = None
            entry.settings["kind"] = filter.kind
            entry.items = items
        self._publish(entry)

    def _publish(self, entry: Entry) -> None:
        """Put an entry, which may replace another filter of its name."""
        if self._names.get(entry.name) is not entry:
            self._release_name(entry.name)
        self.put(entry)


def put_on(shelf: _native.Shelf, name: bytes, entry: Entry) -> None:
    """Show a filter on a shelf as it is now."""
    filter, (limit, threshold) = entry.filter, limit_and_threshold(entry)
    chosen = limit is not None and "on_full" in entry.settings
    shelf.put(
        name,
        _INCOMPLETE if filter is None else filter,
        entry.id,
        family=entry.settings.get("door", "bf"),
        items=entry.items,
        limit=limit,
        full=f"this filter {refusal(entry)}" if chosen else _NON_SCALING,
        threshold=threshold,
        loading=filter is None,
        followed=entry.needs_python,
    )


def kept_settings(entry: Entry) -> dict[str, Any]:
    """Return the settings of a filter that its successor keeps: those that do not describe how it
    was created."""
    return {name: value for name, value in entry.settings.items() if name not in _OWN_SETTINGS}


_OWN_SETTINGS = {
    "kind",
    "successor",
    *(name for names in creation.PARAMETERS.values() for name in names),
}


def run_steps(steps: Steps) -> Any:
    """Apply an operation, its long work included; return its result."""
    try:
        work = next(steps)
        while True:
            try:
                result = work.run()
            except Exception as problem:  # noqa: BLE001  # the operation decides what it means
                work = steps.throw(problem)
            else:
                work = steps.send(result)
    except StopIteration as end:
        return end.value


# The long part of each operation.


def _created(settings: dict[str, Any], clock: Callable[[], float], *, touch: bool) -> Any:
    filter = creation.create(settings, clock)
    if touch and LARGE < filter.nbytes <= _MAX_TOUCHED and filter.kind != "bank":
        # The kernel zeroes huge pages when they are first written: a batch of a thousand keys
        # waited for all of a gigabyte, 0.1 s and more.
        for section in sections(filter):
            _native.touch(section)
    return filter


def _merged(target: Any, others: list[Any], *, union: bool) -> int:
    for other in others:  # before the first is merged: all of them or none
        check_compatible(target, other, "a merge")
    for other in others:
        if union:
            target |= other
        else:
            target &= other
    return int(target.estimated_count)


def _rotated(filter: Any) -> int:
    filter.rotate()
    return int(filter.estimated_count)


def _compacted(filter: Any) -> Any:
    if hasattr(filter, "compact"):
        filter.compact()
    elif hasattr(filter, "fold"):
        return filter.fold()
    return filter


def _loaded(entry: Entry, offset: int, part: bytes, now: float) -> tuple[Loading, Any, int]:
    """Take a part of a saved filter; return the filter, if this was its last part, and how many
    keys it has."""
    assert entry.loading is not None
    nbytes = entry.loading.nbytes_of(part)
    try:
        filter = entry.loading.take(offset, part)
    except errors.NotEnoughMemory as problem:
        memory.check(nbytes + _SPARE)  # raises if the machine is short of memory
        raise errors.CorruptData(f"the saved filter cannot be loaded: {problem}") from None
    if filter is None:
        return entry.loading, None, 0
    if filter.kind == "rotating":  # by another clock it could drop everything
        filter.set_clock(lambda: now)
    return entry.loading, filter, int(filter.estimated_count)


def _due(entry: Entry) -> float:
    """Return when time next changes the filter."""
    return float(entry.filter._due()) if entry.filter.kind == "rotating" else float("inf")


_METHODS: dict[int, Callable[[State, int, bytes, bytes], Any]] = {
    op: getattr(State, f"_{op.name.lower()}") for op in Op
}
