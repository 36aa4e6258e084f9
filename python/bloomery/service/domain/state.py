"""All filters of a server, and what every operation does to them: live and in replay alike, so that
a log leads to the same filters as the first time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from bloomery import _native, errors
from bloomery.filters import creation
from bloomery.filters.files import Loading
from bloomery.filters.internals import (
    add_hashes,
    check_compatible,
    facts,
    remove_hashes,
    sections,
)
from bloomery.service.domain import operations
from bloomery.service.domain.deferral import LARGE, Deferral, Deferred
from bloomery.service.domain.operations import Op, Record, quoted

# Nothing waits for what comes later: a window that never ends would be waited for at each rotation.
_CENTURY = 3.2e9
# Bytes of a new filter: of a larger one nobody waits until the kernel has made all of its memory.
_MOST_TOUCHED = 4 << 30


class FilterDropped(errors.UnknownFilter):
    """On a node: the filter was dropped before the shared log came to the operation, and nothing
    was done. Its name is free by now, or another filter's: that is what is to be answered for."""


@dataclass(slots=True)
class Entry:
    """A filter of the server, by number and by name."""

    id: int
    name: bytes
    filter: Any  # of any kind; None while it is loaded in chunks
    created_at: float
    expires_at: float | None = None
    # Keys that were new when they were added, less those removed. Of hashes that did not come
    # through `State.apply` whoever added them counts.
    items: int = 0
    settings: dict[str, Any] = field(default_factory=dict)  # as CREATE and ADJUST gave them
    loading: Loading | None = None
    changes: int = 0  # operations that a running server did to it, adds and removals aside
    followed: bool = False  # does a successor, which is being built, get every key that is added?


class Shelf(Protocol):
    """Where a running server's hot path finds the filters. Only `State` puts them there, in the
    same step in which it changes its own entries: the two cannot differ."""

    def put(self, entry: Entry) -> None:
        """Show a filter as it is now, in place of what its name had before."""

    def drop(self, name: bytes) -> None:
        """Show none of this name any more."""

    def items(self, entry: Entry) -> int:
        """How many keys it holds: the hot path counts what it adds and removes."""


