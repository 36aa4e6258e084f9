"""A cache in the process: bounded, the least recently used goes first.

A token is the number of deletions so far. Which keys were deleted last is remembered; a token that
is older than all of that holds no longer, whatever its key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bloomery import extras
from bloomery.boottime import boottime
from bloomery.errors import InvalidParameter

if TYPE_CHECKING:
    from cachetools import TLRUCache

    from bloomery.guard.protocols import Cached

_MOST = 1_000_000_000
_REMEMBERED = 10_000  # keys that were deleted last


class LocalCache:
    """At most `capacity` answers in this process's memory; any thread may use it.

    Each leaves when its time is over, or earlier, when there is no room and it was asked for the
    longest ago. Values are held as they are and not copied: whoever changes one changes it for all.
    """

    blocking = False  # an event loop need not send a thread

    def __init__(self, capacity: int = 10_000) -> None:
        with extras.needed("cachetools", "a LocalCache"):
            from cachetools import TLRUCache
        if type(capacity) is not int or not 1 <= capacity <= _MOST:
            raise InvalidParameter(f"capacity is {capacity!r}, must be an int from 1 to {_MOST:,}")
        self.capacity = capacity
        self._lock = threading.Lock()  # cachetools has none
        self._empty: Callable[[], TLRUCache[bytes, Cached]] = lambda: TLRUCache(
            capacity, lambda _key, entry, _now: entry.keep_until, boottime
        )
        self._entries = self._empty()
        self._deletions = 0
        self._deleted: dict[bytes, int] = {}  # the last keys, and the number of each deletion
        self._forgotten = 0  # the last deletion that is not remembered

    def forked(self) -> None:
        """Begin empty in a forked child if a thread of the parent has left the cache locked."""
        if self._lock.locked():
            self._lock = threading.Lock()
            self.clear()

    def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
        """Return what is held for each key."""
        entries = self._entries
        # The clock once for all of them; and not `get`, which looks twice: a third of the time.
        with self._lock, entries.timer:
            cached: list[Cached | None] = []
            for key in keys:
                try:
                    cached.append(entries[key])
                except KeyError:
                    cached.append(None)
            return cached

    def lease_many(self, keys: Sequence[bytes]) -> Sequence[int]:
        """A token for each key, which holds until the key is deleted."""
        return [self._deletions] * len(keys)

    def set_many(self, entries: Sequence[tuple[bytes, Cached]]) -> None:
        """Hold these; but nothing whose token holds no longer."""
        with self._lock:
            for key, entry in entries:
                last = self._deleted.get(key, self._forgotten)
                if entry.token is None or last <= entry.token:
                    self._entries[key] = entry

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Hold nothing for these keys."""
        with self._lock:
            self._deletions += 1
            for key in keys:
                self._entries.pop(key, None)
                self._deleted.pop(key, None)
                self._deleted[key] = self._deletions
            while len(self._deleted) > _REMEMBERED:
                self._forgotten = self._deleted.pop(next(iter(self._deleted)))

    def clear(self) -> None:
        """Hold nothing; tokens that were given hold no longer."""
        with self._lock:
            self._entries, self._deleted = self._empty(), {}
            self._deletions = self._forgotten = self._deletions + 1

    def __len__(self) -> int:
        with self._lock:
            self._entries.expire()
            return len(self._entries)

    def __repr__(self) -> str:
        return f"<LocalCache {len(self):,} of {self.capacity:,}>"
