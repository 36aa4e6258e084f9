"""RotatingBloomFilter and the clock: seen within the window, and forgotten in time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomery
from bloomery import RotatingBloomFilter
from bloomery.errors import InvalidParameter, ReadOnlyFilter
from conftest import effort
from unit.clocks import Clock, timed
from unit.filters.together import beside


@pytest.mark.parametrize("generations", [1, 2, 3, 7, 8, 15, 16, 100, 254])
def test_the_edges_of_the_window(generations: int) -> None:
    """A key is seen until the window has passed, to the second; one generation later it is not."""
    window = 60.0 * generations
    for offset in (0.0, 1.0, 59.0):  # in its generation
        filter, clock = timed(window, generations)
        clock.now += offset
        assert filter.add("key")
        clock.now += window
        assert "key" in filter
        clock.now = 1_000_000.0 + window + 59.999
        assert "key" in filter
        clock.now = 1_000_000.0 + window + 60.0
        assert "key" not in filter
        assert filter.generation_of("key") is None
        assert filter.estimated_count == 0


@pytest.mark.parametrize(
    ("window", "generations"), [(10, 3), (0.1, 7), (1, 254), (604800, 254), (1 / 3, 9)]
)
def test_no_rounding_forgets_a_key(window: float, generations: int) -> None:
    """Where seconds do not divide, at a time of today, a key is still seen all the window long."""
    filter, clock = timed(window, generations, now=1.7e9 + 0.1, capacity=10)
    each = window / generations
    for _ in range(effort(100, 300, 20_000)):
        clock.now += each * 0.61
        added = clock.now
        filter.add("key")
        for share in (0.3, 0.99, 1.0):
            clock.now = added + window * share
            if clock.now - added > window:
                clock.now = math.nextafter(clock.now, 0)
            assert "key" in filter


def test_adding_again_makes_it_new() -> None:
    """A key that comes again is not new, and is remembered from its last coming on."""
    filter, clock = timed(80, 8)
    assert filter.add("key")
    for _ in range(20):
        clock.now += 75
        assert not filter.add("key")
        assert not filter.add_many(["key"])[0]
    clock.now += 80
    assert "key" in filter
    assert filter.estimated_count == 1
    clock.now += 10
    assert filter.add("key")


@pytest.mark.parametrize("error_rate", [0.1, 1e-6])
def test_a_burst_forgets_nothing(error_rate: float) -> None:
    """More keys than were planned for make it grow: all of the window are seen, at its rate."""
    filter, clock = timed(80, 8, capacity=100, error_rate=error_rate)
    for hour in range(9):
        filter.update(np.arange(1000) + 1000 * hour)
        clock.now += 8.5
        assert np.all(filter.contains_many(np.arange(1000 * (hour + 1))))
    assert filter.estimated_error_rate <= error_rate * 1.05
    clock.now += 90
    assert "key" not in filter
    assert (filter.estimated_count, filter.estimated_error_rate) == (0, 0)
    filter.clear()
    assert filter.nbytes == timed(80, 8, capacity=100, error_rate=error_rate)[0].nbytes


def test_a_long_pause_forgets_all_at_once() -> None:
    """After years without a question everything is forgotten, and the next key is at home."""
    filter, clock = timed(1, 10)
    filter.update(range(100))
    clock.now += 1e9
    assert not any(filter.contains_many(range(100)))
    assert filter.add("key")
    clock.now += 1
    assert "key" in filter
    clock.now += 0.2
    assert "key" not in filter


def test_a_clock_that_goes_back() -> None:
    """Nothing is forgotten while the clock is behind, and what is added then is remembered for
    longer, not shorter."""
    filter, clock = timed(80, 8)
    clock.now += 45
    filter.add("before")
    clock.now -= 1000
    filter.add("behind")
    assert "before" in filter
    assert "behind" in filter
    seen = filter.generation_of("behind")
    assert seen is not None
    assert (seen.age, seen.newest) == (0, 0.0)
    clock.now += 80
    assert "behind" in filter
    clock.now = 1_000_045.0 + 80
    assert "before" in filter
    clock.now += 10
    assert "before" not in filter


def test_a_clock_that_tells_no_seconds() -> None:
    """A clock gone wrong is an InvalidParameter and changes nothing; another can be set."""
    filter, clock = timed(80, 8)
    filter.add("key")
    before = filter.to_bytes()
    for wrong in (math.nan, math.inf, 1.8e18, -1e300):
        clock.now = wrong
        for ask in (lambda: "key" in filter, lambda: filter.add(1), filter.rotate, filter.info):
            with pytest.raises(InvalidParameter, match="clock"):
                ask()
    assert filter.to_bytes() == before
    with pytest.raises(InvalidParameter, match="clock is 5"):
        filter.set_clock(5)  # type: ignore[arg-type]
    filter.set_clock(Clock(1_000_000.0))
    assert "key" in filter
    filter.set_clock(None)  # the machine's, by which all that is long past
    assert "key" not in filter


def test_rotate() -> None:
    """A new generation can be begun before its time: as many as there are forget a key."""
    filter, clock = timed(80, 8)
    filter.add("key")
    for age in range(9):
        seen = filter.generation_of("key")
        assert seen is not None
        assert seen.age == age
        clock.now += 1
        filter.rotate()
    assert "key" not in filter
    filter.add("next")
    clock.now += 9.9
    seen = filter.generation_of("next")
    assert seen is not None
    assert seen.age == 0  # the generation begun by hand has its full time
    clock.now += 0.1
    seen = filter.generation_of("next")
    assert seen is not None
    assert seen.age == 1


def test_time_passes_while_it_is_saved(tmp_path: Path) -> None:
    """Loaded or mapped later, it has forgotten what it would have forgotten had it run on."""
    path = tmp_path / "seen"
    filter, clock = timed(80, 8)
    filter.add("old")
    clock.now += 45
    filter.add("new")
    filter.save(path)
    for later in (0, 30, 35, 44.9, 45, 79, 80, 84.9, 85, 1e6):
        clock.now = 1_000_045.0 + later
        for how in ({}, {"mmap": True}, {"mmap": True, "verify": True}):
            loaded: Any = bloomery.open(path, **how)
            loaded.set_clock(clock)
            assert ("old" in loaded) == (later < 45)
            assert ("new" in loaded) == (later < 85)
            seen = loaded.generation_of("new")
            assert (seen is not None) == (later < 85)
            if seen is not None:
                assert seen.newest <= later <= seen.oldest
            copied = loaded.copy()
            assert not copied.read_only
            assert ("old" in copied, "new" in copied) == (later < 45, later < 85)
    assert RotatingBloomFilter.load(path).window == 80


def test_a_map_refuses_changes(tmp_path: Path) -> None:
    """A mapped filter forgets by the clock and refuses to be changed; its file stays as it was."""
    path = tmp_path / "seen"
    filter, clock = timed(80, 8)
    filter.update(range(50))
    filter.save(path)
    before = path.read_bytes()
    mapped: Any = bloomery.open(path, mmap=True)
    mapped.set_clock(clock)
    clock.now += 50
    for change in (mapped.rotate, mapped.clear, lambda: mapped.add(5), lambda: mapped.update([5])):
        with pytest.raises(ReadOnlyFilter):
            change()
    assert all(mapped.contains_many(range(50)))
    clock.now += 50
    assert not any(mapped.contains_many(range(50)))
    assert path.read_bytes() == before


def test_copies_have_their_clock() -> None:
    """A copy goes by the same clock; one from bytes goes by the machine's until it is told."""
    filter, clock = timed(80, 8)
    filter.add("key")
    other, far = filter.copy(), RotatingBloomFilter.from_bytes(filter.to_bytes())
    assert other == filter
    assert "key" not in far  # 1970 is long past
    clock.now += 30
    other.add("later")
    clock.now += 60
    assert "key" not in other
    assert "later" in other
    assert "later" not in filter


def test_readers_beside_a_writer() -> None:
    """Whoever asks while it rotates and grows misses no key of the window."""
    stays = np.arange(500)
    for _ in range(effort(1, 3, 100)):
        filter, clock = timed(80, 8, capacity=100, error_rate=0.01)

        def write(filter: RotatingBloomFilter = filter, clock: Clock = clock) -> None:
            for start in range(10**6, 10**6 + 240_000, 20_000):
                filter.update(np.arange(start, start + 20_000))
                filter.update(stays)
                clock.now += 7

        def batches(filter: RotatingBloomFilter = filter) -> None:
            assert np.all(filter.contains_many(stays))

        def singles(filter: RotatingBloomFilter = filter) -> None:
            assert all(key in filter for key in range(500))

        filter.update(stays)
        beside(write, batches, singles, filter.info)
