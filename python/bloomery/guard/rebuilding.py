"""The flow of a rebuild: a new filter is built from the source while the old one answers, and then
takes its place. The usual cure for deletions and for saturation.

    adds go to both ──> writes under way end ──> the source is read ──> the new one answers
                        (the source's reading begins after each of them)

A key that is in the source when the new filter takes over was there when the reading began, and was
read; or came later, and was added to both. What was removed meanwhile may stay in the new one: a
maybe more, until the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.guard.core import Core
from bloomery.guard.driver import Call, Flow
from bloomery.guard.writes import enter, enter_many


def rebuild(
    core: Core,
    new: Any,
    batches: Callable[[], Iterable[Any]] | None,
    on_batch: Callable[[int], None] | None,
) -> Flow[Any]:
    """Fill `new`, an empty filter, with all keys of the source, a batch at a time, and let it
    answer; the filter that it took the place of. `batches` is called when the reading may begin."""
    batches = batches or getattr(core.source.source, "batches", None)
    if batches is None:
        raise InvalidParameter(
            "the source cannot be read from end to end: give batches=…, a function that returns "
            "all of its keys, some at a time"
        )
    if not callable(batches):
        raise InvalidParameter(
            f"batches is a {type(batches).__name__}, must be a function that returns batches of "
            "keys, as in rebuild(new, source.batches): the reading must not have begun"
        )
    with core.rebuild_lock:
        current, following = core.filters
        if following is not None:
            raise InvalidParameter("the filter is being rebuilt already: wait until that has ended")
        if new is current:
            raise InvalidParameter("new is the filter itself, must be another, empty one")
        core.filters = (current, new)
    try:
        for write in core.writers.under_way():  # they may have begun before there was a new one
            yield Call(write)
        # What the source may yet get from writes that ended without an answer, or that wait.
        late = core.writers.doubtful()
        if core.counts(new):  # one for each that may come, as far as it holds so many
            for key in late:
                yield from enter(core, new, key)
            late = []
        if core.queue is not None:  # one for all of a key
            waiting = yield Call(core.queue.keys)
            late += {_native.canonical(key): key for key in waiting}.values()
        if late:
            yield from enter_many(core, new, late)
        rows = iter((yield Call(batches)))
        while (batch := (yield Call(next, (rows, _END)))) is not _END:
            yield from enter_many(core, new, batch)
            if on_batch is not None:
                on_batch(len(batch))
    except BaseException:
        core.filters = (current, None)
        raise
    core.filters = (new, None)
    core.copies.clear()  # they were the old one's
    core.observed.restart()
    return current


_END = object()