class State:
    """The filters of a server.

    `on_drop` is called with each entry that is gone. An operation that is refused has changed
    nothing and belongs in no log.

    `filters` (by number) and `names` are views: entries are put, dropped and renamed here alone,
    and with each step the shelf of a running server (`attach`) follows.

    Time is what the operations say it is: a filter that forgets goes by `now`, the time of the last
    operation, or of the last `pass_time`. A server calls that at the start of each turn and logs
    the turn's records with the same time; a replay then forgets exactly what the server forgot.
    """

    def __init__(self) -> None:
        self._filters: dict[int, Entry] = {}
        self._names: dict[bytes, Entry] = {}
        self.filters: Mapping[int, Entry] = MappingProxyType(self._filters)
        self.names: Mapping[bytes, Entry] = MappingProxyType(self._names)
        self._shelf: Shelf | None = None
        self.next_id = 1
        self.numbers_are_drawn = False  # by nodes, and not counted
        self.now = 0.0
        self.on_drop: Callable[[Entry], object] = lambda entry: None
        self._waiting: list[tuple[float, int]] = []  # a heap: when to look at which filter
        self.deferral = Deferral()  # of what takes long

    def clock(self) -> float:
        """The time that filters go by."""
        return self.now

    # Entries: no other method changes which there are, and under which name.

    def attach(self, shelf: Shelf) -> None:
        """Let a shelf show all filters from now on."""
        self._shelf = shelf
        for entry in self._filters.values():
            shelf.put(entry)

    def put(self, entry: Entry) -> None:
        """Take an entry in, with its filter, as it was created or as it comes from a snapshot."""
        self.set_clock(entry)
        self._filters[entry.id] = self._names[entry.name] = entry
        self.next_id = max(self.next_id, entry.id + 1)
        self._schedule(entry)
        self._show(entry)

    def remove(self, entry: Entry) -> None:
        """Take an entry out, with its filter."""
        del self._filters[entry.id], self._names[entry.name]
        if self._shelf is not None:
            self._shelf.drop(entry.name)
        self.on_drop(entry)

    def _set_name(self, entry: Entry, name: bytes) -> None:
        """Give a free name to an entry."""
        before, entry.name = entry.name, name
        self._names[name] = self._names.pop(before)
        if self._shelf is not None:
            self._shelf.drop(before)
            self._shelf.put(entry)

    def _show(self, entry: Entry) -> None:
        if self._shelf is not None:
            self._shelf.put(entry)

    def count(self, entry: Entry) -> int:
        """How many keys a filter holds now."""
        if self._shelf is not None and self._filters.get(entry.id) is entry:
            entry.items = self._shelf.items(entry)
        return entry.items

    def refresh(self, entry: Entry) -> None:
        """Let the shelf have what follows from an entry (its limit, its threshold) as it is now."""
        self.count(entry)
        self._show(entry)

    # Operations.

    def apply(self, op: int, filter_id: int, data: bytes, at: float) -> Entry | None:
        """Do an operation; the entry that it was done to, if it is still there.

        CREATE, COPY and the first CHUNK make a filter and take `next_id` as its number.
        """
        self.now = at
        method = _METHODS.get(op)
        if method is None:
            raise errors.UnsupportedVersion(
                f"operation {op} is not known: a newer bloomery wrote it: upgrade bloomery again"
            )
        try:
            entry = method(self, filter_id, data)
            if entry is not None:
                self._show(entry)
            return entry
        except (errors.BloomeryError, Deferred):
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as problem:  # fields that are not
            raise errors.CorruptData(f"{Op(op).name} has not the fields it needs") from problem

    def pass_time(
        self, now: float, is_locked: Callable[[Entry], bool] = lambda entry: False
    ) -> list[Record]:
        """Let the time be `now`: drop what has expired, rotate what is due. Returns the records of
        it, which belong in the log with that time. What is locked waits until it no longer is."""
        self.now = now
        records: list[Record] = []
        locked: list[tuple[float, int]] = []
        while self._waiting and self._waiting[0][0] <= now:
            due = heapq.heappop(self._waiting)
            entry = self.filters.get(due[1])
            if entry is None:
                continue
            if is_locked(entry):
                locked.append(due)
                continue
            if entry.expires_at is not None and entry.expires_at <= now:
                records.append((entry.id, Op.DROP, b""))
            elif entry.filter is not None and _due(entry) <= now:
                records.append((entry.id, Op.TICK, b""))
            else:
                continue  # what it waited for is no more
            self.apply(records[-1][1], entry.id, b"", now)
        for due in locked:
            heapq.heappush(self._waiting, due)
        return records

    def set_clock(self, entry: Entry) -> None:
        """Let a rotating filter go by the time of the operations, before anything is done with
        it."""
        if entry.filter is not None and entry.filter.kind == "rotating":
            entry.filter.set_clock(self.clock)

    def filter_of(self, entry: Entry) -> Any:
        """Return the filter that is about to be read or changed."""
        if entry.filter is None:
            raise errors.InvalidParameter(f"{quoted(entry.name)} is still being loaded")
        return entry.filter

    def _schedule(self, entry: Entry) -> None:
        if entry.expires_at is not None:
            heapq.heappush(self._waiting, (entry.expires_at, entry.id))
        if entry.filter is not None and (due := _due(entry)) < self.now + _CENTURY:
            heapq.heappush(self._waiting, (due, entry.id))

    def _entry(self, filter_id: int) -> Entry:
        entry = self._filters.get(filter_id)
        if entry is None and self.numbers_are_drawn:
            raise FilterDropped("the filter was dropped meanwhile")
        if entry is None:
            raise errors.CorruptData(f"there is no filter number {filter_id}")
        self.count(entry)
        return entry

    def _new(self, filter_id: int, name: bytes, replace: bool = False) -> None:
        """Raise unless a filter of this number and name can be made."""
        if filter_id in self.filters or (filter_id < self.next_id and not self.numbers_are_drawn):
            raise errors.InvalidParameter(
                f"filter number {filter_id} was given before: the next one is {self.next_id}"
            )
        if name in self.names and not replace:
            raise errors.FilterExists(f"there is a filter named {quoted(name)} already")

    # The operations, each by the name of its code.

    def _add(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        entry.items += add_hashes(self.filter_of(entry), data)
        return entry

    def _remove(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        entry.items -= remove_hashes(self.filter_of(entry), data)
        return entry

    def _add_new(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        shelf = _native.Shelf()  # for this only: it knows how to ask and add by hashes
        shelf.put(b"", self.filter_of(entry), entry.id)
        answers, _ = shelf.apply(b"", Op.ADD_NEW, data)
        entry.items += answers.count(1)
        return entry

    def _create(self, filter_id: int, data: bytes) -> Entry:
        fields = operations.read_fields(data)
        name = operations.name_of(fields["name"])
        self._new(filter_id, name)
        # A key takes a byte and more, of whatever kind.
        nbytes = int(fields["settings"].get("capacity", 0))
        # Live, its first keys find all of the memory there; a replay takes what it needs.
        work = partial(_created, fields["settings"], self.clock, touch=self.deferral.allowed)
        filter = self.deferral.run(nbytes, work)
        entry = Entry(filter_id, name, filter, self.now, settings=fields["settings"])
        entry.settings["kind"] = filter.kind
        self.put(entry)
        return entry

    def _drop(self, filter_id: int, data: bytes) -> None:
        self.remove(self._entry(filter_id))

    def _rename(self, filter_id: int, data: bytes) -> Entry:
        entry, name = (
            self._entry(filter_id),
            operations.name_of(operations.read_fields(data)["name"]),
        )
        if name != entry.name:
            if name in self._names:  # as Redis does it
                self.remove(self._names[name])
            self._set_name(entry, name)
        return entry

    def _copy(self, filter_id: int, data: bytes) -> Entry:
        fields = operations.read_fields(data)
        source, name = self._entry(fields["source"]), operations.name_of(fields["name"])
        if name in self.names and self.names[name] is source:
            raise errors.InvalidParameter(f"{quoted(name)} cannot be copied onto itself")
        self._new(filter_id, name, replace=True)
        filter = self.filter_of(source)
        copy = self.deferral.run(filter.nbytes, filter.copy)
        if name in self._names:
            self.remove(self._names[name])
        settings = {key: value for key, value in source.settings.items() if key != "successor"}
        entry = Entry(filter_id, name, copy, self.now, source.expires_at, source.items, settings)
        self.put(entry)
        return entry

    def _expire(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        entry.expires_at = operations.read_fields(data)["at"]
        self._schedule(entry)
        return entry

    def _adjust(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        for name, value in operations.read_fields(data).items():
            if value is None:
                entry.settings.pop(name, None)
            else:
                entry.settings[name] = value
        return entry

    def _clear(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        filter = self.filter_of(entry)
        self.deferral.run(filter.nbytes, filter.clear)
        entry.items = 0
        return entry

    def _merge(self, filter_id: int, data: bytes) -> Entry:
        fields = operations.read_fields(data)
        entry = self._entry(filter_id)
        others = [self.filter_of(self._entry(source)) for source in fields["sources"]]
        target = self.filter_of(entry)
        for other in others:  # all of them or none
            check_compatible(target, other, "a merge")
        union = fields.get("how", "union") == "union"
        nbytes = target.nbytes * len(others)
        entry.items = self.deferral.run(nbytes, partial(_merged, target, others, union=union))
        return entry

    def _rotate(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        filter = self.filter_of(entry)
        if not hasattr(filter, "rotate"):
            raise errors.ReadOnlyFilter(
                f"{quoted(entry.name)} is a {filter.kind} filter: only a rotating one rotates"
            )
        if data and operations.read_fields(data)["began"] != facts(filter)["generation_started"]:
            raise errors.InvalidParameter(f"{quoted(entry.name)} has rotated meanwhile")
        entry.items = self.deferral.run(filter.nbytes, partial(_rotated, filter))
        self._schedule(entry)
        return entry

    def _succeed(self, filter_id: int, data: bytes) -> Entry:
        old, number = self._entry(filter_id), operations.read_fields(data)["successor"]
        if old.settings.get("successor") != number or number not in self._filters:
            raise errors.InvalidParameter(f"{quoted(old.name)} has no successor (any more)")
        new = self._entry(number)
        self.remove(new)
        # The number stays: what other nodes are about to add by it is for the new filter.
        old.filter, old.items, old.created_at = new.filter, new.items, new.created_at
        own = {name: value for name, value in new.settings.items() if name in _OWN_SETTINGS}
        old.settings = kept_settings(old) | own
        return old

    def _forget(self, filter_id: int, data: bytes) -> Entry:
        return self._entry(filter_id)  # it is about caches: the filter stays as it is

    def _tick(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        filter = self.filter_of(entry)
        add_hashes(filter, b"")  # whatever is done to it first lets time pass
        entry.items = filter.estimated_count
        self._schedule(entry)
        return entry

    def _compact(self, filter_id: int, data: bytes) -> Entry:
        entry = self._entry(filter_id)
        filter = self.filter_of(entry)
        compacted = self.deferral.run(filter.nbytes, partial(_compacted, filter))
        entry.filter = compacted
        return entry

    def _chunk(self, filter_id: int, data: bytes) -> Entry:
        position, fields, part = operations.read_chunk(data)
        if position == 1:
            return self._first_chunk(filter_id, fields, part)
        entry = self._entry(filter_id)
        if entry.loading is not None:
            self._load(entry, position - 1, part)
        else:
            self.filter_of(entry).load_chunk(position, part)
        return entry

    def _first_chunk(self, filter_id: int, fields: dict[str, Any], part: bytes) -> Entry:
        """The fields name the filter, and the `format` of the chunks: "bloomery", where a position
        is one more than an offset in the file, or a kind of RedisBloom's, by its positions."""
        name, chosen = operations.name_of(fields["name"]), fields.get("settings", {})
        self._new(filter_id, name)
        entry = Entry(filter_id, name, None, self.now, settings=chosen)
        if fields["format"] == "bloomery":
            entry.loading = Loading()
            self._load(entry, 0, part)
        else:
            entry.filter = creation.class_of(fields["format"]).from_dump(part)
            entry.settings["kind"] = entry.filter.kind
            entry.items = entry.filter.estimated_count  # as the head says
            self.put(entry)
        return entry

    def _load(self, entry: Entry, offset: int, part: bytes) -> None:
        assert entry.loading is not None
        work = partial(self._loaded, entry, offset, part)
        nbytes = entry.loading.nbytes_of(part)
        entry.loading, entry.filter, items = self.deferral.run(nbytes, work)
        if entry.filter is not None:
            entry.loading = None
            entry.settings["kind"] = entry.filter.kind
            entry.items = items
        self.put(entry)

    def _loaded(self, entry: Entry, offset: int, part: bytes) -> tuple[Loading, Any, int]:
        """Take a part in, which may take long: return the filter, if this was its last part, and
        how many keys it holds."""
        assert entry.loading is not None
        filter = entry.loading.take(offset, part)
        if filter is None:
            return entry.loading, None, 0
        # Before anything is asked of it: by another clock it might forget all it has.
        self.set_clock(replace(entry, filter=filter))
        return entry.loading, filter, int(filter.estimated_count)


def kept_settings(entry: Entry) -> dict[str, Any]:
    """Return the settings of a filter that its successor takes over: those that do not say how a
    filter is made."""
    return {name: value for name, value in entry.settings.items() if name not in _OWN_SETTINGS}


_OWN_SETTINGS = {
    "kind",
    "successor",
    *(name for names in creation.PARAMETERS.values() for name in names),
}


# What takes long of each operation.


def _created(settings: dict[str, Any], clock: Callable[[], float], *, touch: bool) -> Any:
    filter = creation.create(settings, clock)
    if touch and LARGE < filter.nbytes <= _MOST_TOUCHED and filter.kind != "bank":
        # The kernel makes huge pages of zeros for who first writes to them: a batch of a thousand
        # keys waited for all of a gigabyte, 0.1 s and more.
        for section in sections(filter):
            _native.touch(section)
    return filter


def _merged(target: Any, others: list[Any], *, union: bool) -> int:
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


def _due(entry: Entry) -> float:
    """When time next changes the filter."""
    return float(entry.filter._due()) if entry.filter.kind == "rotating" else float("inf")


_METHODS: dict[int, Callable[[State, int, bytes], Entry | None]] = {
    op: getattr(State, f"_{op.name.lower()}") for op in Op
}
