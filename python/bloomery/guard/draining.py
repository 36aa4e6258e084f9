"""Draining the queue: what waited for the source is done in order, one item after the other, and
each leaves the queue only when it is done. A crash in between does an item again, under the same
idempotency key."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from bloomery import _native
from bloomery.errors import QueueUnavailable, SourceUnavailable
from bloomery.guard import writes
from bloomery.guard.core import Core
from bloomery.guard.flow import Call, Flow
from bloomery.guard.lookups import store
from bloomery.guard.parts import Item

__all__ = ["close", "drain", "inform"]

_LOG = logging.getLogger("bloomery.guard")
_SOME = 100  # items at a time
_LEASE_SECONDS = 30.0  # longer than a group of items takes, or another drainer does them too


def drain(core: Core) -> Flow[int]:
    """Do what waits, until nothing does, or until the source is down; how many items were done."""
    queue, done = core.queue, 0
    assert queue is not None
    while (yield Call(queue.lease, (core.owner, _LEASE_SECONDS))):
        items = yield Call(queue.head, (_SOME,))
        try:
            for is_look, group in groupby(items, lambda item: item.what == "look"):
                for some in [list(group)] if is_look else [[item] for item in group]:
                    yield from _do(core, some)
                    done += len(some)
        except SourceUnavailable:
            items = []
        if not items:
            yield Call(queue.release, (core.owner,))
            break
    return done


def _do(core: Core, items: Sequence[Item]) -> Flow[None]:
    """Do some look-ups, or one write."""
    assert core.queue is not None
    try:
        if items[0].what == "look":
            yield from _look(core, items)
        elif items[0].what == "add":
            yield from _add(core, items[0])
        else:
            yield from _remove(core, items[0])
    except (SourceUnavailable, QueueUnavailable):
        raise
    except Exception as problem:  # noqa: BLE001  # the source refuses; those behind must go on
        why = f"{type(problem).__name__}: {problem}"
        if len(items) > 1:  # find out which
            for item in items:
                yield from _do(core, [item])
            return
        _LOG.error("the source refuses what waited for it, which is set aside: %s", why)
        yield Call(core.queue.park, (items[0], why))
        return
    yield Call(core.queue.done, (items,))


def _look(core: Core, items: Sequence[Item]) -> Flow[None]:
    asked = {_native.canonical(item.key): item.key for item in items}
    flight = core.flights.claim(asked)
    try:
        found = yield from core.asking.get(list(asked.values()))
        answers = yield from store(core, flight, asked, found)
    except BaseException as problem:
        flight.crash(problem)
        raise
    flight.land(answers)
    if core.on_answer is not None:
        for item in items:
            answer = answers[_native.canonical(item.key)]
            yield Call(core.on_answer, (item.key, answer), blocking=False)


def _add(core: Core, item: Item) -> Flow[None]:
    name = _native.canonical(item.key)
    yield from core.writers.enter(name)
    try:
        # After a restart the filter may be an older one.
        if item.idempotency_key not in core.queued_here or not core.counts(core.filter):
            yield from writes.enter_filters(core, item.key)
            core.queued_here.add(item.idempotency_key)  # once, however often it is tried
        # Whether it is new is not asked: an earlier try, which nobody heard of, may have made it.
        yield from core.asking.add(item.key, item.value, item.idempotency_key)
        core.queued_here.discard(item.idempotency_key)
        core.writers.settle(name, item.idempotency_key)
        yield from writes.forget(core, name)
    finally:
        core.writers.leave(name)


def _remove(core: Core, item: Item) -> Flow[None]:
    name = _native.canonical(item.key)
    yield from core.writers.enter(name)
    try:
        current = core.filter
        was_there = yield from core.asking.remove(item.key, item.idempotency_key)
        yield from writes.forget(core, name)
        if was_there:
            yield from writes.leave_filter(core, current, item.key)
    finally:
        core.writers.leave(name)


def inform(core: Core) -> Flow[dict[str, Any]]:
    """All that is known of a guard, its queue too."""
    told = core.info()
    if core.queue is not None:
        told["queued"] = yield Call(core.queue.waiting)
        told["parked"] = len((yield Call(core.queue.parked)))
    return told


def close(core: Core) -> Flow[None]:
    """Let go of the queue."""
    if core.queue is not None:
        yield Call(core.queue.close)
