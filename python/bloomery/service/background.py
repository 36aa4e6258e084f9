"""Filters that are worked on as a whole, in threads: to copy, merge or clear one of gigabytes takes
a second, for which nobody else shall wait. Who asks for that filter waits; all others go on.

    an operation ──Long──> its filters are held ──thread──> the operation again, with the outcome
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from bloomery import errors
from bloomery.service.domain.state import Entry, Long
from bloomery.service.engine import Engine

__all__ = ["Aside"]

_T = TypeVar("_T")


class Aside:
    """Which filters are held, by name."""

    def __init__(self, engine: Engine, *, hurries: bool = True) -> None:
        """`hurries`: not with a store, where an operation is done in Redis first."""
        self._engine = engine
        self._hurries = hurries
        self._tasks: set[asyncio.Task[Any]] = set()
        self._held: dict[bytes, asyncio.Future[None]] = {}  # done when it is free again

    def holds(self, names: Iterable[bytes]) -> bool:
        """Is one of these held?"""
        return bool(self._held) and any(name in self._held for name in names)

    async def free(self, *names: bytes) -> None:
        """Return when none of these is held."""
        while found := next((self._held[name] for name in names if name in self._held), None):
            await asyncio.wait([found])

    def do(
        self, names: Iterable[bytes], operation: Callable[[], _T], now: bool = False
    ) -> _T | Any:
        """Do an operation on filters of these names, which are free; if it takes long, what is to
        be waited for instead. `now`: then it is refused, unless it is only growth."""
        state = self._engine.state
        state.hurried = self._hurries
        try:
            return operation()
        except Long as long:
            state.hurried = False
            if now and long.grows:
                return operation()
            if now:
                raise errors.InvalidParameter(
                    "this takes long, the filter being large: do it outside of a transaction"
                ) from None
            # From this moment on, before anybody else has a turn: what comes of it is for these
            # filters, and not for others that have their names by then.
            listed = {*names}
            before = {name: state.names.get(name) for name in listed}
            free = self._take(listed)
            # A task of its own: the thread goes on, and holds the filters, whoever goes away.
            task = asyncio.ensure_future(self._elsewhere(before, free, operation, long.work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return asyncio.shield(task)
        finally:
            state.hurried = False

    async def whole(self, names: Iterable[bytes], operation: Callable[[], _T]) -> _T:
        """As `do`, and wait for it."""
        listed = [*names]
        await self.free(*listed)
        done = self.do(listed, operation)
        found: _T = await done if asyncio.isfuture(done) else done
        return found

    async def settled(self) -> None:
        """Return when no thread works on a filter."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _elsewhere(
        self,
        before: dict[bytes, Entry | None],
        free: asyncio.Future[None],
        operation: Callable[[], _T],
        work: Callable[[], Any],
    ) -> _T:
        state = self._engine.state
        try:
            outcome = await asyncio.to_thread(work)
        finally:
            self._give_back({*before}, free)
        # Nobody can have come before us since: there was no await.
        if any(state.names.get(name) is not entry for name, entry in before.items()):
            raise errors.ServerUnavailable("the filter was replaced meanwhile: try again")
        state.outcome = (outcome,)
        try:
            return operation()
        finally:
            state.outcome = None

    @contextmanager
    def hold(self, names: set[bytes]) -> Iterator[None]:
        """Let nobody else ask for filters of these names, which are free."""
        free = self._take(names)
        try:
            yield
        finally:
            self._give_back(names, free)

    def _take(self, names: set[bytes]) -> asyncio.Future[None]:
        if self.holds(names):
            raise errors.ServerUnavailable("this filter is worked on: try again in a moment")
        free = asyncio.get_running_loop().create_future()
        self._held.update(dict.fromkeys(names, free))
        self._engine.lock(names)
        return free

    def _give_back(self, names: set[bytes], free: asyncio.Future[None]) -> None:
        for name in names:
            del self._held[name]
        self._engine.unlock(names)
        free.set_result(None)
