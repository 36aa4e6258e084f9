"""Time slicing: splits long work on the control plane's event loop, so that no request delays other
clients for more than 50 ms. Workers slice their own work (`crates/server/src/session.rs`).

Work runs for some milliseconds, then the loop serves other clients, then the work continues.
Between two slices other clients can see and change the filters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")
SECONDS = 0.002
FEW = 64  # items of any kind that run in one slice
_MOST = 4096
_QUICK = SECONDS / 4
_WAIT_COST = 5  # a batch that waits may last 5 times as long: a round trip to Redis is 1 to 2 ms


class Slice:
    """A share of the loop's time."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + SECONDS

    @property
    def over(self) -> bool:
        """Whether the slice is used up."""
        return time.perf_counter() >= self._until

    async def rest(self) -> None:
        """If the slice is used up, serve other clients and start the next slice."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SECONDS


async def batches(
    items: Sequence[_T], first: int = 4, most: int = _MOST
) -> AsyncIterator[Sequence[_T]]:
    """Split items into batches. The first has `first` items. Later sizes follow the time that the
    batch before took, up to `most`. Other clients are served in between."""
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
    """Measures how long a batch delays other clients.

    On a node a batch waits for the shared log, and the loop serves other clients in the meantime.
    If the wait counted, each batch would soon be a single item: 600 names took 600 round trips to
    Redis. For a batch that waited, only the processor time of the loop's thread counts. It includes
    work for other clients, so a busy node must not shrink batches without end.
    """

    __slots__ = ("_handle", "_processor", "_start", "waited")

    def __init__(self) -> None:
        self.waited = False  # the loop has served other clients since
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
    """Return the items for which `chosen` is true. Each call must take well under a millisecond."""
    kept, share = list[_T](), Slice()
    for at, item in enumerate(items):
        if chosen(item):
            kept.append(item)
        if at % 8 == 0:
            await share.rest()
    return kept


async def let_go(items: list[Any]) -> None:
    """Empty a long list in slices: freeing hundreds of thousands of objects takes long, too."""
    share = Slice()
    while items:
        del items[-_MOST:]
        await share.rest()
