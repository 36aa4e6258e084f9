"""The source as a guard uses it: through a circuit breaker, in time, its answers checked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

from bloomery.errors import InvalidSource, SourceUnavailable
from bloomery.guard.driver import Call, Flow
from bloomery.guard.options import Options
from bloomery.guard.sources.breaker import Breaker
from bloomery.guard.sources.workers import Workers

# What tells that a source is away, and not that it is wrong. Before Python 3.11 the timeouts of
# asyncio and of futures are no TimeoutError.
_AWAY = (SourceUnavailable, TimeoutError, OSError, asyncio.TimeoutError, futures.TimeoutError)


# What a plain function says by returning a coroutine.
ASYNC = "answered a coroutine: an AsyncGuard takes coroutines, if they are made by `async def`"


class ResilientSource:
    """A source that may be away, asked by a few threads and through a circuit breaker. Guards may
    share one, and with it what they learn of the source."""

    def __init__(self, source: Any, options: Options) -> None:
        self.source = source
        self.workers = Workers(options.max_queries)
        self.breaker = Breaker(options.failures, options.retry, options.most_retry)
        self.failures = 0
        self.queries = 0
        self._timeout = options.timeout

    def get(self, keys: Sequence[Any]) -> Flow[Mapping[Any, Any]]:
        """The values of those keys that are there."""
        values = yield from self._ask(self.source.get_many, keys)
        if not isinstance(values, Mapping):
            raise InvalidSource(
                f"{name_of(self.source)} answered a {type(values).__name__}, must be a mapping of "
                "the keys that are there to their values"
            )
        if len(values) > len(keys) or not values.keys() <= set(keys):
            strange = len(values.keys() - set(keys))
            raise InvalidSource(
                f"{name_of(self.source)} answered for {strange} keys that it was not asked for (of "
                f"{len(keys)}): a key must come back as it was given, of the same type"
            )
        return values

    def add(
        self, key: Any, value: Any, idempotency_key: str, on_ask: Callable[[], None] | None = None
    ) -> Flow[bool | None]:
        """Write a value. `on_ask` is called if the source is asked: not while it counts as down."""
        done = yield from self._ask(self._able("add"), key, value, idempotency_key, on_ask=on_ask)
        return self._checked("add", done)

    def remove(self, key: Any, idempotency_key: str) -> Flow[bool | None]:
        """Take a key out."""
        done = yield from self._ask(self._able("remove"), key, idempotency_key)
        return self._checked("remove", done)

    def _able(self, operation: str) -> Any:
        method = getattr(self.source, operation, None)
        if method is None:
            raise InvalidSource(
                f"{name_of(self.source)} has no {operation}: give it one, or write to it yourself "
                "after guard.filter.add(key)"
            )
        return method

    def _checked(self, operation: str, done: Any) -> bool | None:
        if done is None or done is True or done is False:
            return done
        raise InvalidSource(
            f"{operation} of {name_of(self.source)} returned a {type(done).__name__}, must be True "
            f"({'new' if operation == 'add' else 'it was there'}), False or None (not known)"
        )

    def _ask(self, what: Any, *args: Any, on_ask: Callable[[], None] | None = None) -> Flow[Any]:
        if not self.breaker.enter():
            raise SourceUnavailable(
                f"{name_of(self.source)} is down, and is tried again in "
                f"{self.breaker.retry_in:.1f} s"
            )
        self.queries += 1
        if on_ask is not None:
            on_ask()
        try:
            answer = yield Call(what, args, self._timeout)
        except _AWAY as problem:
            self.failures += 1
            self.breaker.failed()
            if isinstance(problem, SourceUnavailable):
                raise
            raise SourceUnavailable(f"{name_of(self.source)}: {_why(problem)}") from problem
        except Exception:
            self.breaker.succeeded()  # it is wrong, but there
            raise
        except BaseException:
            self.breaker.gave_up()
            raise
        self.breaker.succeeded()
        if inspect.isawaitable(answer):
            answer.close() if inspect.iscoroutine(answer) else None
            raise InvalidSource(f"{name_of(self.source)} {ASYNC}")
        return answer


def name_of(source: object) -> str:
    """A source in a message, without its secrets: `name` if it has one."""
    name = getattr(source, "name", None)
    return f"the source {name}" if isinstance(name, str) else f"the source {type(source).__name__}"


def _why(problem: BaseException) -> str:
    text = str(problem)
    return (
        text if isinstance(problem, TimeoutError) and text else f"{type(problem).__name__}: {text}"
    )
