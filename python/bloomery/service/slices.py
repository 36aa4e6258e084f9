"""Slices: work on the loop that may be long, cut so that other clients have their turn.

No request may hold up others for more than 50 ms, whatever it asks for. What is done on the loop is
done for some milliseconds, then others have their turn, then it goes on. Between two slices others
may see, and change, what is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")
SECONDS = 0.002
FEW = 64  # of anything, however long one takes, are done at once
_MOST = 4096
_QUICK = SECONDS / 4
_WAIT_COST = 5  # times as much may a batch take that waits: a round trip to Redis takes 1 to 2 ms


class Slice:
    """A share of the loop's time."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + SECONDS

    @property
    def over(self) -> bool:
        """Has it been used up?"""
        return time.perf_counter() >= self._until

    async def rest(self) -> None:
        """Let others have their turn if it is used up, and begin with the next."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SECONDS


async def batches(
    items: Sequence[_T], first: int = 4, most: int = _MOST
) -> AsyncIterator[Sequence[_T]]:
    """Cut items into batches: `first` so many, then as many as were done quickly before, up to
    `most`; others have their turn in between."""
    at, size, share = 0, first, Slice()
    while at < len(items):
        stopwatch = _Stopwatch()
        yield items[at : at + size]
        at += size
        spent, least = stopwatch.stop(), 1
        if stopwatch.waited:
            spent, least = spent / _WAIT_COST, min(first, FEW)
        if spent < _QUICK:
            size = min(2 * size, most)
        elif spent > SECONDS:
            size = max(size // 2, least)
        await share.rest()


class _Stopwatch:
    """The time that a batch takes from others.

    On a node a batch waits for the shared log, and others are served in the meantime. If the wait
    counted, each batch would soon be a single item: 600 names took 600 round trips to Redis. Of a
    batch that waited only the time counts that the loop's thread was on a processor. That includes
    the work for others, so a busy node must not make batches ever smaller.
    """

    __slots__ = ("_handle", "_processor", "_start", "waited")

    def __init__(self) -> None:
        self.waited = False  # has the loop served others since?
        self._handle = asyncio.get_running_loop().call_soon(self._note_wait)
        self._start, self._processor = time.perf_counter(), time.thread_time()

    def _note_wait(self) -> None:
        self.waited = True

    def stop(self) -> float:
        """Return the seconds."""
        self._handle.cancel()
        if self.waited:
            return time.thread_time() - self._processor
        return time.perf_counter() - self._start


async def gathered(items: Iterable[_T], chosen: Callable[[_T], bool]) -> list[_T]:
    """The chosen ones of any number of items; each takes well under a millisecond."""
    kept, share = list[_T](), Slice()
    for at, item in enumerate(items):
        if chosen(item):
            kept.append(item)
        if at % 8 == 0:
            await share.rest()
    return kept


async def let_go(items: list[Any]) -> None:
    """Empty a long list: to free hundreds of thousands of objects in one go takes long too."""
    share = Slice()
    while items:
        del items[-_MOST:]
        await share.rest()
