"""What a user has in hand of any filter in Redis, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from bloomery.errors import InvalidParameter
from bloomery.integrations.redis.store import S, one
from bloomery.integrations.redis.wire.aiolink import AsyncLink

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from bloomery.integrations.redis.wire.flow import Flow
    from bloomery.types import Batch, Key, Mask

__all__ = ["AsyncHandle"]


class AsyncHandle(Generic[S]):
    """A filter, and the way to it. Tasks of one loop may share it."""

    def __init__(self, link: AsyncLink, store: S) -> None:
        """Use `create` or `open`."""
        if not isinstance(link, AsyncLink):
            raise InvalidParameter(
                f"{type(self).__name__}(…) makes nothing: use {type(self).__name__}.create(redis, "
                "name, capacity), or .open(redis, name)"
            )
        self._link, self._store = link, store
        self._name, self._config, self._place = store.keys.name, store.config, link.place

    @classmethod
    async def _made(cls, redis: Any, timeout: float, flow: Flow[S]) -> Self:
        """Connect, and make or find it so; what was connected is closed if that fails."""
        link = AsyncLink(redis, timeout=timeout)
        try:
            return cls(link, await link.run(flow))
        except BaseException:
            await link.close()
            raise

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return await self._one(key, write=True)

    async def contains(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return await self._one(key, write=False)

    def __contains__(self, key: object) -> bool:
        """Refused: `in` cannot wait for Redis."""
        raise TypeError("`in` cannot wait for Redis: await .contains(key)")

    async def _one(self, key: Key, *, write: bool) -> bool:
        store = self._store
        if trip := store.asked(key, write=write):
            sent, asks = trip
            [replies] = await self._link.exchange(asks)
            if (answer := store.answered(sent, replies)) is not None:
                return answer
        flow = store.add(one(key)) if write else store.contains(one(key))
        return bool((await self._link.run(flow))[0])

    async def add_many(self, keys: Batch) -> Mask:
        """Add every key, in one round trip for each 10,000; True where one is definitely new."""
        return await self._link.run(self._store.add(keys))

    async def update(self, keys: Batch) -> None:
        """Add every key."""
        await self._link.run(self._store.add(keys))

    async def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self._link.run(self._store.contains(keys))

    async def clear(self) -> None:
        """Forget every key. One that somebody adds while this runs may be forgotten too."""
        await self._link.run(self._store.clear())

    async def delete(self) -> None:
        """Take the filter away, for everybody."""
        await self._link.run(self._store.delete())

    async def expire(self, seconds: float | None) -> None:
        """Let it end in so many seconds, for everybody; None: never."""
        await self._link.run(self._store.expire(seconds))

    async def ttl(self) -> float | None:
        """Seconds until it ends, or None: it does not."""
        return await self._link.run(self._store.ttl())

    async def info(self) -> dict[str, Any]:
        """All that is known about it, as a local filter's `info()`; Redis counts."""
        return await self._link.run(self._store.info())

    async def close(self) -> None:
        """Close what a URL has opened; a client that was given is its owner's to close."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
