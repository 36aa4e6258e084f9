"""What a guard consists of, whether threads use it or an event loop; what it does is in `lookups`,
`writes`, `draining` and `rebuilding`."""

from __future__ import annotations

import inspect
import logging
import os
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.guard.answer import Answer
from bloomery.guard.caches.resilient import ResilientCache
from bloomery.guard.driver import Call, Flow
from bloomery.guard.observed import Observed
from bloomery.guard.options import Options
from bloomery.guard.protocols import Cache, Queue
from bloomery.guard.queues.back_pressure import BackPressure
from bloomery.guard.queues.copies import PendingCopies
from bloomery.guard.singleflight import Flights
from bloomery.guard.sources.functions import CallSource
from bloomery.guard.sources.resilient import ResilientSource

_LOG = logging.getLogger("bloomery.guard")
_NATIVE = (_native.Bloom, _native.Family, _native.Chain, _native.Cuckoo)
# Kinds that hold a copy of a key for each time it was added.
_COUNTING = ("counting", "cuckoo", "rediscuckoo")
_MOST_DOUBTFUL = 100_000


class Writers:
    """The writes of a guard: a lock for each key, and the writes whose outcome nobody knows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: dict[bytes, Future[None]] = {}
        # Writes that ended without an answer, by their idempotency keys: the source may get them
        # yet. That a later write of the same key was answered says nothing about an earlier one.
        self._doubtful: dict[bytes, dict[str, Any]] = {}

    def enter(self, key: bytes) -> Flow[None]:
        """Take the lock of this key, when the write before has ended."""
        mine: Future[None] = Future()
        while True:
            with self._lock:
                before = self._table.get(key)
                if before is None:
                    self._table[key] = mine
                    return
            yield Call(before)

    def leave(self, key: bytes) -> None:
        """Release the lock of this key."""
        with self._lock:
            mine = self._table.pop(key)
        mine.set_result(None)

    def under_way(self) -> list[Future[None]]:
        """The writes that have begun and not ended."""
        with self._lock:
            return list(self._table.values())

    def doubt(self, name: bytes, key: Any, token: str) -> None:
        """Remember that the source may have this key, or may yet get it."""
        with self._lock:
            doubts = self._doubtful.pop(name, {})
            self._doubtful[name] = {**doubts, token: key}
            while len(self._doubtful) > _MOST_DOUBTFUL:
                del self._doubtful[next(iter(self._doubtful))]

    def settle(self, name: bytes, token: str) -> None:
        """Forget the doubt: it is known what came of this write."""
        if self._doubtful:
            with self._lock:
                doubts = self._doubtful.get(name, {})
                doubts.pop(token, None)
                if not doubts:
                    self._doubtful.pop(name, None)

    def doubtful(self) -> list[Any]:
        """The keys that the source may yet get, each as often as it may."""
        with self._lock:
            return [key for doubts in self._doubtful.values() for key in doubts.values()]


class Core:
    """Filter, cache, source and queue, and what is under way between them."""

    def __init__(
        self,
        filter: Any,
        source: Any,
        cache: Cache | ResilientCache | None,
        queue: Queue | None,
        options: Options,
        on_answer: Callable[[Any, Answer], Awaitable[None] | None] | None,
    ) -> None:
        """Guards that share a source or a cache are given the same resilient one."""
        if not hasattr(filter, "contains_many") or getattr(filter, "kind", "") == "bank":
            raise InvalidParameter(
                f"filter is a {type(filter).__name__}, must have contains_many(keys): a filter of "
                "this library, or one of a server"
            )
        for word, part, method in (("cache", cache, "get_many"), ("queue", queue, "put")):
            if not (part is None or isinstance(part, ResilientCache) or hasattr(part, method)):
                raise InvalidParameter(
                    f"{word} is a {type(part).__name__}, must have {method}: see bloomery.guard"
                )
        if on_answer is not None and not callable(on_answer):
            raise InvalidParameter(f"on_answer is a {type(on_answer).__name__}, must be a function")
        if (queue is None) != (options.on_outage != "queue"):
            raise InvalidParameter(
                "on_outage='queue' needs a queue=…, as in queue=SqliteQueue('waiting.sqlite')"
                if queue is None
                else f"a queue is only used with on_outage='queue', not {options.on_outage!r}"
            )
        if not isinstance(source, ResilientSource):
            asked = source if hasattr(source, "get_many") else CallSource(source)
            source = ResilientSource(asked, options)
        if cache is not None and not isinstance(cache, ResilientCache):
            cache = ResilientCache(cache, options.longest, options.lease)
        self.options = options
        # The one that answers, and one that is being built to take its place.
        self.filters: tuple[Any, Any] = (filter, None)
        self.source: ResilientSource = source
        self.cache = cache
        self.queue = queue
        self.on_answer = on_answer
        self.observed = Observed(options.window, self.source.breaker)
        self.forked()
        self.closing = False
        self.answering = 0  # how often look-ups of the queue were answered
        self.on_fork: Callable[[], None] = lambda: None
        self.copies = PendingCopies()  # that a filter which counts has for adds that wait
        self.warned = False  # of an error rate above the one asked for
        self._answers: Counter[str] = Counter()
        _CORES.add(self)

    def forked(self) -> None:
        """Begin anew in a child process: it has none of the parent's threads, and a lock that one
        of them held would stay locked for ever."""
        self._lock = threading.Lock()
        self.rebuild_lock = threading.Lock()
        self.filters = (self.filters[0], None)  # nobody fills the one that was being built
        self.observed.forked()
        self.source.breaker.forked()
        if self.cache is not None:
            self.cache.forked()
        self.flights = Flights()
        self.writers = Writers()
        self.drains = Writers()  # of the one key b""
        self.back_pressure = BackPressure()
        self.workers = self.source.workers
        self.wrote()

    def wrote(self) -> None:
        """Note a write in the queue: look-ups that are queued from now on wait behind it."""
        self.queue_epoch = secrets.token_hex(8)

    def looked(self) -> None:
        """Note that queued look-ups are being answered: the next ones are queued anew."""
        self.answering += 1
        self.wrote()

    @property
    def filter(self) -> Any:
        """The filter that answers."""
        return self.filters[0]

    @staticmethod
    def blocks(filter: Any) -> bool:
        """Whether this filter may take long to answer, as one of a server may."""
        return bool(getattr(filter, "blocking", not isinstance(filter, _NATIVE)))

    @staticmethod
    def counts(filter: Any) -> bool:
        """Whether this filter holds a copy of a key for each time that it was added."""
        return getattr(filter, "kind", "") in _COUNTING

    def count(self, answers: Iterable[Answer]) -> None:
        """Count who gave these answers."""
        more = Counter(answer.by for answer in answers)
        with self._lock:
            self._answers.update(more)

    def deny(self, key: Any, counting: bool = True) -> None:
        """Count a false positive: the filter let a key through that is not there."""
        if self.observed.false(key, counting):
            self._judge()

    def _judge(self) -> None:
        """Warn once when the filter surely errs more often than was asked for."""
        allowed = getattr(self.filter, "error_rate", None)
        if not isinstance(allowed, float):
            return
        seen = self.observed.take()
        if not self.warned and seen.surely_above(allowed):
            self.warned = True
            low, _ = seen.interval
            _LOG.warning(
                "the filter errs more often than asked: %.2f%% of %d absent keys (at least "
                "%.2f%%), not %.2f%%: rebuild it with a larger capacity",
                *(100 * seen.error_rate, seen.keys, 100 * low, 100 * allowed),
            )
        elif seen.error_rate <= allowed:
            self.warned = False

    def info(self) -> dict[str, Any]:
        """What `Guard.info` says, but for the queue, which has to be asked."""
        breaker = self.source.breaker
        with self._lock:
            answers = dict(self._answers)
        answers["filter"] = self.observed.denied
        return {
            **self.observed.take().as_json(),
            "answers": {by: answers.get(by, 0) for by in _BY},
            "queries": self.source.queries,
            "source": breaker.state,
            "source_failures": self.source.failures,
            "source_down_since": breaker.since,
            "cache_failures": 0 if self.cache is None else self.cache.failures,
            "on_outage": self.options.on_outage,
            "rebuilding": self.filters[1] is not None,
        }

    def check_sync(self) -> None:
        """Raise if a part is for asyncio."""
        cache = self.cache and self.cache.cache
        for part in (self.filter, self.source.source, cache, self.queue):
            for method in ("contains_many", "get_many", "put"):
                if inspect.iscoroutinefunction(getattr(part, method, None)):
                    raise InvalidParameter(
                        f"{type(part).__name__} is for asyncio: use AsyncGuard, or its "
                        "counterpart for threads"
                    )


def _forked() -> None:
    for core in list(_CORES):
        core.forked()
        core.on_fork()


_CORES: weakref.WeakSet[Core] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
_BY = ("filter", "cache", "source", "stale", "unconfirmed")
