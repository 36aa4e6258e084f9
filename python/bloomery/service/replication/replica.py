"""Applies the shared log, what this node and the others wrote, to the filters of this node. The
same entries in the same order make the same filters on every node, with the same answers: an
operation that is refused is refused on all, and has changed nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from bloomery import _native, errors
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import Entry
from bloomery.service.engine import Engine


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

    def adopt(self) -> None:
        """Let the engine have these filters from now on, unless it has them."""
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            self._engine.exchange(loaded, self._now)

    def apply(self, payload: bytes, at_ms: int) -> Results:
        """Do the operations of an entry, at Redis's time. NotEnoughMemory: this node cannot
        follow."""
        self.adopt()
        results: list[Any] = []
        for number, op, data in _native.unpack_records(payload):
            try:
                results.append(self._engine.apply_shared(op, number, data, at_ms / 1000))
            except (errors.NotEnoughMemory, errors.UnsupportedVersion):
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
            entry = self._engine.state.filters.get(number)
            if entry is None or entry.filter is None or op not in (Op.ADD, Op.ADD_NEW):
                return None
            answers = self._engine.shelf.unchanged(entry.name, op, data)
            if answers is None or entry.settings.get("successor") is not None:
                return None
            results.append((answers, None))
            repeats[number] += len(answers)
        return Results(results, repeats)

    def additions(self, payload: bytes) -> bytes | None:
        """Return those of the operations that can be done later than others and take nothing from
        them; None if there are none."""
        self.adopt()
        kept = [record for record in _native.unpack_records(payload) if self._only_adds(*record)]
        return _native.pack_records(kept) if kept else None

    def _only_adds(self, number: int, op: int, data: bytes) -> bool:
        """Whether an operation adds keys, makes a filter, or gives one a name that is free."""
        if op in (Op.ADD, Op.ADD_NEW, Op.CREATE, Op.CHUNK, Op.MERGE, Op.ADJUST, Op.FORGET):
            return True
        if op in (Op.COPY, Op.RENAME):
            name = operations.name_of(operations.read_fields(data)["name"])
            return name not in self._engine.state.names
        return op == Op.EXPIRE and operations.read_fields(data)["at"] is None

    def pass_time(self, now_ms: int) -> None:
        """Expire and rotate what is due by this time."""
        self.adopt()
        self._engine.pass_shared_time(now_ms / 1000)
