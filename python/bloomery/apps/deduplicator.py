"""Consumers that do each message once: what is done is recorded, what failed is done again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import bloomery._native as _native
from bloomery import errors

if TYPE_CHECKING:
    from bloomery.types import Key

Message = TypeVar("Message", contravariant=True)


class Seen(Protocol):
    """What remembers ids: a filter, here, in Redis or of a server; or a `DiskSet`."""

    def add(self, key: Any, /) -> bool:
        """Add a key; True if it is definitely new."""

    def __contains__(self, key: Any, /) -> bool:
        """Return False if the key is definitely not there."""


@dataclass(eq=False)
class _Worker:
    """A call of `once` under way; each is another, also of one thread."""

    thread: int


class Deduplicator(Generic[Message]):
    """Does each message once, however often a queue delivers it.

        dedup = Deduplicator(DiskSet("done.sqlite"), key=lambda mail: mail["Message-ID"])
        for message in queue:
            with dedup.once(message) as first:
                if first:
                    work(message)
            queue.acknowledge(message)

    The id is recorded when the block ends well, and not if it raises: then the message is first
    again the next time. Threads that come with the same id wait for the one that works on it.
    Recording is as durable as `seen`: with a `DiskSet` it is on disk when the block has ended.

    A process that dies after the work and before the record does that work again: that is why it is
    once-ish. A *maybe* of a plain filter can be wrong, and that message is not done at all: where
    that matters, take a `DiskSet`.
    """

    def __init__(self, seen: Seen, key: Callable[[Message], Key] | None = None) -> None:
        """Record ids in `seen`; `key` makes the id of a message, which else is one itself."""
        if not (hasattr(seen, "add") and hasattr(seen, "__contains__")):
            raise errors.InvalidParameter(
                f"the filter is of type {type(seen).__name__}, must have add and in: a BloomFilter,"
                " a RotatingBloomFilter, a RedisFilter, a DiskSet"
            )
        if key is not None and not callable(key):
            raise errors.InvalidParameter(
                f"key is {key!r}, must be a function from a message to its id, or None"
            )
        self.seen = seen
        self.firsts = self.duplicates = self.failures = self.races = 0
        self._key: Callable[[Any], Any] = key or (lambda message: message)
        self._working: dict[bytes, _Worker] = {}  # ids that are worked on, and by whom
        self._changed = threading.Condition()

    @contextmanager
    def once(self, message: Message) -> Iterator[bool]:
        """True if the message is to be done now; it is recorded when the block ends well."""
        key = self._key(message)
        claim, me = _native.canonical(key), _Worker(threading.get_ident())
        try:
            self._claim(claim, me)
            if key in self.seen:
                self._count("duplicates")
                yield False
                return
            try:
                yield True
            except BaseException:
                self._count("failures")
                raise
            # Not new by now: a process that shares the filter has done it at the same time.
            self._count("firsts" if self.seen.add(key) else "races")
        finally:
            with self._changed:
                if self._working.get(claim) is me:  # an interrupt may have come before
                    del self._working[claim]
                    self._changed.notify_all()

    def info(self) -> dict[str, int]:
        """Return what became of the messages of this process so far."""
        return {
            "firsts": self.firsts,
            "duplicates": self.duplicates,
            "failures": self.failures,
            "races": self.races,
        }

    def _claim(self, claim: bytes, me: _Worker) -> None:
        """Wait until nobody else works on this id, and then be the one who does."""
        with self._changed:
            while (holder := self._working.get(claim)) is not None:
                if holder.thread == me.thread:
                    raise errors.InvalidParameter(
                        "this thread is inside once() of the same id: it would wait for itself"
                    )
                self._changed.wait()
            self._working[claim] = me

    def _count(self, what: str) -> None:
        with self._changed:
            setattr(self, what, getattr(self, what) + 1)
