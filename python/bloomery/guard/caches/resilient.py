"""The cache as a guard uses it: without it things go on, only slower; it never outlives a write.

Several guards may share one. Before the source is asked for a key, the cache gives a token for it,
and afterwards takes the answer only if that token still holds: a write, which deletes the key, ends
it. So what was read before a write is never cached after it, whoever read it.

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

__all__ = ["ResilientCache"]

_LOG = logging.getLogger("bloomery.guard")
_MOST_UNDELETED = 100_000


class ResilientCache:
    """A cache that may be away: then it holds nothing, and is tried again after a second."""

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
        """What it holds for these keys; nothing if it is away."""
        if not (yield from self._ready()):
            return {}
        try:
            held = yield self._call(self.cache.get_many, keys)
            found = {key: entry for key, entry in zip(keys, held, strict=True) if entry is not None}
        except PoisonedCache:
            self.breaker.succeeded()  # it is there, at least
            raise
        except Exception as problem:  # noqa: BLE001  # whatever it is: the source answers
            self._failed(problem)
            return {}
        self.breaker.succeeded()
        return found

    def lease(self, keys: Sequence[bytes]) -> Flow[Mapping[bytes, Any] | None]:
        """Tokens, with which `put` takes what the source says from now on; None: put nothing."""
        lease_many = getattr(self.cache, "lease_many", None)
        if lease_many is None:  # somebody's own, which only one guard uses
            return {}
        if not (yield from self._ready()):
            return None
        try:
            tokens = yield self._call(lease_many, keys)
            given = dict(zip(keys, tokens, strict=True))
        except Exception as problem:  # noqa: BLE001  # as above
            self._failed(problem)
            return None
        self.breaker.succeeded()
        return given

    def put(self, entries: Sequence[tuple[bytes, Cached]]) -> Flow[None]:
        """Let it hold these, if it is there."""
        if entries and (yield from self._ready()):
            try:
                yield self._call(self.cache.set_many, entries)
            except Exception as problem:  # noqa: BLE001  # as above
                # Some may be in it, and what they stand for may change: they count as unknown.
                self.outdate(key for key, _ in entries)
                self._failed(problem)
            else:
                self.breaker.succeeded()

    def delete(self, keys: Sequence[bytes]) -> Flow[None]:
        """Let it hold nothing for these: now, or before anybody asks it again."""
        self.outdate(keys)
        yield from self._ready()

    def _call(self, what: object, *arguments: object) -> Call:
        return Call(what, arguments, blocking=self._blocking)  # type: ignore[arg-type]

    def _ready(self) -> Flow[bool]:
        """May it be used now? What was left undeleted is deleted first."""
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
        """Let it hold nothing for these when it is used the next time."""
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
