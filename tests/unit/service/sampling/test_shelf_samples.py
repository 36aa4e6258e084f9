"""What the shelf tells of a filter at little cost, and when it says that one is nearly full."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bloomery import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    DeletableBloomFilter,
    FilterBank,
    RotatingBloomFilter,
    ScalableBloomFilter,
    StaticFilter,
    _native,
)
from bloomery.filters.redisbloom import RedisBloomFilter, RedisCuckooFilter
from conftest import first_fast
from unit.service.sampling.shelving import added, removed

KEYS = 300_000  # so that the larger ones are looked at in part
MADE: list[Any] = [
    lambda: BloomFilter(KEYS, 0.01),
    lambda: BloomFilter(KEYS, 0.001, layout="classic"),
    lambda: ScalableBloomFilter(1000, 0.01),
    lambda: CountingBloomFilter(KEYS, 0.01),
    lambda: CountingBloomFilter(KEYS, 0.01, counter_bits=8),
    lambda: DeletableBloomFilter(KEYS, 0.01),
    lambda: CuckooFilter(KEYS, 0.01),
    lambda: RotatingBloomFilter(KEYS, 0.01, window=None),
    lambda: RedisBloomFilter(0.01, 1000, 2),
    lambda: RedisCuckooFilter(KEYS),
]


@pytest.mark.parametrize("make", first_fast(MADE))
def test_a_sample_tells_what_the_whole_filter_does(make: Any) -> None:
    """Count, fill and error rate from a part are those of the whole, within what a part can tell;
    and random keys are found as often as that says."""
    filter, shelf = make(), _native.Shelf()
    shelf.put(b"f", filter, 1)
    keys = [f"key {n}" for n in range(KEYS)]
    for start in range(0, KEYS, 50_000):
        added(shelf, b"f", keys[start : start + 50_000])
    known = filter.info()
    probes, hits, samples = 0, 0, []
    for seed in range(40):
        sample = shelf.sample(b"f", 2000, seed)
        assert sample is not None
        samples.append(sample)
        probes, hits = probes + 2000, hits + (sample[8] or 0)
    items, adds, checks, maybes, fill, rate, count, nbytes, _ = samples[0]
    assert (adds, checks, maybes) == (KEYS, 0, 0)
    assert items == pytest.approx(KEYS, rel=0.01)
    assert nbytes == pytest.approx(filter.nbytes, rel=0.01)
    assert fill == pytest.approx(known["fill_ratio"], rel=0.02)
    assert rate == pytest.approx(known["estimated_error_rate"], rel=0.2)
    assert count == pytest.approx(known["estimated_count"], rel=0.02)
    mean = math.fsum(sample[5] for sample in samples) / len(samples)
    assert mean == pytest.approx(known["estimated_error_rate"], rel=0.05)
    spread = math.sqrt(probes * mean * (1 - mean))
    assert abs(hits - probes * mean) < 5 * spread + 0.1 * probes * mean


def test_a_sample_of_what_has_none() -> None:
    """No filter, no sample; a bank has keys and bytes, and nothing that random keys could tell."""
    shelf = _native.Shelf()
    assert shelf.sample(b"none", 10, 1) is None
    shelf.put(b"loading", BloomFilter(1), 1, loading=True)
    assert shelf.sample(b"loading", 10, 1) is None
    shelf.put(b"bank", FilterBank(keys_per_filter=100), 2)
    added(shelf, b"bank", ["alice\ta", "alice\tb"])
    sample = shelf.sample(b"bank", 10, 1)
    assert sample is not None
    assert sample[0] == sample[6] == 2
    assert math.isnan(sample[4])
    assert math.isnan(sample[5])
    assert sample[8] is None
    shelf.put(b"empty", BloomFilter(100), 3)
    assert shelf.sample(b"empty", 100, 1) == (0, 0, 0, 0, 0.0, 0.0, 0.0, BloomFilter(100).nbytes, 0)


def test_probes_are_other_keys_each_time() -> None:
    """Two seeds ask for different keys, one seed for the same."""
    shelf, full = _native.Shelf(), BloomFilter(1000, 0.2)
    full.update(range(2000))
    shelf.put(b"f", full, 1)
    found = [shelf.sample(b"f", 1000, seed) for seed in range(20)]
    assert len({one[8] for one in found if one}) > 5
    assert found == [shelf.sample(b"f", 1000, seed) for seed in range(20)]


@pytest.mark.parametrize("several", [1, 7, 1000])
def test_a_threshold_is_told_once_when_it_is_reached(several: int) -> None:
    """Not before, not twice; and again when a new threshold is set."""
    shelf, filter = _native.Shelf(), ScalableBloomFilter(1000)
    shelf.put(b"f", filter, 7, threshold=500)
    keys, told = list(range(1000)), list[int]()
    for start in range(0, 1000, several):
        added(shelf, b"f", keys[start : start + several])
        reached = shelf.take_reached()
        assert reached == ([] if told or start + several < 500 else [7]) or several == 1
        told += reached
    assert told == [7]
    shelf.put(b"f", filter, 7, items=1000, threshold=1001)
    added(shelf, b"f", ["one more", "and another"])
    assert shelf.take_reached() == [7]


@pytest.mark.parametrize("make", [MADE[0], MADE[2], MADE[3], MADE[5], MADE[6]])
@pytest.mark.parametrize("several", [1, 64])
def test_a_limit_holds_for_every_kind(make: Any, several: int) -> None:
    """New keys beyond it are refused, those before it are in, and known ones are still taken."""
    shelf = _native.Shelf()
    shelf.put(b"f", make(), 1, limit=100)
    keys = [f"k{n}" for n in range(200)]
    new = 0
    for start in range(0, 200, several):
        answers, refused = added(shelf, b"f", keys[start : start + several])
        new += answers.count(1)
        assert (refused is not None) == (start + several > 100)
    assert new == 100
    assert added(shelf, b"f", keys[:5]) == (bytes(5), None)
    assert shelf.contains(b"f", keys[:100]) == b"\x01" * 100


def test_copies_beyond_a_limit_are_counted() -> None:
    """A key that is added twice is removed twice, in a full filter too: else the second removal
    would take away what another added."""
    shelf = _native.Shelf()
    shelf.put(b"f", CountingBloomFilter(1000), 1, limit=1)
    assert [added(shelf, b"f", ["a"])[0] for _ in range(3)] == [b"\x01", b"\x00", b"\x00"]
    assert shelf.count(b"f", "a") == 3
    assert removed(shelf, b"f", ["a"])[0] == b"\x01"
    assert shelf.contains(b"f", ["a"]) == b"\x01"


@pytest.mark.parametrize("make", MADE)
def test_every_batch_is_taken(make: Any) -> None:
    """A list, an array and Arrow columns of the same keys have the same answers."""
    texts = [f"t{n // 2}" for n in range(1000)]
    shelf = _native.Shelf()
    shelf.put(b"list", make(), 1)
    shelf.put(b"array", make(), 2)
    shelf.put(b"arrow", make(), 3)
    batches = {b"list": texts, b"array": np.array(texts), b"arrow": pa.chunked_array([texts])}
    outcomes = {name: added(shelf, name, batch) for name, batch in batches.items()}
    assert outcomes[b"list"] == outcomes[b"array"] == outcomes[b"arrow"]
    for name, batch in batches.items():
        assert shelf.contains(name, batch) == b"\x01" * 1000


def test_a_built_filter_is_sampled_too() -> None:
    """One that was built whole has its rate and takes no key."""
    shelf = _native.Shelf()
    shelf.put(b"s", StaticFilter.build(range(10_000), 0.01), 1, items=10_000)
    sample = shelf.sample(b"s", 100_000, 1)
    assert sample is not None
    assert sample[8] == pytest.approx(100_000 * sample[5], rel=0.2)
