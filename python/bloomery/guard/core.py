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
from typing import Any

from bloomery import _native
from bloomery.errors import BloomeryError, InvalidParameter
from bloomery.guard.answer import Answer
from bloomery.guard.caches.resilient import Caching
from bloomery.guard.observed import Observed
from bloomery.guard.options import Options
from bloomery.guard.protocols import Cache, Queue
from bloomery.guard.queues.copies import Copies
from bloomery.guard.queues.pacing import Turns
from bloomery.guard.singleflight import Flights
from bloomery.guard.sources.functions import CallSource
from bloomery.guard.sources.resilient import Asking
from bloomery.guard.writers import Writers

__all__ = ["Core"]

_LOG = logging.getLogger("bloomery.guard")
_NATIVE = (_native.Bloom, _native.Family, _native.Chain, _native.Cuckoo)
# Kinds that hold a copy of a key for each time it was added.
_COUNTING = ("counting", "cuckoo", "rediscuckoo")


class Core:
    """Filter, cache, source and queue, and what is under way between them."""

    def __init__(
        self,
        filter: Any,
        source: Any,
        cache: Cache | Caching | None,
        queue: Queue | None,
        options: Options,
        on_answer: Callable[[Any, Answer], None] | None,
    ) -> None:
        """Guards that share a source or a cache are given its `Asking` or `Caching`."""
        if not hasattr(filter, "contains_many") or getattr(filter, "kind", "") == "bank":
            raise InvalidParameter(
                f"filter is a {type(filter).__name__}, must have contains_many(keys): a filter of "
                "this library, or one of a server"
            )
        for word, part, method in (("cache", cache, "get_many"), ("queue", queue, "put")):
            if not (part is None or isinstance(part, Caching) or hasattr(part, method)):
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
        if not isinstance(source, Asking):
            asked = source if hasattr(source, "get_many") else CallSource(source)
            source = Asking(asked, options)
        if cache is not None and not isinstance(cache, Caching):
            cache = Caching(cache, options.longest, options.lease)
        self.options = options
        # The one that answers, and one that is being built to take its place.
        self.filters: tuple[Any, Any] = (filter, None)
        self.asking: Asking = source
        self.caching = cache
        self.queue = queue
        self.on_answer = on_answer
        self.observed = Observed(options.window, self.asking.breaker)
        self.forked()
        self.closing = False
        self.answering = 0  # how often look-ups of the queue were answered
        self.on_fork: Callable[[], None] = lambda: None
        self.copies = Copies()  # that a filter which counts has for adds that wait
        self.warned = False  # of an error rate above the one asked for
        self._answers: Counter[str] = Counter()
        _CORES.add(self)

    def forked(self) -> None:
        """What is under way is of this process: a child has none of its threads, and a lock that
        one of them held stays locked for ever."""
        self._lock = threading.Lock()
        self.rebuild_lock = threading.Lock()
        self.filters = (self.filters[0], None)  # nobody fills the one that was being built
        self.observed.forked()
        self.asking.breaker.forked()
        if self.caching is not None:
            self.caching.forked()
        self.flights = Flights()
        self.writers = Writers()
        self.drains = Writers()  # of the one key b""
        self.turns = Turns()
        self.workers = self.asking.workers
        self.wrote()

    def wrote(self) -> None:
        """A write got into the queue: look-ups from now on wait behind it."""
        self.generation = secrets.token_hex(8)

    def looked(self) -> None:
        """Look-ups of the queue are answered now: those from now on wait for another answer."""
        self.answering += 1
        self.wrote()

    @property
    def filter(self) -> Any:
        """The one that answers."""
        return self.filters[0]

    @staticmethod
    def blocks(filter: Any) -> bool:
        """May this filter take long to answer? One of a server may."""
        return bool(getattr(filter, "blocking", not isinstance(filter, _NATIVE)))

    @staticmethod
    def counts(filter: Any) -> bool:
        """Does it hold a copy of a key for each time that it was added?"""
        return getattr(filter, "kind", "") in _COUNTING

    def count(self, answers: Iterable[Answer]) -> None:
        """Count who gave these answers."""
        more = Counter(answer.by for answer in answers)
        with self._lock:
            self._answers.update(more)

    def deny(self, key: Any, counting: bool = True) -> None:
        """The filter let a key through that is not there."""
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
        """All but what has to be waited for, ready for JSON."""
        breaker = self.asking.breaker
        with self._lock:
            answers = dict(self._answers)
        answers["filter"] = self.observed.denied
        return {
            **self.observed.take().shown(),
            "answers": {by: answers.get(by, 0) for by in _BY},
            "queries": self.asking.queries,
            "source": breaker.state,
            "source_failures": self.asking.failures,
            "source_down_since": breaker.since,
            "cache_failures": 0 if self.caching is None else self.caching.failures,
            "on_outage": self.options.on_outage,
            "rebuilding": self.filters[1] is not None,
        }

    # Draining, by a thread or a task of its own.

    def pause(self) -> float:
        """Seconds until the queue is looked at again: not those of the breaker, which a look-up
        may close any time."""
        return self.options.retry

    def drain_quietly(self, drain: Callable[[], int]) -> None:
        """Drain, and whatever comes of it, there is a next time."""
        try:
            drain()
        except Exception as problem:  # noqa: BLE001  # as said
            _LOG.error("the queue was not drained: %s", _told(problem))

    async def adrain_quietly(self, drain: Callable[[], Awaitable[int]]) -> None:
        """The same for asyncio."""
        try:
            await drain()
        except Exception as problem:  # noqa: BLE001  # as above
            _LOG.error("the queue was not drained: %s", _told(problem))

    def check_sync(self) -> None:
        """Raise if a part is for asyncio."""
        cache = self.caching and self.caching.cache
        for part in (self.filter, self.asking.source, cache, self.queue):
            for method in ("contains_many", "get_many", "put"):
                if inspect.iscoroutinefunction(getattr(part, method, None)):
                    raise InvalidParameter(
                        f"{type(part).__name__} is for asyncio: use AsyncGuard, or its "
                        "counterpart for threads"
                    )


def _told(problem: Exception) -> str:
    # Of others' errors not the text, which may have a key in it.
    kind = type(problem).__name__
    return f"{kind}: {problem}" if isinstance(problem, BloomeryError) else kind


def _forked() -> None:
    for core in list(_CORES):
        core.forked()
        core.on_fork()


_CORES: weakref.WeakSet[Core] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
_BY = ("filter", "cache", "source", "stale", "unconfirmed")
