"""Draining the queue: what waited for the source is done in order, and leaves the queue only when
it is done. A crash in between does some items again, in the same order and under the same
idempotency keys."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from bloomery import _native
from bloomery.errors import QueueUnavailable, SourceUnavailable
from bloomery.guard import writes
from bloomery.guard.core import Core
from bloomery.guard.flow import Call, Flow
from bloomery.guard.lookups import hashable, lease, store
from bloomery.guard.parts import Item, Queue
from bloomery.guard.turns import TELLING

__all__ = ["adopt", "close", "drain", "inform"]

_LOG = logging.getLogger("bloomery.guard")
_SOME = 100  # items at a time: the queue is told once for all of them, which costs an fsync
_LEASE_SECONDS = 30.0


def drain(core: Core) -> Flow[int]:
    """Do what waits, until nothing does, or until the source is down; how many items were done."""
    assert core.queue is not None
    if TELLING.get():
        return 0
    yield from core.drains.enter(b"")  # one at a time; those of other processes by the lease
    try:
        if core.closing or core.asking.breaker.retry_in or not (yield Call(core.queue.waiting)):
            return 0
        return (yield from _Drain(core, core.queue).run())
    finally:
        core.drains.leave(b"")


class _Stop(Exception):
    """Another drains, or nobody is to."""


class _Drain:
    """One drain: what it did, and of that what the queue was not told yet."""

    def __init__(self, core: Core, queue: Queue) -> None:
        self.core, self.queue = core, queue
        self.done = 0
        self.untold: list[Item] = []
        # Longer than what is done between two looks at the clock: one question to the source.
        self._lease = _LEASE_SECONDS + 2 * (core.options.timeout or 0.0)
        self._leased = float("-inf")

    def run(self) -> Flow[int]:
        """Do all."""
        core = self.core
        try:
            yield from self._hold()
            core.turns.begin()
            while items := (yield Call(self.queue.head, (_SOME,))):
                for is_look, group in groupby(items, lambda item: item.what == "look"):
                    for some in [list(group)] if is_look else [[item] for item in group]:
                        yield from self._hold()
                        yield from self._look(some) if is_look else self._write(some[0])
                yield from self._tell()
        except (SourceUnavailable, _Stop):
            pass
        except GeneratorExit:  # nobody drives us any more
            core.turns.end()
            raise
        except BaseException:
            with contextlib.suppress(QueueUnavailable):
                yield from self._end()
            raise
        yield from self._end()
        return self.done

    def _end(self) -> Flow[None]:
        self.core.turns.end()
        yield from self._tell()
        yield Call(self.queue.release, (self.core.owner,))

    def _hold(self) -> Flow[None]:
        """Go on only while it is for us to drain."""
        now = time.monotonic()
        if self.core.closing:
            raise _Stop
        if now - self._leased > _LEASE_SECONDS / 3:
            if not (yield Call(self.queue.lease, (self.core.owner, self._lease))):
                raise _Stop
            self._leased = now

    def _tell(self, *more: Item) -> Flow[None]:
        """Tell the queue what is done."""
        told, self.untold = [*self.untold, *more], []
        if told:
            yield Call(self.queue.done, (told,))
            self.done += len(told)
            self.core.turns.did(len(told))
            self.core.queued_here.difference_update(item.idempotency_key for item in told)

    def _look(self, items: Sequence[Item]) -> Flow[None]:
        """Look up some keys, and cache what was found, but not of keys whose writes wait further
        back, or come meanwhile."""
        core = self.core
        yield from self._tell()  # of writes that are done: they wait no more
        keys = {_native.canonical(item.key): hashable(item.key) for item in items}
        core.looked()
        try:
            with core.flights.watch(keys) as flight:
                tokens = yield from lease(core, keys)
                found = yield from core.asking.get(list(keys.values()))
                flight.spoiled |= yield Call(self.queue.pending, (list(keys),))
                answers = yield from store(core, flight, keys, found, tokens)
        except (QueueUnavailable, SourceUnavailable):
            raise
        except Exception as problem:  # noqa: BLE001  # the source refuses
            if len(items) == 1:
                yield from self._park(items[0], "the source refuses it", problem)
            else:  # find out which
                for item in items:
                    yield from self._hold()
                    yield from self._look([item])
            return
        for item in items:
            answer = replace(answers[_native.canonical(item.key)], queued=item.idempotency_key)
            if core.on_answer is not None:
                telling = TELLING.set(True)
                try:
                    yield Call(core.on_answer, (item.key, answer), blocking=False)
                except Exception as problem:  # noqa: BLE001  # those behind it go on
                    yield from self._park(item, "on_answer fails", problem)
                    continue
                finally:
                    TELLING.reset(telling)
            self.untold.append(item)

    def _write(self, item: Item) -> Flow[None]:
        """Add or remove one key."""
        core, name = self.core, _native.canonical(item.key)
        yield from core.writers.enter(name)
        try:
            current = core.filter
            if item.what == "add" and not (
                core.counts(current) and item.idempotency_key in core.queued_here
            ):
                # Another process has put it there, or one before this.
                if core.counts(current) and core.adopted[name] > 0:
                    core.adopted[name] -= 1
                else:
                    yield from writes.enter_filters(core, item.key)
                if core.counts(current):
                    core.queued_here.add(item.idempotency_key)  # once, however often it is tried
            try:
                if item.what == "add":
                    # Whether it is new is not asked: an earlier try, of which nobody heard, may
                    # have made it.
                    yield from core.asking.add(item.key, item.value, item.idempotency_key)
                    core.writers.settle(name, item.idempotency_key)
                    was_there = None
                else:
                    was_there = yield from core.asking.remove(item.key, item.idempotency_key)
            except SourceUnavailable:
                raise
            except Exception as problem:  # noqa: BLE001  # the source refuses; others go on
                yield from self._park(item, "the source refuses it", problem)
                return
            yield from writes.forget(core, name)
            if was_there:
                # The queue first: done again, it would leave the filter twice, and take others
                # with it.
                yield from self._tell(item)
                yield from writes.leave_filter(core, current, item.key)
            else:
                self.untold.append(item)
        finally:
            core.writers.leave(name)

    def _park(self, item: Item, what: str, problem: Exception) -> Flow[None]:
        kind = type(problem).__name__
        # Not its text, which may have the key in it.
        _LOG.error("an item of the queue is set aside, see parked(): %s: %s", what, kind)
        yield from self._tell()  # in order, for whoever looks at it
        yield Call(self.queue.park, (item, f"{what}: {kind}: {problem}"))
        self.done += 1
        self.core.queued_here.discard(item.idempotency_key)


def adopt(core: Core) -> Flow[None]:
    """Let the filter, which may be older than the queue, have the keys of adds that wait: whoever
    wrote one was told that it will be there."""
    if core.queue is not None:
        keys = yield Call(core.queue.keys)
        if keys:
            filter = core.filter
            yield Call(filter.add_many, (keys,), blocking=core.blocks(filter))
            core.adopted = Counter(map(_native.canonical, keys))


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
