"""Writes under way: of one key one after the other, and known to whoever must wait for them all."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from bloomery.guard.driver import Call, Flow

__all__ = ["Writers"]

_MOST_DOUBTFUL = 100_000


class Writers:
    """The writes of a guard, by canonical key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: dict[bytes, Future[None]] = {}
        # Writes that ended without an answer, by their idempotency keys: the source may get them
        # yet. That a later write of the same key was answered says nothing about an earlier one.
        self._doubtful: dict[bytes, dict[str, Any]] = {}

    def enter(self, key: bytes) -> Flow[None]:
        """Begin with a write of this key, when that before it has ended."""
        mine: Future[None] = Future()
        while True:
            with self._lock:
                before = self._table.get(key)
                if before is None:
                    self._table[key] = mine
                    return
            yield Call(before)

    def leave(self, key: bytes) -> None:
        """It has ended."""
        with self._lock:
            mine = self._table.pop(key)
        mine.set_result(None)

    def under_way(self) -> list[Future[None]]:
        """Those that have begun and not ended."""
        with self._lock:
            return list(self._table.values())

    def doubt(self, name: bytes, key: Any, token: str) -> None:
        """Nobody knows whether the source has this key, or gets it yet."""
        with self._lock:
            doubts = self._doubtful.pop(name, {})
            self._doubtful[name] = {**doubts, token: key}
            while len(self._doubtful) > _MOST_DOUBTFUL:
                del self._doubtful[next(iter(self._doubtful))]

    def settle(self, name: bytes, token: str) -> None:
        """Now it is known."""
        if self._doubtful:
            with self._lock:
                doubts = self._doubtful.get(name, {})
                doubts.pop(token, None)
                if not doubts:
                    self._doubtful.pop(name, None)

    def doubtful(self) -> list[Any]:
        """The keys of which it is not known, each as often as it may yet come."""
        with self._lock:
            return [key for doubts in self._doubtful.values() for key in doubts.values()]
