"""RotatingBloomFilter: windows, generations, and rotation by fill."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bloomery import RotatingBloomFilter
from bloomery.errors import IncompatibleFilters, InvalidParameter
from unit.clocks import Clock, timed

WRONG: list[tuple[str, Any]] = [
    *(("capacity", v) for v in [0, -1, 1.5, math.nan, "9", None, True, 2**41, 10**400]),
    *(("error_rate", v) for v in [0, 1, 0.6, 1e-10, -0.1, math.nan, "x", None, True, []]),
    *(("window", v) for v in [0, -1, 1e-4, 1e12, 10**400, math.nan, math.inf, True, [], b"7d"]),
    *(("window", v) for v in ["", "d", "7", "7 days", "-7d", ".d", "1.2.3s", "1e3s", "0s", "7D"]),
    *(("window", v) for v in [timedelta(0), timedelta(-1), timedelta.max * 0.9, "9" * 400 + "d"]),
    *(("generations", v) for v in [0, -1, 255, 1.5, 8.0, "8", None, True, 10**400]),
    *(("clock", v) for v in [5, "now", [], lambda: math.nan, lambda: math.inf]),
    *(("clock", v) for v in [lambda: 1.8e12, lambda: 1.8e18, lambda: -1e300]),
    *(("hasher", v) for v in ["md5", b"xxh3", None]),
    *(("seed", v) for v in [-1, 2**64, 1.5, "0", None]),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: str(v)[:20])
def test_wrong_parameters(name: str, value: Any) -> None:
    """A parameter out of its range is one InvalidParameter that names it and shows the value."""
    with pytest.raises(InvalidParameter) as caught:
        RotatingBloomFilter(**{"capacity": 100, name: value})
    assert name in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("15m", 900), ("15min", 900), ("12h", 43200), ("7d", 604800)),
        *(("2w", 1209600), (" 1.5 h ", 5400), ("0.5s", 0.5), (timedelta(days=1), 86400)),
        *((3, 3), (0.25, 0.25), (np.int64(60), 60), (np.float32(0.5), 0.5), (Fraction(1, 2), 0.5)),
    ],
    ids=str,
)
def test_windows(text: Any, seconds: float) -> None:
    """A window is text with a unit, a timedelta, or seconds."""
    filter = RotatingBloomFilter(10, window=text)
    assert filter.window == filter.info()["window"] == seconds
    assert type(filter.window) is float


def test_generation_of() -> None:
    """It tells how many generations ago a key was last added, and between which times."""
    filter, clock = timed(80, 8)
    clock.now += 4
    filter.add("key")
    for passed in range(90):
        clock.now = 1_000_004.0 + passed
        seen = filter.generation_of("key")
        if passed >= 86:
            assert seen is None
            continue
        assert seen is not None
        assert seen.age == (4 + passed) // 10
        assert seen.newest <= passed <= seen.oldest
        assert seen.oldest - seen.newest <= 10
    assert filter.generation_of("other") is None


@pytest.mark.parametrize(
    ("window", "added", "asked", "says"),
    [
        ("4h", 0, 0, "seen in the last 0 s"),
        ("4h", 0, 0.2, "seen in the last 1 s"),
        ("4h", 60, 900, "seen in the last 15 min"),
        ("4h", 0, 1800, "seen 0 s to 30 min ago"),
        ("7d", 75_000, 248_400, "seen 2 d to 2.88 d ago"),
    ],
)
def test_generations_in_words(window: str, added: float, asked: float, says: str) -> None:
    """A generation as text is what a person would say."""
    clock = Clock(0.0)
    filter = RotatingBloomFilter(10, 1e-9, window=window, generations=8, clock=clock)
    clock.now = added
    filter.add("key")
    clock.now = asked
    assert str(filter.generation_of("key")) == says


@pytest.mark.parametrize("generations", [1, 3, 8, 254])
@pytest.mark.parametrize("capacity", [1, 10, 100, 1000])
def test_by_fill(capacity: int, generations: int) -> None:
    """Without a window keys turn the generations over: the last `capacity` keys are always seen,
    and those from long before are forgotten."""
    filter = RotatingBloomFilter(capacity, 1e-9, window=None, generations=generations)
    assert filter.window is None
    each = math.ceil(capacity / generations)
    for key in range(3 * capacity + 3000):
        assert filter.add(key)
        last = np.arange(max(0, key - capacity + 1), key + 1)
        if key % 100 == 0 or key < 30:
            assert np.all(filter.contains_many(last))
            assert key - (generations + 1) * each not in filter
            assert filter.estimated_count <= (generations + 1) * each
    assert filter.nbytes < 20 * (generations + 1) * each + 1000


def test_by_fill_a_batch_turns_generations_too() -> None:
    """A batch larger than the filter leaves its last keys, as single keys would."""
    filters = [RotatingBloomFilter(1000, 1e-9, window=None, generations=4) for _ in range(3)]
    keys = np.arange(10_000)
    filters[0].update(keys)
    filters[1].update(keys.tolist())
    for key in keys.tolist():
        filters[2].add(key)
    assert filters[0] == filters[1] == filters[2]
    assert np.all(filters[0].contains_many(keys[-1000:]))
    assert not np.any(filters[0].contains_many(keys[:-1250]))
    filters[0].add("again")
    generation = filters[0].generation_of("again")
    assert generation is not None
    assert math.isnan(generation.oldest)
    assert str(generation) == "seen in the current generation"
    filters[0].rotate()
    assert str(filters[0].generation_of("again")) == "seen 1 generation ago"
    filters[0].rotate()
    assert str(filters[0].generation_of("again")) == "seen 2 generations ago"


def test_by_fill_keys_that_come_again_are_kept() -> None:
    """Keys seen again in the current generation do not turn it over; those of older ones do."""
    filter = RotatingBloomFilter(80, 1e-9, window=None, generations=8)
    for _ in range(50):
        filter.update(range(9))
    assert filter.info()["generation_count"] == 9
    for key in range(1000):
        filter.add(key)
        filter.add("stays")
        assert "stays" in filter


def test_clear() -> None:
    """A cleared filter has its first size; the generation that runs goes on."""
    filter, clock = timed(80, 8)
    size = filter.nbytes
    filter.update(range(20_000))
    clock.now += 15
    filter.clear()
    assert filter.nbytes == size
    assert not any(filter.contains_many(range(1000)))
    filter.add("key")
    clock.now += 80
    assert "key" in filter


def test_what_it_shows() -> None:
    """repr and info tell window and generations, and how far the current one is."""
    filter, clock = timed(90 * 60, 9)
    filter.update(range(10))
    clock.now += 601
    filter.add(10)
    info = filter.info()
    assert (info["window"], info["generations"]) == (5400, 9)
    assert (info["generation_count"], info["estimated_count"]) == (1, 11)
    assert info["generation_started"] == 1_000_600
    assert "window='90min', generations=9" in repr(filter)
    assert "window=None" in repr(RotatingBloomFilter(10, window=None))
    assert "window" not in repr(RotatingBloomFilter(10))
    assert RotatingBloomFilter(10, window=None).info()["window"] is None


def test_it_cannot_be_merged() -> None:
    """Unions and intersections are refused, and the error says what to do."""
    one, other = timed(80, 8)[0], timed(80, 9)[0]
    for a, b in ((one, other), (one, one.copy()), (one, one)):
        for merge in (a.union, a.intersection, a.__ior__, a.__iand__):
            with pytest.raises(IncompatibleFilters, match="add the keys of both to one"):
                merge(b)
    assert one != other
