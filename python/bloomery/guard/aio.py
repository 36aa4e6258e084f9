"""`AsyncGuard`: exact answers for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from bloomery.guard.answer import ABSENT, Answer
from bloomery.guard.core import Core
from bloomery.guard.driver import arun
from bloomery.guard.lookups import confirm, listed, look_up
from bloomery.guard.options import Options
from bloomery.guard.queues.draining import adopt, close, drain, inform
from bloomery.guard.rebuilding import rebuild
from bloomery.guard.writes import add, remove

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from bloomery.guard.options import GuardOptions
    from bloomery.types import Batch, Key

__all__ = ["AsyncGuard"]


class AsyncGuard:
    """A `Guard` for asyncio: what is asked of it is awaited.

    Source, cache and queue may have coroutines; what has not is called in a thread. With a queue,
    use it as `async with AsyncGuard(…) as guard`: a task then drains the queue.
    """

    def __init__(
        self,
        filter: Any,
        source: Any,
        *,
        cache: Any = None,
        queue: Any = None,
        on_answer: Callable[[Any, Answer], Awaitable[None] | None] | None = None,
        **options: Unpack[GuardOptions],
    ) -> None:
        """As `Guard` is made."""
        told: Any = on_answer
        self._core = Core(filter, source, cache, queue, Options(**options), told)
        self._drainer: asyncio.Task[None] | None = None

    @property
    def filter(self) -> Any:
        """The filter that answers now."""
        return self._core.filters[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.filter!r}>"

    # Asking.

    async def get(self, key: Key) -> Answer:
        """Is the key there, and what is its value?"""
        core = self._core
        if core.blocks(core.filter):
            return (await self.get_many([key]))[0]
        if key not in core.filters[0]:
            core.observed.no(key)
            return ABSENT
        (answer,) = await arun(confirm(core, [key]), core.workers)
        core.count((answer,))
        return answer

    async def get_many(self, keys: Batch) -> list[Answer]:
        """The same for many keys, with one question to each of filter, cache and source."""
        return await arun(look_up(self._core, listed(keys)), self._core.workers)

    contains = get
    contains_many = get_many

    # Writing.

    async def add(
        self, key: Key, value: Any = True, *, idempotency_key: str | None = None
    ) -> Answer:
        """Write a value to the source, and the key to the filter before that."""
        return await arun(add(self._core, key, value, idempotency_key), self._core.workers)

    async def remove(self, key: Key, *, idempotency_key: str | None = None) -> Answer:
        """Take a key out of the source, the cache, and the filter where its kind can."""
        return await arun(remove(self._core, key, idempotency_key), self._core.workers)

    # The queue.

    async def drain(self) -> int:
        """Do now what waits in the queue; how many items were done."""
        if self._core.queue is None:
            return 0
        return await arun(drain(self._core), self._core.workers)

    async def _drain(self) -> None:
        while not self._core.closing:
            await self._core.adrain_quietly(self.drain)
            await asyncio.sleep(self._core.pause())

    # The whole.

    async def rebuild(
        self,
        new: Any,
        batches: Callable[[], Iterable[Any]] | None = None,
        *,
        on_batch: Callable[[int], None] | None = None,
    ) -> Any:
        """Fill `new` with every key of the source, and let it take the place of the one that
        answers: as `Guard.rebuild` does."""
        return await arun(rebuild(self._core, new, batches, on_batch), self._core.workers)

    async def info(self) -> dict[str, Any]:
        """The observed error rate, who answered how often, how the source is; ready for JSON."""
        return await arun(inform(self._core), self._core.workers)

    async def close(self) -> None:
        """Stop draining the queue; what waits in it stays there."""
        # Before Python 3.12 `wait_for`, which clients use too, may swallow a cancellation.
        self._core.closing = True
        if self._drainer is not None:
            self._drainer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._drainer
            self._drainer = None
        if self._core.queue is not None:
            await arun(close(self._core), self._core.workers)

    async def __aenter__(self) -> Self:
        self._core.closing = False
        if self._core.queue is not None:
            await arun(adopt(self._core), self._core.workers)
            self._drainer = asyncio.create_task(self._drain())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
