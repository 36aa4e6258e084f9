"""The flows of writes through a guard. A key enters the filter before the source, and leaves the
source before the filter: so the filter never denies a key that the source holds."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Sequence
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidSource, SourceUnavailable, TooManyCopies
from bloomery.guard.answer import Answer
from bloomery.guard.core import Core
from bloomery.guard.driver import Call, Flow
from bloomery.guard.protocols import Item


def add(core: Core, key: Any, value: Any, idempotency_key: str | None) -> Flow[Answer]:
    """Write a value to the source, or queue the write while the source is down."""
    token, name = idempotency_key or uuid.uuid4().hex, _native.canonical(key)
    yield from core.back_pressure.wait()
    yield from core.writers.enter(name)
    asked = False

    def ask() -> None:
        nonlocal asked
        asked = True
        core.writers.doubt(name, key, token)

    try:
        waits = yield from _must_wait(core)
        # All adds of a key that wait share one copy of it.
        current, copied = yield from enter_filters(core, key, waits and core.copies.has(name))
        item = Item("add", key, value, token, time.time())
        if not waits:
            try:
                new = yield from core.source.add(key, value, token, ask)
            except BaseException as problem:
                outdate(core, name)  # whatever it was: the source may have the value
                if isinstance(problem, InvalidSource):
                    core.writers.settle(name, token)
                if core.queue is None or not isinstance(problem, SourceUnavailable):
                    if copied and not asked:  # it counts as down, and heard nothing of this
                        yield from leave_filter(core, current, key)
                    raise
            else:
                core.writers.settle(name, token)
                yield from forget(core, name)
                if new is False and idempotency_key is None and copied:
                    # It was there before, and so was its copy in the filter. (Of a second try under
                    # the same idempotency key the first may be the one that was there.)
                    yield from leave_filter(core, current, key)
                return Answer(True, value, "source")
        if core.counts(current):
            if copied and not asked and core.copies.has(name):
                yield from leave_filter(core, current, key)
            core.copies.wait(name, token, tried=asked)
        return (yield from _wait_in_line(core, name, item))
    finally:
        core.writers.leave(name)


def remove(core: Core, key: Any, idempotency_key: str | None) -> Flow[Answer]:
    """Take a key out of the source, or queue that; the answer says whether it was there."""
    token, name = idempotency_key or uuid.uuid4().hex, _native.canonical(key)
    yield from core.back_pressure.wait()
    yield from core.writers.enter(name)
    try:
        current = core.filter
        item = Item("remove", key, None, token, time.time())
        if not (yield from _must_wait(core)):
            try:
                was_there = yield from core.source.remove(key, token)
            except BaseException as problem:
                outdate(core, name)  # as above
                if core.queue is None or not isinstance(problem, SourceUnavailable):
                    raise
            else:
                yield from forget(core, name)
                if was_there:
                    yield from leave_filter(core, current, key)
                return Answer(bool(was_there), None, "source")
        return (yield from _wait_in_line(core, name, item))
    finally:
        core.writers.leave(name)


def enter_filters(core: Core, key: Any, there: bool = False) -> Flow[tuple[Any, bool]]:
    """Add a key to the filter, unless it is `there`, and to one that is being built; the former,
    and whether that has a copy of the key more than before."""
    current, following = core.filters
    copied = False if there else (yield from enter(core, current, key))
    if following is not None:
        yield from enter(core, following, key)
    return current, copied


def enter(core: Core, filter: Any, key: Any) -> Flow[bool]:
    """Add a key to this filter; whether it has a copy more. A cuckoo filter holds a few of a key at
    most, and each try of a write while the source is down makes one: then those are enough."""
    try:
        yield Call(filter.add, (key,), blocking=core.blocks(filter))
    except TooManyCopies:
        return False
    return core.counts(filter)


def enter_many(core: Core, filter: Any, keys: Sequence[Any]) -> Flow[None]:
    """Add many keys to this filter, each of which may be in it as often as it can be."""
    try:
        yield Call(filter.add_many, (keys,), blocking=core.blocks(filter))
    except TooManyCopies:
        for key in keys:  # how many were added is not known: once more, each by itself
            yield from enter(core, filter, key)


def leave_filter(core: Core, filter: Any, key: Any) -> Flow[None]:
    """Take a key, which is in this filter for certain, out of it where its kind can.

    Not out of one that took its place meanwhile: nobody knows whether the key got into that one,
    and to take out what never was in it would take others with it. A key that the source may get
    yet, from a write that timed out, stays: each write adds it, so that there is another copy of
    it, or, in a deletable filter, no cell of it that can be deleted.
    """
    discard = getattr(filter, "discard", None)
    if discard is not None and filter is core.filter:
        yield Call(discard, (key,), blocking=core.blocks(filter))


def _must_wait(core: Core) -> Flow[bool]:
    """Whether earlier writes still wait in the queue: then this one joins it, to keep the order."""
    if core.queue is None:
        return False
    waiting: int = yield Call(core.queue.writes)
    if not waiting:  # another process may have drained the writes we have copies for
        core.copies.clear()
    return waiting > 0


def _wait_in_line(core: Core, name: bytes, item: Item) -> Flow[Answer]:
    assert core.queue is not None
    try:
        yield Call(core.queue.put, ([item],))
    finally:
        core.wrote()
    yield from forget(core, name)
    return Answer(item.what == "add", item.value, "unconfirmed", item.idempotency_key)


def forget(core: Core, name: bytes) -> Flow[None]:
    """After a write: delete the key from the cache, and let no look-up bring it back."""
    storing = core.flights.spoil(name)
    if core.cache is not None:
        for landed in storing:  # else one might cache the old answer after we have deleted it
            with contextlib.suppress(Exception):
                yield Call(landed)
        yield from core.cache.delete([name])


def outdate(core: Core, name: bytes) -> None:
    """The same without waiting: the key is deleted before the cache is used the next time."""
    core.flights.spoil(name)
    if core.cache is not None:
        core.cache.outdate([name])
