"""ScalableBloomFilter: it takes what it is given, within its error rate, and loses nothing."""

from __future__ import annotations

import itertools
import math
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomery
from bloomery import BloomFilter, ScalableBloomFilter
from bloomery.errors import IncompatibleFilters, InvalidParameter, ReadOnlyFilter
from conftest import effort
from unit.filters.colliding import int_of
from unit.filters.together import beside

WRONG: list[tuple[str, Any]] = [
    *(("initial_capacity", v) for v in [0, -1, 1.5, math.nan, "9", None, True, 2**41, 10**400]),
    *(("error_rate", v) for v in [0, 1, 0.6, 1e-10, -0.1, math.nan, "x", None, True, []]),
    *(("growth", v) for v in [0, 1, 1.1, 2.1, -2, math.nan, math.inf, "2", None, True, 10**400]),
    *(("hasher", v) for v in ["md5", b"xxh3", None]),
    *(("seed", v) for v in [-1, 2**64, 1.5, "0", None]),
]


def has_all(filter: ScalableBloomFilter, count: int) -> bool:
    """Does it hold every int below `count`?"""
    return bool(np.all(filter.contains_many(np.arange(count))))


def test_two_capacities_are_refused() -> None:
    """They are two words for the same: none of them is left out without a word."""
    with pytest.raises(InvalidParameter, match="initial_capacity is 5000 and capacity 100"):
        ScalableBloomFilter(5000, capacity=100)


def test_a_new_one_is_empty() -> None:
    """It has room for its first keys, and says what it was made with."""
    filter = ScalableBloomFilter(1000, 0.01)
    assert filter == ScalableBloomFilter()
    assert (filter.capacity, filter.error_rate, filter.hasher, filter.seed) == (
        1000,
        0.01,
        "xxh3",
        0,
    )
    assert (filter.estimated_count, filter.fill_ratio, filter.estimated_error_rate) == (0, 0, 0)
    assert not filter.saturated
    assert "anything" not in filter
    size = filter.nbytes
    filter.update(range(1000))
    assert filter.nbytes == size


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: str(v)[:20])
def test_wrong_parameters(name: str, value: Any) -> None:
    """A parameter out of its range is one InvalidParameter that names it and shows the value."""
    with pytest.raises(InvalidParameter) as caught:
        ScalableBloomFilter(**{name: value})
    assert name.removeprefix("initial_") in str(caught.value)
    assert len(str(caught.value)) < 200


def test_unusual_numbers_are_taken() -> None:
    """Whole floats, fractions and NumPy's numbers are the numbers they stand for."""
    step: Any = Fraction(3, 2)
    odd: Any = ScalableBloomFilter(np.int64(50), np.float32(0.25), growth=step)
    assert odd == ScalableBloomFilter(50.0, 0.25, growth=1.5)  # type: ignore[arg-type]
    assert ScalableBloomFilter(10, growth=2) == ScalableBloomFilter(10, growth=2.0)


@pytest.mark.parametrize("growth", [1.125, 1.3, 2.0])
@pytest.mark.parametrize("error_rate", [0.5, 0.1, 0.01, 1e-6, 1e-9])
def test_it_grows_by_small_steps(error_rate: float, growth: float) -> None:
    """However it grows nothing is lost, its memory follows the keys, and it stays in its rate."""
    filter = ScalableBloomFilter(1, error_rate, growth=growth)
    sizes = [filter.nbytes]
    for key in range(5000):
        filter.add(key)
        if filter.nbytes != sizes[-1]:
            sizes.append(filter.nbytes)
            assert has_all(filter, key + 1)
            assert filter.estimated_error_rate <= error_rate
    assert not filter.saturated
    assert filter.estimated_count <= 5000
    assert filter.estimated_count >= 5000 * (1 - error_rate) - 50
    late = [new / old for old, new in itertools.pairwise(sizes) if old > 2000]
    assert max(late) < 1.6 * growth  # wider slots come with some steps
    assert len(sizes) > (8 if growth == 2 else 15)


def test_larger_steps_are_fewer() -> None:
    """`growth` is how much larger it becomes at a time: 2 in far fewer steps than 1.125."""
    steps = {}
    for growth in (1.125, 2.0):
        filter, sizes = ScalableBloomFilter(100, growth=growth), set()
        for start in range(0, 50_000, 50):
            filter.update(np.arange(start, start + 50))
            sizes.add(filter.nbytes)
        steps[growth] = len(sizes)
        assert filter.info()["growth"] == growth
    assert steps[2.0] * 3 < steps[1.125]


