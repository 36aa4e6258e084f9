"""The cache as a guard uses it: an outage makes answers slower, never wrong, and nothing that was
read before a write is cached after it.

Several guards may share one. Before the source is asked for a key, the cache gives a token for it,
and afterwards takes the answer only if that token still holds: a write, which deletes the key, ends
the token.

What could not be deleted, since the cache was away, is deleted before the cache is used again. If
there is too much of it, the cache stays unused until all it may hold is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bloomery.errors import CacheUnavailable, PoisonedCache
from bloomery.guard.caches.local import LocalCache
from bloomery.guard.driver import Call, Flow
from bloomery.guard.protocols import Cache, Cached
from bloomery.guard.sources.breaker import Breaker

_LOG = logging.getLogger("bloomery.guard")
_MOST_UNDELETED = 100_000


class ResilientCache:
    """A cache that may be away: then it counts as empty, and is tried again after a second."""

    def __init__(self, cache: Cache, longest: float, lease: float = 60.0) -> None:
        """Nothing is to be kept for more than `longest` seconds, and no look-up takes longer than
        `lease` and is cached."""
        self.cache = cache
        if hasattr(cache, "lease_seconds"):  # one that cannot tell by itself which ones are over
            cache.lease_seconds = max(lease, cache.lease_seconds)
        self.breaker = Breaker(failures=1, retry=1.0, most_retry=5.0)
        self.failures = 0
        self._longest = longest
        self._blocking = getattr(cache, "blocking", True)
        self.forked()
        # Keys, and the number of the write that wanted each deleted: a later one wants it again.
        self._undeleted: dict[bytes, int] = {}
        self._number = 0
        self._unused_until = 0.0  # by the steady clock

    def forked(self) -> None:
        """A lock that a thread of the parent held would be held for ever."""
        self._lock = threading.Lock()
        self.breaker.forked()
        if isinstance(self.cache, LocalCache):
            self.cache.forked()

    def get(self, keys: Sequence[bytes]) -> Flow[dict[bytes, Cached]]:
        """The entries of these keys that it has; none if it is away."""
        if not (yield from self._ready()):
            return {}
        try:
            entries = yield self._call(self.cache.get_many, keys)
            cached = {key: e for key, e in zip(keys, entries, strict=True) if e is not None}
        except PoisonedCache:
            self.breaker.succeeded()  # it is there, at least
            raise
        except Exception as problem:  # noqa: BLE001  # whatever it is: the source answers
            self._failed(problem)
            return {}
        self.breaker.succeeded()
        return cached

    def lease(self, keys: Sequence[bytes]) -> Flow[Mapping[bytes, Any] | None]:
        """Tokens, with which `put` takes what the source says from now on; None: put nothing."""
        lease_many = getattr(self.cache, "lease_many", None)
        if lease_many is None:  # somebody's own, which only one guard uses
            return {}
        if not (yield from self._ready()):
            return None
        try:
            tokens = yield self._call(lease_many, keys)
            leased = dict(zip(keys, tokens, strict=True))
        except Exception as problem:  # noqa: BLE001  # as above
            self._failed(problem)
            return None
        self.breaker.succeeded()
        return leased

    def put(self, entries: Sequence[tuple[bytes, Cached]]) -> Flow[None]:
        """Write these entries, unless it is away."""
        if entries and (yield from self._ready()):
            try:
                yield self._call(self.cache.set_many, entries)
            except Exception as problem:  # noqa: BLE001  # as above
                # Some may be in it, and their values may change meanwhile: they are to be deleted.
                self.outdate(key for key, _ in entries)
                self._failed(problem)
            else:
                self.breaker.succeeded()

    def delete(self, keys: Sequence[bytes]) -> Flow[None]:
        """Delete these keys: now, or before it is used again."""
        self.outdate(keys)
        yield from self._ready()

    def _call(self, what: object, *arguments: object) -> Call:
        return Call(what, arguments, blocking=self._blocking)  # type: ignore[arg-type]

    def _ready(self) -> Flow[bool]:
        """Whether it may be used now; keys that could not be deleted are deleted first."""
        if time.monotonic() < self._unused_until or not self.breaker.enter():
            return False
        if self._undeleted:
            with self._lock:
                wanted = dict(self._undeleted)
            try:
                yield self._call(self.cache.delete_many, list(wanted))
            except Exception as problem:  # noqa: BLE001  # as above
                self._failed(problem)
                return False
            with self._lock:
                for key, number in wanted.items():
                    if self._undeleted.get(key) == number:
                        del self._undeleted[key]
            self.breaker.succeeded()
        return True

    def outdate(self, keys: Iterable[bytes]) -> None:
        """Delete these keys before it is used the next time."""
        with self._lock:
            self._number += 1
            self._undeleted.update(dict.fromkeys(keys, self._number))
            if len(self._undeleted) > _MOST_UNDELETED:
                self._undeleted.clear()
                self._unused_until = time.monotonic() + self._longest

    def _failed(self, problem: Exception) -> None:
        self.failures += 1
        if self.breaker.since is None:  # once an outage
            ours = isinstance(problem, (CacheUnavailable, OSError))  # others' may show a key
            text = problem if ours else type(problem).__name__
            _LOG.warning("a guard goes on without its cache: %s", text)
        self.breaker.failed()
