"""Locks on names: while a thread or a transaction works on a filter, other commands on it wait, and
all others are served."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Set
from contextvars import ContextVar

from bloomery import _native

# The names that the current transaction has locked: its own commands do not wait for them.
_own: ContextVar[Set[bytes]] = ContextVar("own", default=frozenset())


class NameLocks:
    """The names that are locked. A name can be locked several times, by those who work on it
    together: a transaction, and a thread that applies one of its operations."""

    def __init__(self, shelf: _native.Shelf) -> None:
        self._shelf = shelf
        self._locked: Counter[bytes] = Counter()
        self._waiting: dict[bytes, asyncio.Future[None]] = {}

    def is_locked(self, names: Iterable[bytes]) -> bool:
        """Return whether any of these names is locked, by others than the current transaction."""
        return bool(self._locked) and self._first(names) is not None

    def _first(self, names: Iterable[bytes]) -> bytes | None:
        own, locked = _own.get(), self._locked
        return next((name for name in names if name in locked and name not in own), None)

    async def unlocked(self, *names: bytes) -> None:
        """Return when none of these names is locked by others than the current transaction."""
        while self._locked and (name := self._first(names)) is not None:
            waiting = self._waiting.get(name)
            if waiting is None:
                waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
            await asyncio.wait([waiting])

    def own(self, names: Set[bytes]) -> None:
        """Let the current task, and tasks that it starts, use these names while they are locked."""
        _own.set(names)

    def lock(self, names: Iterable[bytes]) -> None:
        """Lock names; native code hands their commands to Python."""
        for name in names:
            self._locked[name] += 1
            self._shelf.set_locked(name, True)

    def unlock(self, names: Iterable[bytes]) -> None:
        """Unlock names, which were locked as often."""
        for name in names:
            self._locked[name] -= 1
            if not self._locked[name]:
                del self._locked[name]
                self._shelf.set_locked(name, False)
                if (waiting := self._waiting.pop(name, None)) is not None:
                    waiting.set_result(None)
