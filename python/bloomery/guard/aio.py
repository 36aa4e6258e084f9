"""`AsyncGuard`: exact answers for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from bloomery.guard.answer import ABSENT, Answer
from bloomery.guard.core import Core
from bloomery.guard.driver import arun
from bloomery.guard.lookups import confirm, listed, look_up
from bloomery.guard.options import Options
from bloomery.guard.queues.drainer import AsyncDrainer
from bloomery.guard.queues.draining import adopt, close, drain, inform
from bloomery.guard.rebuilding import rebuild
from bloomery.guard.writes import add, remove

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from bloomery.guard.options import GuardOptions
    from bloomery.types import Batch, Key


class AsyncGuard:
    """A filter in front of a cache in front of the source of truth: exact answers, few queries.

        async with AsyncGuard(filter, source, cache=LocalCache(10_000), ttl=60) as guard:
            (await guard.get("alice")).value

    A *no* of the filter ends there. A *maybe* is looked up in the cache, then in the source, and
    counted, so that `info()` has the error rate that really happens. Source, cache and queue may
    have coroutines; what has not is called in a thread. With a queue, use it by `async with`: a
    task then drains the queue.
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
        """`source` is a function of a key, or anything with `get_many`. With on_outage="queue" a
        `queue` keeps what the source could not be asked, and `on_answer` is told the answers of
        look-ups that waited in it. The other options: docs/guard.md."""
        self._core = Core(filter, source, cache, queue, Options(**options), on_answer)
        self._drainer = AsyncDrainer(self._core, self.drain)

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

    # An answer is true where the key is there: the same question in other words.
    contains = get
    contains_many = get_many

    # Writing.

    async def add(
        self, key: Key, value: Any = True, *, idempotency_key: str | None = None
    ) -> Answer:
        """Write a value to the source, and the key to the filter before that.

        Trying again after SourceUnavailable, give the same idempotency key: the first try may have
        come through.
        """
        return await arun(add(self._core, key, value, idempotency_key), self._core.workers)

    async def remove(self, key: Key, *, idempotency_key: str | None = None) -> Answer:
        """Take a key out of the source, the cache, and the filter where its kind can."""
        return await arun(remove(self._core, key, idempotency_key), self._core.workers)

    # The queue.

    async def drain(self) -> int:
        """Do now what waits in the queue; how many items were done. It happens by itself too, as
        soon as the source answers again."""
        if self._core.queue is None:
            return 0
        return await arun(drain(self._core), self._core.workers)

    # The whole.

    async def rebuild(
        self,
        new: Any,
        batches: Callable[[], Iterable[Any]] | None = None,
        *,
        on_batch: Callable[[int], None] | None = None,
    ) -> Any:
        """Fill `new`, an empty filter, with every key of the source, and let it take the place of
        the one that answers, which is returned. No key is denied at any moment.

        `batches()` returns the keys of the source, in batches; it is called when the reading may
        begin: not before. A SqlSource of a table has its own. `on_batch` is told how many keys each
        had.
        """
        return await arun(rebuild(self._core, new, batches, on_batch), self._core.workers)

    async def info(self) -> dict[str, Any]:
        """The observed error rate, who answered how often, how the source is; ready for JSON."""
        return await arun(inform(self._core), self._core.workers)

    async def _start(self) -> None:
        self._core.closing = False
        if self._core.queue is not None:
            await arun(adopt(self._core), self._core.workers)
            self._drainer.start()

    async def close(self) -> None:
        """Stop draining the queue; what waits in it stays there."""
        self._core.closing = True
        await self._drainer.stop()
        await arun(close(self._core), self._core.workers)

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
