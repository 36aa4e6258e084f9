"""The protocols of a guard's parts: a source of truth, a cache, a queue. Each may be one of ours,
or anything that has these methods; for asyncio they may be coroutines.

A source raises SourceUnavailable when it is away (so do TimeoutError, ConnectionError and OSError,
which are taken for the same) and InvalidSource when it is wrong; a cache CacheUnavailable and
PoisonedCache; a queue QueueUnavailable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol


class Source(Protocol):
    """The source of truth. Whoever only reads needs `get_many` alone."""

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """Return the values of those keys that are there; the others are not in the mapping."""

    def add(self, key: Any, value: Any, idempotency_key: str) -> bool | None:
        """Write a value, once for each idempotency key, however often it is called: True if the key
        is new, False if it had a value, None if that is not known."""

    def remove(self, key: Any, idempotency_key: str) -> bool | None:
        """Take a key out: True if it was there, None if that is not known."""


class Cached(NamedTuple):
    """What a cache holds for a key. Times are of `bloomery.boottime`, in this process: a cache that
    others share keeps how long it is until then, by a clock of its own."""

    found: bool
    value: Any
    fresh_until: float  # after that it is stale
    keep_until: float  # after that the cache may forget it
    token: Any = None  # of `lease_many`, before the source was asked; None: hold it in any case


class Cache(Protocol):
    """A bounded cache; keys are canonical bytes (`_native.canonical`)."""

    def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
        """Return what is held for each key."""

    def lease_many(self, keys: Sequence[bytes]) -> Sequence[Any]:
        """A token for each key, which holds until the key is deleted. One without this method is
        right for a single guard alone."""

    def set_many(self, entries: Sequence[tuple[bytes, Cached]]) -> None:
        """Hold these; but nothing whose token holds no longer, or is not known any more."""

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Hold nothing for these keys, and let no token of theirs hold."""


@dataclass(frozen=True, slots=True)
class Item:
    """A look-up or a write that waits in a queue for the source."""

    what: Literal["look", "add", "remove"]
    key: Any
    value: Any
    idempotency_key: str
    at: float  # Unix time
    id: Any = None  # the queue's own, for `done` and `park`


class Queue(Protocol):
    """A durable queue, in order. What `put` has returned from survives a crash."""

    def put(self, items: Sequence[Item]) -> None:
        """Write them down, behind all that wait."""

    def pending(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of these keys (canonical) have a write that waits."""

    def writes(self) -> int:
        """How many writes wait."""

    def keys(self) -> list[Any]:
        """The keys of all adds that wait, as they were given."""

    def head(self, most: int) -> list[Item]:
        """The first items, which stay."""

    def done(self, items: Sequence[Item]) -> int | None:
        """These are done: they wait no more. How many waited until now; None: that is not known."""

    def park(self, item: Item, why: str) -> None:
        """The source refuses this one: set it aside, so that those behind it go on."""

    def parked(self) -> list[tuple[Item, str]]:
        """What was set aside, and why."""

    def lease(self, owner: str, seconds: float) -> bool:
        """Let this owner, and nobody else, drain for so long; False if another does."""

    def renew(self, owner: str, seconds: float) -> bool:
        """Let it drain for so long from now on; False if the lease was lost meanwhile, also if
        nobody has it now. One without this method has drainers that are never paused."""

    def release(self, owner: str) -> None:
        """Drain no longer."""

    def waiting(self) -> int:
        """How many items wait."""

    def close(self) -> None:
        """Let go of what is open."""
