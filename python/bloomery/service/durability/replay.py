"""Replays a log: applies its records to filters again.

Native code applies the records of keys (`crates/server/src/replay.rs`), to filters that are on a
shelf. `State` applies all others, as it does live.
"""

from __future__ import annotations

from collections.abc import Callable

from bloomery import _native, errors
from bloomery.service.domain import operations
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import HASHES
from bloomery.service.domain.state import State, put_on
from bloomery.service.durability.log_reader import LogReader


class DamagedSnapshot(errors.CorruptData):
    """A file of the snapshot that the log is replayed onto cannot be used."""


class _Replay:
    """A replay under way."""

    def __init__(self, state: State, problems: list[str]) -> None:
        self._state, self._problems = state, problems
        self.shelf = _native.Shelf()
        self._shown: dict[bytes, Entry] = {}  # entries on the shelf, which counts their keys
        self.damaged = 0

    def apply(self, op: int, filter_id: int, data: bytes, at: float) -> None:
        """Apply a record. One that the server refused is refused again, and changes nothing."""
        try:
            if op in HASHES and self._show(filter_id, data):
                self._apply_keys(op, filter_id, data)
            else:
                self._settle(op, filter_id, data)
                self._state.apply(op, filter_id, data, at)
        except (operations.DamagedRecord, operations.UnknownOperation) as problem:
            self.damaged += 1
            if self.damaged == 1:
                text = f"an operation on filter number {filter_id} cannot be applied: {problem}"
                self._problems.append(text)
        except (errors.NotEnoughMemory, DamagedSnapshot):
            raise
        except errors.BloomeryError:
            pass

    def _show(self, filter_id: int, data: bytes) -> bool:
        """Put the filter of a record on the shelf; False if `State` must apply such records: they
        are not about the filter's keys alone, or depend on the time."""
        entry, (name, _) = self._state.filters.get(filter_id), operations.split(data)
        if entry is None or entry.name != name or entry.loading is not None:
            return False
        if entry.needs_python or entry.settings.get("kind") == "rotating":
            return False
        if name not in self._shown:
            self._state.filter_of(entry)
            put_on(self.shelf, name, entry)
            self._shown[name] = entry
        return True

    def _apply_keys(self, op: int, filter_id: int, data: bytes) -> None:
        try:
            self.shelf.apply_one(filter_id, op, data)
        except (errors.InvalidParameter, errors.CorruptData) as problem:
            raise operations.DamagedRecord(str(problem)) from None

    def _settle(self, op: int, filter_id: int, data: bytes) -> None:
        """Take the filters that a record is about off the shelf."""
        try:
            names = self._state.names_in(op, filter_id, data)
        except (errors.BloomeryError, AttributeError, KeyError, TypeError, ValueError):
            names = list(self._shown)  # `State` says what is wrong with it
        for name in names:
            self._take_down(name)

    def _take_down(self, name: bytes) -> None:
        entry, figures = self._shown.pop(name, None), self.shelf.figures(name)
        if entry is not None and figures is not None:
            entry.items = figures[0]
            self.shelf.drop(name)

    def end(self) -> None:
        """Count the keys of all filters."""
        for name in list(self._shown):
            self._take_down(name)


def replay(
    state: State,
    rows: LogReader,
    problems: list[str],
    on_progress: Callable[[], object] = lambda: None,
) -> None:
    """Apply all rows; `on_progress` is called many times per second. A record that cannot be
    applied, because an earlier one is lost or a newer version of bloomery wrote it, is added to the
    problems. DamagedSnapshot: as `State.filter_of` raises it."""
    work = _Replay(state, problems)
    for left in rows.apply(work.shelf):
        state.now = max(state.now, rows.latest)
        for _, at, filter_id, op, data in left:
            work.apply(op, filter_id, data, at)
        on_progress()
    work.end()
    state.now = max(state.now, rows.latest)
    if work.damaged > 1:
        problems.append(f"{work.damaged - 1} more operations cannot be applied")
