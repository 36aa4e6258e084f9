"""What a guard consists of, whether threads use it or an event loop; what it does is in `lookups`,
`writes`, `draining` and `rebuilding`."""

from __future__ import annotations

import inspect
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from bloomery import _native
from bloomery.errors import InvalidParameter
from bloomery.guard.answer import Answer
from bloomery.guard.asking import Asking
from bloomery.guard.caching import Caching
from bloomery.guard.flights import Flights
from bloomery.guard.observed import Observed
from bloomery.guard.options import Options
from bloomery.guard.parts import Cache, Queue
from bloomery.guard.sources import CallSource
from bloomery.guard.workers import Workers
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
        cache: Cache | None,
        queue: Queue | None,
        options: Options,
        on_answer: Callable[[Any, Answer], None] | None,
    ) -> None:
        if not hasattr(filter, "contains_many") or getattr(filter, "kind", "") == "bank":
            raise InvalidParameter(
                f"filter is a {type(filter).__name__}, must have contains_many(keys): a filter of "
                "this library, or one of a server"
            )
        for word, part, method in (("cache", cache, "get_many"), ("queue", queue, "put")):
            if part is not None and not hasattr(part, method):
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
        if not hasattr(source, "get_many"):
            source = CallSource(source)
        self.options = options
        # The one that answers, and one that is being built to take its place.
        self.filters: tuple[Any, Any] = (filter, None)
        self.asking = Asking(source, options)
        self.caching = None if cache is None else Caching(cache, options.longest)
        self.queue = queue
        self.on_answer = on_answer
        self.flights = Flights()
        self.writers = Writers()
        self.workers = Workers(options.max_queries)
        self.observed = Observed(options.window)
        self.rebuild_lock = threading.Lock()
        self.owner = secrets.token_hex(8)
        self.queued_here: set[str] = set()  # idempotency keys whose key this process has added
        self.warned = False  # of an error rate above the one asked for
        self._lock = threading.Lock()
        self._answers: Counter[str] = Counter()

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

    def deny(self, key: Any) -> None:
        """The filter let a key through that is not there."""
        if self.observed.false(key):
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
        """Seconds until the queue is looked at again."""
        return max(self.options.retry, self.asking.breaker.retry_in)

    def drain_quietly(self, drain: Callable[[], int]) -> None:
        """Drain, and whatever comes of it, there is a next time."""
        try:
            drain()
        except Exception as problem:  # noqa: BLE001  # as said
            _LOG.error("the queue was not drained: %s: %s", type(problem).__name__, problem)

    async def adrain_quietly(self, drain: Callable[[], Awaitable[int]]) -> None:
        """The same for asyncio."""
        try:
            await drain()
        except Exception as problem:  # noqa: BLE001  # as above
            _LOG.error("the queue was not drained: %s: %s", type(problem).__name__, problem)

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


_BY = ("filter", "cache", "source", "stale", "unconfirmed")
