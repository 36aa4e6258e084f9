"""A source, a cache and a queue in memory: plain objects that count what they are asked, and are
away when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bloomery import _native, errors
from bloomery.guard.protocols import Cached, Item


class Table:
    """A source of truth. `before` is called in every question, with its name and its keys."""

    name = "table"

    def __init__(self, rows: Mapping[Any, Any] | None = None) -> None:
        self.rows = dict(rows or {})
        self.asked: list[list[Any]] = []
        self.done: dict[str, bool] = {}  # what came of each write, by idempotency key
        self.problem: BaseException | None = None
        self.before: Callable[[str, Sequence[Any]], object] = lambda what, keys: None
        self._lock = threading.Lock()

    def _ask(self, what: str, keys: Sequence[Any]) -> None:
        self.before(what, keys)
        if self.problem is not None:
            raise self.problem

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """The rows with these keys."""
        with self._lock:
            self.asked.append(list(keys))
        self._ask("get", keys)
        return {key: self.rows[key] for key in keys if key in self.rows}

    def add(self, key: Any, value: Any, idempotency_key: str) -> bool:
        """Insert or replace a row."""
        self._ask("add", [key])
        with self._lock:
            if idempotency_key not in self.done:
                self.done[idempotency_key] = key not in self.rows
                self.rows[key] = value
            return self.done[idempotency_key]

    def remove(self, key: Any, idempotency_key: str) -> bool:
        """Delete a row."""
        self._ask("remove", [key])
        with self._lock:
            if idempotency_key not in self.done:
                self.done[idempotency_key] = key in self.rows
                self.rows.pop(key, None)
            return self.done[idempotency_key]


class Coroutines:
    """A table whose methods are coroutines."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.name = getattr(table, "name", "table")

    async def get_many(self, keys: Sequence[Any]) -> Any:
        """As the table does."""
        return self._table.get_many(keys)

    async def add(self, key: Any, value: Any, idempotency_key: str) -> Any:
        """As the table does."""
        return self._table.add(key, value, idempotency_key)

    async def remove(self, key: Any, idempotency_key: str) -> Any:
        """As the table does."""
        return self._table.remove(key, idempotency_key)


class Memory:
    """A cache. It never forgets by itself: what is too old is the guard's to see."""

    blocking = False

    def __init__(self) -> None:
        self.held: dict[bytes, Cached] = {}
        self.asked = 0
        self.problem: BaseException | None = None

    def _ask(self) -> None:
        self.asked += 1
        if self.problem is not None:
            raise self.problem

    def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
        """What is held for each."""
        self._ask()
        return [self.held.get(key) for key in keys]

    def lease_many(self, keys: Sequence[bytes]) -> list[None]:
        """It is for one guard."""
        return [None] * len(keys)

    def set_many(self, entries: Sequence[tuple[bytes, Cached]]) -> None:
        """Hold these."""
        self._ask()
        self.held.update(entries)

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Hold them no more."""
        self._ask()
        for key in keys:
            self.held.pop(key, None)

    def age(self, seconds: float) -> None:
        """Let time pass for all that is held."""
        for key, entry in self.held.items():
            self.held[key] = Cached(
                *entry[:2], entry.fresh_until - seconds, entry.keep_until - seconds, *entry[4:]
            )

    def of(self, key: Any) -> Cached | None:
        """What is held for a key."""
        return self.held.get(_native.canonical(key))


class Line:
    """A queue, as durable as this process."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.aside: list[tuple[Item, str]] = []
        self._number = 0
        self._lock = threading.Lock()

    def put(self, items: Sequence[Item]) -> None:
        """Behind all that wait."""
        with self._lock:
            for item in items:
                self._number += 1
                self.items.append(replace(item, id=self._number))

    def pending(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which have a write that waits."""
        waiting = {_native.canonical(item.key) for item in self.items if item.what != "look"}
        return waiting & set(keys)

    def writes(self) -> int:
        """How many writes wait."""
        return sum(item.what != "look" for item in self.items)

    def keys(self) -> list[Any]:
        """Of all adds, one for each."""
        return [item.key for item in self.items if item.what == "add"]

    def head(self, most: int) -> list[Item]:
        """The first."""
        return self.items[:most]

    def done(self, items: Sequence[Item]) -> None:
        """They wait no more."""
        with self._lock:
            gone = {item.id for item in items}
            self.items = [item for item in self.items if item.id not in gone]

    def park(self, item: Item, why: str) -> None:
        """Set aside."""
        self.aside.append((item, why))
        self.done([item])

    def parked(self) -> list[tuple[Item, str]]:
        """What was set aside."""
        return list(self.aside)

    def lease(self, owner: str, seconds: float) -> bool:
        """One drainer is all there is."""
        return True

    def renew(self, owner: str, seconds: float) -> bool:
        """As `lease`."""
        return True

    def release(self, owner: str) -> None:
        """Nothing to let go of."""

    def waiting(self) -> int:
        """How many wait."""
        return len(self.items)

    def close(self) -> None:
        """Nothing is open."""


def away() -> errors.SourceUnavailable:
    """What a source that is away raises."""
    return errors.SourceUnavailable("the table is away")
