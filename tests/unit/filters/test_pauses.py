"""While one thread does something long to a filter, the others have their turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter, CuckooFilter, RotatingBloomFilter, ScalableBloomFilter
from waiting import wait_until


class Ticker:
    """A thread that sleeps for a moment again and again, and notes when it woke."""

    def __init__(self) -> None:
        self.ticks = list[float]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            time.sleep(0.0005)
            self.ticks.append(time.perf_counter())

    def during(self, work: Callable[[], object]) -> tuple[float, int]:
        """How long the work took, and how often it woke in the first half of that: at the end it
        wakes anyway, as soon as the interpreter takes over again."""
        self.ticks.clear()
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        return seconds, sum(tick < started + seconds / 2 for tick in self.ticks)

    @contextmanager
    def running(self) -> Iterator[Ticker]:
        self._thread.start()
        assert wait_until(lambda: self.ticks, pause=0.001)
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    with Ticker().running() as ticker:
        yield ticker


def growing(filter: Any, ticker: Ticker) -> tuple[float, int]:
    """Seconds and ticks of the one add that makes it grow next."""
    before, key = filter.nbytes, 1 << 50
    while True:
        seconds, ticks = ticker.during(partial(filter.add, key))
        if filter.nbytes != before:
            return seconds, ticks
        key += 1
        if filter.fill_ratio < 0.94:  # soon
            filter.update(np.arange(key, key + 1000))
            key += 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [lambda: ScalableBloomFilter(1000), lambda: CuckooFilter(1000, grow=True)],
    ids=["scalable", "cuckoo"],
)
def test_one_add_that_grows(make: Callable[[], Any], ticker: Ticker) -> None:
    """A table of two million keys grows for tens of milliseconds, and stops nobody meanwhile."""
    filter = make()
    filter.update(np.arange(2_000_000))
    longest, ticks = max(growing(filter, ticker) for _ in range(4))
    assert ticks >= 3, f"{ticks} ticks in {longest} s"
    assert np.asarray(filter.contains_many(np.arange(0, 2_000_000, 100))).all()


@pytest.mark.slow
def test_one_add_that_rotates(ticker: Ticker) -> None:
    """So does the end of a generation, which goes through all of a table."""
    filter = RotatingBloomFilter(6_000_000, 1e-9, window=None, generations=2)
    filter.update(np.arange(2_999_999))
    seconds, ticks = ticker.during(lambda: filter.add(-1))
    assert ticks >= 3, f"{ticks} ticks in {seconds} s"
    assert -1 in filter
    assert 5 in filter


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [lambda: BloomFilter(1_000_000), lambda: ScalableBloomFilter(1000)],
    ids=["bloom", "scalable"],
)
def test_a_list(make: Callable[[], Any], ticker: Ticker) -> None:
    """A batch of objects needs the interpreter lock for each, and lets go of it now and then."""
    filter, keys = make(), list(range(100_000)) * 60
    for work in (filter.update, filter.contains_many):
        seconds, ticks = ticker.during(partial(work, keys))
        assert ticks >= 3, f"{ticks} ticks in {seconds} s"
    assert all(key in filter for key in range(0, 100_000, 100))


@pytest.mark.slow
def test_growing_in_small_batches() -> None:
    """Few keys are added with the interpreter lock held; when the table has to grow in the middle
    of them they go on without it, none is lost and none is taken twice."""
    arrays, lists, unasked = (CuckooFilter(1000, 1e-9, grow=True) for _ in range(3))
    keys = np.arange(400_000)
    new = 0
    for start in range(0, len(keys), 500):
        some = keys[start : start + 500]
        new += int(np.count_nonzero(arrays.add_many(some)))
        new += sum(lists.add_many(some.tolist()))
        unasked.update(some.tolist())
    assert new >= 2 * len(keys) - 2
    for filter in (arrays, lists, unasked):
        assert filter.info()["estimated_count"] == len(keys)
        assert np.asarray(filter.remove_many(keys)).all()
        assert filter.info()["estimated_count"] == 0
