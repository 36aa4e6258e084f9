"""The base class of all filters in Redis, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from bloomery.errors import InvalidParameter
from bloomery.integrations.redis.store import S, as_batch
from bloomery.integrations.redis.wire.aiolink import AsyncLink
from bloomery.suggestions import OtherNames

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.integrations.redis.wire.flow import Flow
    from bloomery.types import Batch, Key, Mask


class AsyncBaseRedisFilter(Generic[S], OtherNames):
    """A filter in Redis: its `store` knows what to ask Redis, its `link` asks.

    Tasks of one loop may share it.
    """

    def __init__(self, link: AsyncLink, store: S) -> None:
        """Use `create` or `open`."""
        if not isinstance(link, AsyncLink):
            raise InvalidParameter(
                f"{type(self).__name__}(…) makes nothing: use {type(self).__name__}.create(redis, "
                "name, capacity), or .open(redis, name)"
            )
        self.link, self.store = link, store
        self._name, self._config, self._place = store.keys.name, store.config, link.place

    @classmethod
    async def _connect(cls, redis: Any, timeout: float, flow: Flow[S]) -> Self:
        """Connect, and run the flow that creates or opens it; close the connection if it fails."""
        link = AsyncLink(redis, timeout=timeout)
        try:
            return cls(link, await link.run(flow))
        except BaseException:
            await link.close()
            raise

    async def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return await self._single(key, write=True)

    async def contains(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return await self._single(key, write=False)

    def __contains__(self, key: object) -> bool:
        """Refused: `in` cannot wait for Redis."""
        raise TypeError("`in` cannot wait for Redis: await .contains(key)")

    async def _single(self, key: Key, *, write: bool) -> bool:
        store = self.store
        if single := store.single_ask(key, write=write):
            sent, asks = single
            [replies] = await self.link.exchange(asks)
            if (answer := store.single_answer(sent, replies)) is not None:
                return answer
        flow = store.add(as_batch(key)) if write else store.contains(as_batch(key))
        answers = await self.link.run(flow)
        return bool(answers[0])

    async def add_many(self, keys: Batch) -> Mask:
        """Add every key, in one round trip for each 10,000; True where one is definitely new."""
        return await self.link.run(self.store.add(keys))

    async def update(self, keys: Batch) -> None:
        """Add every key."""
        await self.link.run(self.store.add(keys))

    async def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return await self.link.run(self.store.contains(keys))

    async def clear(self) -> None:
        """Forget every key. One that somebody adds while this runs may be forgotten too."""
        await self.link.run(self.store.clear())

    async def delete(self) -> None:
        """Take the filter away, for everybody."""
        await self.link.run(self.store.delete())

    async def expire(self, seconds: float | None) -> None:
        """Let it end in so many seconds, for everybody; None: never."""
        await self.link.run(self.store.expire(seconds))

    async def ttl(self) -> float | None:
        """Seconds until it ends, or None: it does not."""
        return await self.link.run(self.store.ttl())

    async def info(self) -> dict[str, Any]:
        """All that is known about it, as a local filter's `info()`; Redis counts."""
        return await self.link.run(self.store.info())

    async def close(self) -> None:
        """Close what a URL has opened; a client that was given is its owner's to close."""
        await self.link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
