"""The interface of what holds the bits of a filter: strings, generations, or a server's BF.*."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bloomery.errors import UnsupportedKey

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Config
    from bloomery.integrations.redis.naming import Keys
    from bloomery.integrations.redis.wire.flow import Ask, Flow
    from bloomery.types import Batch, Key, Mask

__all__ = ["S", "Store", "as_batch"]


def as_batch(key: Key) -> list[Key]:
    """Return a key as a batch. None in a batch is a row without a value; alone it is a mistake, and
    raises what a local filter raises."""
    if key is None:
        raise UnsupportedKey(
            "NoneType cannot be a key: a key is a str, bytes, int, UUID, datetime or a tuple of "
            "these; leave None out"
        )
    return [key]


class Store(Protocol):
    """Does what a filter is asked for, as flows: once for threads and for asyncio."""

    keys: Keys
    config: Config

    def add(self, keys: Batch) -> Flow[Mask]:
        """Add keys; True where one is definitely new."""

    def contains(self, keys: Batch) -> Flow[Mask]:
        """Ask for keys; False is certain."""

    def single_ask(self, key: Key, *, write: bool) -> tuple[Any, list[Ask]] | None:
        """Return the round trip of a single key, for `single_answer`; None if it takes several."""

    def single_answer(self, sent: Any, replies: list[Any]) -> bool | None:
        """Return the answer to that; None if something is wrong, and the flow is to say what."""

    def clear(self) -> Flow[None]:
        """Forget every key."""

    def delete(self) -> Flow[None]:
        """Take the filter away."""

    def expire(self, seconds: float | None) -> Flow[None]:
        """Let it end in so many seconds, or never."""

    def ttl(self) -> Flow[float | None]:
        """Seconds that are left, or None."""

    def info(self) -> Flow[dict[str, Any]]:
        """Everything that is known about it."""


S = TypeVar("S", bound=Store)
