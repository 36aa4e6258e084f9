"""What every filter in Redis can do, whatever holds its bits: flows, for threads and asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bloomery.errors import UnsupportedKey

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Config
    from bloomery.integrations.redis.naming import Keys
    from bloomery.integrations.redis.wire.flow import Ask, Flow
    from bloomery.types import Batch, Key, Mask

__all__ = ["S", "Store", "one"]


def one(key: Key) -> list[Key]:
    """Return a key as a batch. None in a batch is a row without a value; alone it is a mistake of
    another kind, and is told as the local filter tells it."""
    if key is None:
        raise UnsupportedKey(
            "NoneType cannot be a key: a key is a str, bytes, int, UUID, datetime or a tuple of "
            "these; leave None out"
        )
    return [key]


class Store(Protocol):
    """Strings of bits or counters, generations of them, or a server's own filters."""

    keys: Keys
    config: Config

    def add(self, keys: Batch) -> Flow[Mask]:
        """Add keys; True where one is definitely new."""

    def contains(self, keys: Batch) -> Flow[Mask]:
        """Ask for keys; False is certain."""

    def asked(self, key: Key, *, write: bool) -> tuple[Any, list[Ask]] | None:
        """Return the one trip of one key, for `answered`; None if it takes more than that."""

    def answered(self, sent: Any, replies: list[Any]) -> bool | None:
        """Return the answer of that trip; None: something is wrong, and the flow tells what."""

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
