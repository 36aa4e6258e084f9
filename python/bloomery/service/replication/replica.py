"""Applies the shared log, what this node and the others wrote, to the filters of this node. The
same entries in the same order make the same filters on every node, with the same answers: an
operation that is refused is refused on all, and has changed nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from bloomery import _native, errors
from bloomery.service.domain import operations
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import HASHES, Op, Record, UnknownOperation, read_fields
from bloomery.service.engine import Engine

_ADDS = (Op.ADD, Op.ADD_NEW, Op.ADD_IN_PLACE, Op.ADD_NEW_IN_PLACE)
_REPEATED = (*_ADDS, Op.MERGE, Op.ADJUST, Op.FORGET, Op.CHUNK, Op.EXPIRE)
_KEEPING = {"replace": False}


class Results(NamedTuple):
    """What operations came to."""

    each: list[Any]  # the result of each, or the error that says why it was refused
    # Keys that were there when they were added, how many by the number of the filter: if that is
    # all there was, the log has nothing of it.
    repeats: Counter[int] | None = None


class FilterReplica:
    """The filters of an engine, or those that will be its filters once something is applied."""

    def __init__(self, engine: Engine, entries: Iterable[Entry] = (), now: float = 0.0) -> None:
        """`entries`: those of a snapshot, at this time."""
        self._engine = engine
        self._loaded: list[Entry] | None = list(entries)
        self._now = now
        self._copies: dict[tuple[int, bytes], int] = {}  # repeated renames, by number and new name

    def adopt(self) -> None:
        """Let the engine have these filters from now on, unless it has them."""
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            self._engine.exchange(loaded, self._now)

    def apply(self, payload: bytes, at_ms: int) -> Results:
        """Apply the operations of an entry, at Redis's time. NotEnoughMemory: this node cannot
        follow."""
        self.adopt()
        results: list[Any] = []
        for number, op, data in _native.unpack_records(payload):
            try:
                results.append(self._engine.apply(op, number, data, at_ms / 1000))
            except (errors.NotEnoughMemory, UnknownOperation):
                raise
            except errors.BloomeryError as problem:
                results.append(problem)
        return Results(results)

    def unchanged(self, payload: bytes) -> Results | None:
        """Return the results of operations that would change nothing; None: they would."""
        self.adopt()
        results: list[Any] = []
        repeats: Counter[int] = Counter()
        for number, op, data in _native.unpack_records(payload):
            if op == Op.REMOVE or op not in HASHES:
                return None
            answers = self._engine.shelf.unchanged(number, op, data)
            if answers is None:
                return None
            results.append((answers, None))
            repeats[number] += len(answers)
        return Results(results, repeats)

    def additions(self, payload: bytes) -> bytes | None:
        """Return the operations that can be applied later than others and take nothing from them;
        None if there are none."""
        self.adopt()
        records = [self._addition(*record) for record in _native.unpack_records(payload)]
        kept = [record for record in records if record is not None]
        return _native.pack_records(kept) if kept else None

    def _addition(self, number: int, op: int, data: bytes) -> Record | None:
        """Return the record to repeat after a loss, or None. A filter keeps its number when it is
        renamed, so the record gets the name that the filter has now. It replaces no filter: another
        node may create one before the record is in the log."""
        names, filters = self._engine.state.names, self._engine.state.filters
        name, body = operations.split(data)
        if op == Op.COPY:
            data = operations.named(name, operations.fields(**read_fields(body) | _KEEPING))
        elif op == Op.CHUNK:
            position, given, part = operations.read_chunk(body)
            if position == 1:
                body = operations.chunk(position, part, **given | _KEEPING)
                data = operations.named(name, body)
        if op in (Op.CREATE, Op.COPY):
            return (number, op, data) if name not in names else None
        if op == Op.RENAME:
            return self._copy_for(number, name, read_fields(body))
        if op == Op.EXPIRE and read_fields(body)["at"] is not None:
            return None
        if op not in _REPEATED:
            return None
        if (number, name) in self._copies:
            return self._copies[number, name], op, data
        if number in filters:
            return number, op, operations.named(filters[number].name, body)
        # Its filter is lost too, and is created again before.
        return (number, op, data) if name not in names else None

    def _copy_for(self, number: int, name: bytes, given: dict[str, Any]) -> Record | None:
        """Return a copy in place of a rename that was lost: keys that were added to the old name
        since then stay there."""
        to = operations.name_of(given["to"])
        names, entry = self._engine.state.names, self._engine.state.filters.get(number)
        current = name not in names if entry is None else entry.name == name
        if to in names or not current:
            return None
        copy = self._copies[number, to] = self._engine.batches.draw_number()
        text = operations.text_of(name)
        amended = {field: given[field] for field in ("settings", "at") if field in given}
        fields = operations.fields(source=number, of=text, replace=False, **amended)
        return copy, Op.COPY, operations.named(to, fields)

    def pass_time(self, now_ms: int) -> None:
        """Expire and rotate what is due by this time."""
        self.adopt()
        self._engine.state.pass_time(now_ms / 1000)
