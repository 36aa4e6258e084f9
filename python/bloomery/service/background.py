"""Operations on whole filters, in threads: to copy, merge or clear one of gigabytes takes a second,
for which nobody else shall wait. Who asks for that filter waits; all others go on.

    an operation ──Deferred──> its filters are locked ──thread──> unlocked; the operation again,
                                                                  with the result
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from bloomery import errors
from bloomery.service.domain.deferral import Deferred
from bloomery.service.domain.state import Entry
from bloomery.service.eagerly import eagerly
from bloomery.service.engine import Engine

_T = TypeVar("_T")


class Background:
    """The operations that threads are busy with, and who waits for their filters."""

    def __init__(self, engine: Engine, *, defers: bool = True) -> None:
        """`defers`: not on a node, where an operation is done when the shared log has it."""
        self._engine = engine
        self._defers = defers
        self._tasks: set[asyncio.Task[Any]] = set()
        # By name; each is done when the filter is unlocked again.
        self._locked: dict[bytes, asyncio.Future[None]] = {}

    def is_locked(self, names: Iterable[bytes]) -> bool:
        """Is a filter of one of these names locked?"""
        return bool(self._locked) and any(name in self._locked for name in names)

    async def unlocked(self, *names: bytes) -> None:
        """Return when no filter of these names is locked."""
        while locked := next((self._locked[name] for name in names if name in self._locked), None):
            await asyncio.wait([locked])

    def start(self, names: Iterable[bytes], operation: Callable[[], Any], now: bool = False) -> Any:
        """Do an operation on filters of these names, which are not locked, and return its value; if
        it takes long, or waits, return an awaitable of it. `now`: then refuse it, unless it is only
        growth."""
        state = self._engine.state
        try:
            return state.deferral.try_now(lambda: eagerly(operation()), allowed=self._defers)
        except Deferred as deferred:
            if now and deferred.grows:
                return eagerly(operation())
            if now:
                raise errors.InvalidParameter(
                    "this takes long, the filter being large: do it outside of a transaction"
                ) from None
            # From this moment on, before anybody else has a turn: what comes of it is for these
            # filters, and not for others that have their names by then.
            before = {name: state.names.get(name) for name in names}
            unlocked = self._lock({*before})
            # A task of its own: the thread goes on, and locks the filters, whoever goes away.
            task = asyncio.ensure_future(self._finish(before, unlocked, operation, deferred.work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return asyncio.shield(task)

    async def run(self, names: Iterable[bytes], operation: Callable[[], Awaitable[_T]]) -> _T:
        """Do an operation on filters of these names, when they are not locked; in a thread if it
        takes long."""
        listed = [*names]
        await self.unlocked(*listed)
        started = self.start(listed, operation)
        value: _T = await started if isinstance(started, Awaitable) else started
        return value

    async def idle(self) -> None:
        """Return when no thread works on a filter."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _finish(
        self,
        before: dict[bytes, Entry | None],
        unlocked: asyncio.Future[None],
        operation: Callable[[], Any],
        work: Callable[[], Any],
    ) -> Any:
        """Do the long part in a thread, then the operation."""
        state = self._engine.state
        try:
            result = await asyncio.to_thread(work)
        finally:
            self._unlock({*before}, unlocked)
        # Nobody can have come before us since: there was no await.
        if any(state.names.get(name) is not entry for name, entry in before.items()):
            raise errors.ServerUnavailable("the filter was replaced meanwhile: try again")
        value = state.deferral.resume(lambda: eagerly(operation()), result)
        return await value if isinstance(value, Awaitable) else value

    @contextmanager
    def lock(self, names: set[bytes]) -> Iterator[None]:
        """Let all others wait who ask for filters of these names, which are not locked."""
        unlocked = self._lock(names)
        try:
            yield
        finally:
            self._unlock(names, unlocked)

    def _lock(self, names: set[bytes]) -> asyncio.Future[None]:
        if self.is_locked(names):
            raise errors.ServerUnavailable("this filter is worked on: try again in a moment")
        unlocked = asyncio.get_running_loop().create_future()
        self._locked.update(dict.fromkeys(names, unlocked))
        self._engine.lock(names)
        return unlocked

    def _unlock(self, names: set[bytes], unlocked: asyncio.Future[None]) -> None:
        for name in names:
            del self._locked[name]
        self._engine.unlock(names)
        unlocked.set_result(None)
