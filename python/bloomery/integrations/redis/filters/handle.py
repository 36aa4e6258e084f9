"""What a user has in hand of any filter in Redis, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from bloomery.errors import InvalidParameter
from bloomery.integrations.redis.store import S, one
from bloomery.integrations.redis.wire.link import Link

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from bloomery.integrations.redis.wire.flow import Flow
    from bloomery.types import Batch, Key, Mask

__all__ = ["Handle"]


class Handle(Generic[S]):
    """A filter, and the way to it. Threads may share it."""

    def __init__(self, link: Link, store: S) -> None:
        """Use `create` or `open`."""
        if not isinstance(link, Link):
            raise InvalidParameter(
                f"{type(self).__name__}(…) makes nothing: use {type(self).__name__}.create(redis, "
                "name, capacity), or .open(redis, name)"
            )
        self._link, self._store = link, store
        self._name, self._config, self._place = store.keys.name, store.config, link.place

    @classmethod
    def _made(cls, redis: Any, timeout: float, flow: Flow[S]) -> Self:
        """Connect, and make or find it so; what was connected is closed if that fails."""
        link = Link(redis, timeout=timeout)
        try:
            return cls(link, link.run(flow))
        except BaseException:
            link.close()
            raise

    def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
        return self._one(key, write=True)

    def __contains__(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
        return self._one(key, write=False)

    def _one(self, key: Key, *, write: bool) -> bool:
        store = self._store
        if trip := store.asked(key, write=write):
            sent, asks = trip
            [replies] = self._link.exchange(asks)
            if (answer := store.answered(sent, replies)) is not None:
                return answer
        flow = store.add(one(key)) if write else store.contains(one(key))
        return bool(self._link.run(flow)[0])

    def add_many(self, keys: Batch) -> Mask:
        """Add every key, in one round trip for each 10,000; True where one is definitely new."""
        return self._link.run(self._store.add(keys))

    def update(self, keys: Batch) -> None:
        """Add every key."""
        self._link.run(self._store.add(keys))

    def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        return self._link.run(self._store.contains(keys))

    def clear(self) -> None:
        """Forget every key. One that somebody adds while this runs may be forgotten too."""
        self._link.run(self._store.clear())

    def delete(self) -> None:
        """Take the filter away, for everybody."""
        self._link.run(self._store.delete())

    def expire(self, seconds: float | None) -> None:
        """Let it end in so many seconds, for everybody; None: never."""
        self._link.run(self._store.expire(seconds))

    def ttl(self) -> float | None:
        """Seconds until it ends, or None: it does not."""
        return self._link.run(self._store.ttl())

    def info(self) -> dict[str, Any]:
        """All that is known about it, as a local filter's `info()`; Redis counts."""
        return self._link.run(self._store.info())

    def close(self) -> None:
        """Close what a URL has opened; a client that was given is its owner's to close."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