@pytest.mark.parametrize("error_rate", [0.1, 1e-4])
def test_growing_within_a_batch(error_rate: float) -> None:
    """A batch that makes it grow, many times over, gives the very filter that single keys give."""
    keys = np.arange(3000)
    filters = [ScalableBloomFilter(3, error_rate) for _ in range(4)]
    new = filters[0].add_many(keys)
    filters[1].update(keys.tolist())
    assert [filters[2].add(key) for key in keys.tolist()] == list(new)
    filters[3].update(str(key) for key in range(0))
    filters[3].update(iter(keys.tolist()))
    assert filters[0] == filters[1] == filters[2] == filters[3]
    lines = b"".join(b"%d\n" % key for key in keys.tolist())
    by_lines, by_text = ScalableBloomFilter(3, error_rate), ScalableBloomFilter(3, error_rate)
    by_lines.add_lines(lines)
    by_text.update(np.array([str(key) for key in keys.tolist()]))
    assert by_lines == by_text


def test_a_key_is_new_once() -> None:
    """A key added again is not new and takes no room, whatever it has grown to since."""
    filter = ScalableBloomFilter(10, 1e-6)
    assert filter.add("key")
    assert not filter.add("key")
    filter.update(range(5000))
    before = filter.copy()
    assert not filter.add("key")
    assert not np.any(filter.add_many(np.arange(5000)))
    assert filter == before


def test_clearing_goes_back_to_the_start() -> None:
    """A cleared filter is as it was made, in size and in every byte, and grows again."""
    filter = ScalableBloomFilter(100, 0.02, growth=1.5, hasher="murmur3", seed=3)
    filter.update(range(10_000))
    filter.clear()
    assert filter == ScalableBloomFilter(100, 0.02, growth=1.5, hasher="murmur3", seed=3)
    filter.update(range(10_000))
    assert has_all(filter, 10_000)


def test_copies_grow_apart() -> None:
    """What a copy is given, and how it grows, the other does not see."""
    filter = ScalableBloomFilter(10, 1e-6)
    filter.update(range(100))
    other = filter.copy()
    assert other == filter
    other.update(range(100, 5000))
    assert filter.estimated_count == 100
    assert not np.any(filter.contains_many(np.arange(100, 5000)))
    assert has_all(other, 5000)


def test_what_it_shows() -> None:
    """repr and info tell how it was made, how full it is, and what a key takes now."""
    filter = ScalableBloomFilter(50, 0.02, growth=1.5)
    assert repr(filter) == (
        f"<ScalableBloomFilter(capacity=50, error_rate=0.02, growth=1.5): ~0 keys, "
        f"{filter.nbytes:,} bytes>"
    )
    filter.update(range(20_000))
    info = filter.info()
    assert info["growth"] == 1.5
    assert info["capacity"] == 50
    assert info["bits_per_key"] == 8 * filter.nbytes / info["estimated_count"] < 25
    assert 0.4 < info["fill_ratio"] <= 1
    assert ScalableBloomFilter(50).info()["bits_per_key"] == 8 * ScalableBloomFilter(50).nbytes
    secret = ScalableBloomFilter(5, hasher="siphash", seed=123456789)
    assert "123456789" not in repr(secret)
    assert secret.info()["seed"] == "secret"


