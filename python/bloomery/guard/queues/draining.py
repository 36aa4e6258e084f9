"""Draining the queue: what waited for the source is done in order, and leaves the queue only when
it is done. A crash in between does some items again, in the same order and under the same
idempotency keys.

A drain holds a lease on the queue, under a name of its own, and renews it before each item. If the
lease is lost, since the process was paused say, the drain drops the items it has read: another
process has done them by now, and perhaps more. Only a write that was on its way at that moment
cannot be called back; its idempotency key lets the source do it once.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import bloomery._native as _native
from bloomery.boottime import boottime
from bloomery.errors import FilterFull, QueueUnavailable, SourceUnavailable
from bloomery.guard import writes
from bloomery.guard.core import Core
from bloomery.guard.driver import Call, Flow
from bloomery.guard.lookups import hashable, lease, store
from bloomery.guard.protocols import Item, Queue
from bloomery.guard.queues.back_pressure import IN_ON_ANSWER

_LOG = logging.getLogger("bloomery.guard")
_BATCH = 100  # items at a time: they leave the queue together, which costs an fsync
# How long nobody drains after one was killed, besides the time of one question to the source.
LEASE_SECONDS = 5.0


def drain(core: Core) -> Flow[int]:
    """Do what waits in the queue, until it is empty or the source is down; how many items were
    done."""
    assert core.queue is not None
    if IN_ON_ANSWER.get():
        return 0
    yield from core.drains.enter(b"")  # one at a time; those of other processes by the lease
    try:
        if core.closing or core.source.breaker.retry_in or not (yield Call(core.queue.waiting)):
            return 0
        return (yield from _Drain(core, core.queue).run())
    finally:
        core.drains.leave(b"")


class _Stop(Exception):
    """Another process drains, or the guard is closing."""


class _Drain:
    """One drain: what it did, and which of it has yet to leave the queue."""

    def __init__(self, core: Core, queue: Queue) -> None:
        self.core, self.queue = core, queue
        self.done = 0
        self.finished: list[Item] = []
        self._owner = secrets.token_hex(8)
        # Longer than what is done between two looks at the clock: one question to the source.
        timeout = core.options.timeout
        self._lease = LEASE_SECONDS + (5 * LEASE_SECONDS if timeout is None else timeout)
        self._leased = -math.inf

    def run(self) -> Flow[int]:
        """Take the lease, and do item after item."""
        core = self.core
        try:
            yield from self._keep_lease()
            core.back_pressure.begin()
            while items := (yield Call(self.queue.head, (_BATCH,))):
                for is_look, group in groupby(items, lambda item: item.what == "look"):
                    for batch in [list(group)] if is_look else [[item] for item in group]:
                        yield from self._keep_lease()
                        yield from self._look_up(batch) if is_look else self._write(batch[0])
                yield from self._take_out()
        except (SourceUnavailable, _Stop):
            pass
        except GeneratorExit:  # the driver gave the flow up
            core.back_pressure.end()
            raise
        except BaseException:
            with contextlib.suppress(QueueUnavailable):
                yield from self._end()
            raise
        yield from self._end()
        return self.done

    def _end(self) -> Flow[None]:
        self.core.back_pressure.end()
        yield from self._take_out()
        yield Call(self.queue.release, (self._owner,))

    def _keep_lease(self) -> Flow[None]:
        """Take or renew the lease; stop if another drains, or the guard is closing."""
        now = boottime()
        if self.core.closing:
            raise _Stop
        if now - self._leased > LEASE_SECONDS / 3:
            renew = getattr(self.queue, "renew", self.queue.lease)
            take = self.queue.lease if self._leased == -math.inf else renew
            if not (yield Call(take, (self._owner, self._lease))):
                raise _Stop
            self._leased = now

    def _take_out(self) -> Flow[int | None]:
        """Take what is finished out of the queue; how many of those still waited, if it says so."""
        items, self.finished = self.finished, []
        if not items:
            return 0
        waited: int | None = yield Call(self.queue.done, (items,))
        self.done += len(items)
        self.core.back_pressure.left_queue(len(items))
        return waited

    def _look_up(self, items: Sequence[Item]) -> Flow[None]:
        """Look up some keys, and cache what was found, but not of keys whose writes wait further
        back, or come meanwhile."""
        core = self.core
        yield from self._take_out()  # of writes that are done: they wait no more
        keys = {_native.canonical(item.key): hashable(item.key) for item in items}
        core.looked()
        try:
            with core.flights.watch(keys) as flight:
                tokens = yield from lease(core, keys)
                values = yield from core.source.get(list(keys.values()))
                flight.spoiled |= yield Call(self.queue.pending, (list(keys),))
                answers = yield from store(core, flight, keys, values, tokens, counting=False)
        except (QueueUnavailable, SourceUnavailable):
            raise
        except Exception as problem:  # noqa: BLE001  # the source refuses
            if len(items) == 1:
                yield from self._park(items[0], "the source refuses it", problem)
            else:  # find out which
                for item in items:
                    yield from self._keep_lease()
                    yield from self._look_up([item])
            return
        for item in items:
            answer = replace(answers[_native.canonical(item.key)], queued=item.idempotency_key)
            if core.on_answer is not None:
                yield from self._keep_lease()
                token = IN_ON_ANSWER.set(True)
                try:
                    yield Call(core.on_answer, (item.key, answer), blocking=False)
                except Exception as problem:  # noqa: BLE001  # those behind it go on
                    yield from self._park(item, "on_answer fails", problem)
                    continue
                finally:
                    IN_ON_ANSWER.reset(token)
            self.finished.append(item)

    def _write(self, item: Item) -> Flow[None]:
        """Add or remove one key."""
        core, name = self.core, _native.canonical(item.key)
        yield from core.writers.enter(name)
        try:
            current = core.filter
            if item.what == "add":
                yield from self._enter(current, item, name)
            yield from self._keep_lease()  # the last moment: others may have written this key
            try:
                if item.what == "add":
                    new = yield from core.source.add(item.key, item.value, item.idempotency_key)
                    core.writers.settle(name, item.idempotency_key)
                else:
                    was_there = yield from core.source.remove(item.key, item.idempotency_key)
            except SourceUnavailable:
                if item.what == "add":
                    core.copies.doubt(name, item.idempotency_key)
                raise
            except Exception as problem:  # noqa: BLE001  # the source refuses; others go on
                yield from self._park(item, "the source refuses it", problem)
                return
            yield from writes.forget(core, name)
            if item.what == "add":
                yield from self._settle(current, item, name, new)
                self.finished.append(item)
                return
            if was_there:
                # The queue first: done again, by us or by another who drains, it would leave the
                # filter twice, and take others with it.
                yield from self._take_out()
            self.finished.append(item)
            if was_there and (yield from self._take_out()) != 0 and not core.copies.unshare(name):
                yield from writes.leave_filter(core, current, item.key)
        finally:
            core.writers.leave(name)

    def _enter(self, current: Any, item: Item, name: bytes) -> Flow[None]:
        """Add a key to the filter before the source gets it: the item may come from another
        process, or from one before this."""
        core = self.core
        there = core.counts(current) and core.copies.has(name)
        _, copied = yield from writes.enter_filters(core, item.key, there)
        if copied:  # one, however often it is tried
            core.copies.wait(name, item.idempotency_key)

    def _settle(self, current: Any, item: Item, name: bytes, new: bool | None) -> Flow[None]:
        """The source has the key: see to it that the filter has a copy for the source, and one for
        the adds that still wait."""
        core, copies = self.core, self.core.copies
        was_there = copies.done(name, item.idempotency_key) and new is False
        if current is not core.filter:
            return
        if not copies.has(name):
            if not copies.unshare(name) and was_there:
                yield from writes.leave_filter(core, current, item.key)
        elif not was_there:  # it is the source's from now on, and others wait
            try:
                entered = yield from writes.enter(core, current, item.key)
            except FilterFull:
                entered = False
            if not entered:
                copies.share(name)

    def _park(self, item: Item, what: str, problem: Exception) -> Flow[None]:
        kind = type(problem).__name__
        # Not its text, which may have the key in it.
        _LOG.error("an item of the queue is set aside, see parked(): %s: %s", what, kind)
        yield from self._take_out()  # in order, for whoever looks at it
        yield Call(self.queue.park, (item, f"{what}: {kind}: {problem}"))
        self.done += 1
        if item.what == "add":
            self.core.copies.done(_native.canonical(item.key), item.idempotency_key)


def adopt(core: Core) -> Flow[None]:
    """Add the keys of adds that wait to the filter, which may be older than the queue: whoever
    wrote them has the promise that they will be there."""
    if core.queue is not None:
        keys = yield Call(core.queue.keys)
        if keys:
            filter, names = core.filter, list(map(_native.canonical, keys))
            yield from writes.enter_many(
                core, filter, list(dict(zip(names, keys, strict=True)).values())
            )
            if core.counts(filter):
                core.copies.adopt(names)


def inform(core: Core) -> Flow[dict[str, Any]]:
    """What `Guard.info` says."""
    info = core.info()
    if core.queue is not None:
        info["queued"] = yield Call(core.queue.waiting)
        info["parked"] = len((yield Call(core.queue.parked)))
    return info


def close(core: Core) -> Flow[None]:
    """Close the queue."""
    if core.queue is not None:
        yield Call(core.queue.close)
