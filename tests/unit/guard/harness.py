"""A guard for threads and one for asyncio, asked in the same words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bloomery.guard import AsyncGuard, Guard
from privates import core_of
from unit.guard.table import Coroutines, Table


class Asked:
    """An AsyncGuard whose coroutines are run at once, on a loop of its own."""

    def __init__(self, guard: AsyncGuard, loop: asyncio.AbstractEventLoop) -> None:
        self._guard, self.loop = guard, loop

    def __getattr__(self, name: str) -> Any:
        what = getattr(self._guard, name)
        if not asyncio.iscoroutinefunction(what):
            return what
        return lambda *args, **options: self.loop.run_until_complete(what(*args, **options))


def by_hand(guard: Any) -> None:
    """Let nobody but the test drain the queue."""
    guard.close()
    core_of(guard).closing = False


@contextmanager
def guards(how: str) -> Iterator[Callable[..., Any]]:
    """Make guards: for `threads`, for `asyncio` with a source of plain functions, or with one of
    `coroutines`."""
    if how == "threads":
        yield Guard
        return
    loop = asyncio.new_event_loop()

    def made(filter: Any, source: Any, **options: Any) -> Any:
        if how == "coroutines" and isinstance(source, Table):
            source = Coroutines(source)
        return Asked(AsyncGuard(filter, source, **options), loop)

    yield made
    loop.close()