def test_it_cannot_be_merged() -> None:
    """Unions and intersections are refused, whatever the sizes, and the error says what to do."""
    one, grown = ScalableBloomFilter(10), ScalableBloomFilter(10)
    grown.update(range(1000))
    before = grown.copy()
    for other in (one, grown, grown.copy()):
        for merge in (one.union, one.intersection, grown.__ior__, grown.__iand__, one.__or__):
            with pytest.raises(IncompatibleFilters, match="add the keys of both to one"):
                merge(other)
    assert grown == before
    with pytest.raises(IncompatibleFilters, match="cannot be made"):
        one | BloomFilter(10)
    with pytest.raises(TypeError):
        one < grown  # type: ignore[operator]  # noqa: B015
    assert one != grown
    assert one != BloomFilter(10)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_it_goes_on_growing_after_a_journey(tmp_path: Path) -> None:
    """Saved in the midst of its growth and loaded, it grows as it would have done."""
    filter, path = ScalableBloomFilter(5, 0.01, growth=1.25), tmp_path / "grown"
    stayed = filter
    for start in range(0, 4000, 500):
        keys = np.arange(start, start + 500)
        filter.update(keys)
        if stayed is not filter:
            stayed.update(keys)
        assert filter == stayed
        filter.save(path)
        mapped: Any = bloomery.open(path, mmap=True)
        with pytest.raises(ReadOnlyFilter):
            mapped.update(keys)
        travelled = (
            ScalableBloomFilter.load(path),
            mapped.copy(),
            pickle.loads(pickle.dumps(filter)),
        )
        assert all(other == filter for other in travelled)
        filter = travelled[start // 500 % 3]
    assert has_all(filter, 4000)


def test_keys_chosen_to_collide() -> None:
    """Keys made to meet in one bucket neither fill the memory nor are lost: some share an entry. By
    another hash they are keys like any."""
    keys = [int_of(0x5A << 56 | (i * 0x9E37 % 512) << 48 | i % 4) for i in range(512)]
    filter, safe = ScalableBloomFilter(1000), ScalableBloomFilter(1000, hasher="siphash", seed=1)
    size = filter.nbytes
    for key in keys:
        filter.add(key)
    safe.update(keys)
    assert all(filter.contains_many(keys))
    assert filter.estimated_count < 200 < safe.estimated_count
    assert filter.nbytes == size
    filter.update(range(5000))
    assert all(filter.contains_many(keys))
    assert has_all(filter, 5000)


def test_readers_beside_a_writer() -> None:
    """Whoever asks while it grows, by single keys or batches, misses no key that was there."""
    keys = np.arange(300)
    for _ in range(effort(2, 6, 100)):
        filter = ScalableBloomFilter(10, 0.01)
        filter.update(keys)

        def grow(filter: ScalableBloomFilter = filter) -> None:
            for start in range(1000, 300_000, 50_000):
                filter.update(np.arange(start, start + 50_000))

        def batches(filter: ScalableBloomFilter = filter) -> None:
            assert np.all(filter.contains_many(keys))

        def singles(filter: ScalableBloomFilter = filter) -> None:
            assert all(key in filter for key in range(300))

        def figures(filter: ScalableBloomFilter = filter) -> None:
            assert filter.info()["estimated_error_rate"] <= 0.01
            assert np.all(filter.copy().contains_many(keys))

        beside(grow, batches, singles, figures)
        assert np.all(filter.contains_many(np.arange(1000, 300_000)))


# Adds keys in small batches and prints, from 8 MB on, the largest ratio of the memory that was ever
# taken to the size of the filter. The peak only rises, so each check covers all growth before it.
GROWTH_MEMORY = """
import sys
import numpy as np
import bloomery

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

kind, options = sys.argv[1], eval(sys.argv[2])
filter = getattr(bloomery, kind)(1000, 0.01, **options)
filter.update(np.arange(50_000))
base, worst = status("VmRSS"), 0.0
for start in range(0, 9_500_000, 50_000):
    filter.update(np.arange(start, start + 50_000))
    if filter.nbytes >= 8 << 20:
        worst = max(worst, (status("VmHWM") - base) / filter.nbytes)
print(worst)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and memory is given back there")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ScalableBloomFilter", {}),
        ("ScalableBloomFilter", {"growth": 2.0}),
        ("CuckooFilter", {"grow": True}),
    ],
)
def test_growth_takes_at_most_half_as_much_memory_again(kind: str, options: dict[str, Any]) -> None:
    """The table that grows gives its memory back as the larger one takes it."""
    command = [sys.executable, "-c", GROWTH_MEMORY, kind, repr(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.9 < float(done.stdout) <= 1.5


def test_copies_and_files_made_while_it_grows_are_whole(tmp_path: Path) -> None:
    """Growth gives memory back that a copy, a save or `to_bytes` may be reading. Only tables from
    one megabyte on are given back."""
    filter, known = ScalableBloomFilter(1000, 0.01), np.arange(1_200_000)
    filter.update(known)
    assert filter.nbytes > 2 << 20

    def grow() -> None:
        for start in range(1_200_000, 3_200_000, 100_000):
            filter.update(np.arange(start, start + 100_000))

    def copy() -> None:
        assert np.all(filter.copy().contains_many(known))

    def save() -> None:
        filter.save(tmp_path / "saved")
        assert np.all(ScalableBloomFilter.load(tmp_path / "saved").contains_many(known))

    def pack() -> None:
        assert np.all(ScalableBloomFilter.from_bytes(filter.to_bytes()).contains_many(known))

    beside(grow, copy, save, pack)
    assert has_all(filter, 3_200_000)


def test_growth_is_the_same_however_keys_arrive(tmp_path: Path) -> None:
    """Batches of any size, copies, files and views that share the memory lead to the same bytes, so
    a log that is replayed ends where the filter was."""
    whole, parts = ScalableBloomFilter(1000, 0.01), ScalableBloomFilter(1000, 0.01)
    keys = np.arange(2_500_000)
    whole.update(keys)
    for number, part in enumerate(np.array_split(keys, 23)):
        shared = memoryview(parts._sections()[0]) if number % 3 == 0 else None
        parts.update(part)
        if number % 5 == 1:
            parts.save(tmp_path / "part")
            parts = ScalableBloomFilter.load(tmp_path / "part")
        elif number % 5 == 3:
            parts = parts.copy()
        del shared
    assert parts.to_bytes() == whole.to_bytes()
    assert has_all(parts, len(keys))
