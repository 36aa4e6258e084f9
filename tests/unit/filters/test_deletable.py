"""DeletableBloomFilter: what can be removed, what cannot, and that no other key is ever lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bloomery import DeletableBloomFilter, sizing
from bloomery.errors import IncompatibleFilters, InvalidParameter

LINE_REGIONS = (16, 32, 64, 128)


def with_regions(
    each: int, capacity: int = 20_000, error_rate: float = 0.01, **options: Any
) -> DeletableBloomFilter:
    """An empty filter with so many regions in a line."""
    lines = sizing.deletable_plan(capacity, error_rate).num_bits // 512
    filter = DeletableBloomFilter(capacity, error_rate, regions=lines * each * 7 // 8, **options)
    assert filter.regions == filter.num_bits // 512 * each
    return filter


@pytest.mark.parametrize("each", LINE_REGIONS)
@pytest.mark.parametrize("error_rate", [0.1, 0.01, 1e-4])
def test_it_is_made_as_planned(each: int, error_rate: float) -> None:
    """A filter's figures are those of its plan, and what it was asked for."""
    filter = with_regions(each, 12_345, error_rate, hasher="murmur3", seed=7)
    plan = sizing.deletable_plan(12_345, error_rate, regions=filter.regions)
    for name in ("capacity", "error_rate", "num_bits", "num_hashes", "lines_per_key", "nbytes"):
        assert getattr(filter, name) == getattr(plan, name), name
    assert (filter.hasher, filter.seed) == ("murmur3", 7)
    assert filter.info()["regions"] == filter.regions
    assert (f"regions={filter.regions}" in repr(filter)) == (each != 64)


def test_add_and_remove() -> None:
    """A key that met no other is removed without a trace; then it is definitely absent."""
    filter = DeletableBloomFilter(1000, 1e-6)
    assert filter.add("a") is True
    assert filter.removable("a") is True
    assert filter.remove("a") is True
    assert "a" not in filter
    assert filter.fill_ratio == 0
    assert filter.removable("a") is False
    with pytest.raises(KeyError, match="a"):
        filter.remove("a")
    assert filter.discard("a") is False


def test_a_key_added_twice_stays() -> None:
    """Nobody can tell a second copy from another key on the same bits, so neither is removed."""
    filter = DeletableBloomFilter(1000, 1e-6)
    filter.add("a")
    assert filter.add("a") is False
    assert filter.removable("a") is False
    assert filter.remove("a") is False
    assert filter.discard("a") is False
    assert "a" in filter
    filter.clear()
    assert filter.info()["collided_regions"] == 0


@pytest.mark.parametrize("each", LINE_REGIONS)
@pytest.mark.parametrize("error_rate", [0.1, 0.01, 1e-4])
def test_no_other_key_is_lost(each: int, error_rate: float) -> None:
    """However full, removing half of the keys loses none of the others, and `removable` knew."""
    filter = with_regions(each, 5000, error_rate)
    filter.update(np.arange(8000))
    for key in range(4000):
        foretold = filter.removable(key)
        assert filter.remove(key) is foretold
        assert (key in filter) is not foretold
    assert np.all(filter.contains_many(np.arange(4000, 8000)))


def test_a_key_comes_back() -> None:
    """What was removed can be added again, and removed again where it can be."""
    filter = with_regions(128)
    filter.update(np.arange(10_000))
    for _ in range(3):
        gone = [key for key in range(2000) if filter.remove(key)]
        assert not any(filter.contains_many(gone))
        filter.update(gone)
    assert np.all(filter.contains_many(np.arange(10_000)))
    assert len(gone) > 1900


@pytest.mark.parametrize("each", LINE_REGIONS)
def test_union(each: int) -> None:
    """A union holds the keys of both, and removing one loses no other; what both held stays."""
    one, two = with_regions(each), with_regions(each)
    one.update(np.arange(6000))
    two.update(np.arange(4000, 10_000))
    union = one | two
    assert np.all(union.contains_many(np.arange(10_000)))
    assert not any(union.removable(key) for key in range(4000, 6000))
    union.remove_many(np.arange(4000))
    assert np.all(union.contains_many(np.arange(4000, 10_000)))


@pytest.mark.parametrize("each", LINE_REGIONS)
def test_intersection(each: int) -> None:
    """An intersection holds what both hold, and removing one of those loses no other."""
    one, two = with_regions(each), with_regions(each)
    one.update(np.arange(6000))
    two.update(np.arange(4000, 10_000))
    both = one & two
    assert np.all(both.contains_many(np.arange(4000, 6000)))
    both.remove_many(np.arange(4000, 5000))
    assert np.all(both.contains_many(np.arange(5000, 6000)))


def test_filters_of_other_regions_do_not_merge() -> None:
    """Regions of different sizes cannot be merged; the message shows both."""
    one, two = with_regions(16, 10, 0.5), with_regions(128, 10, 0.5)
    assert one.num_bits == two.num_bits
    with pytest.raises(IncompatibleFilters, match=f"{one.regions}.*{two.regions}"):
        one | two


@pytest.mark.parametrize("each", LINE_REGIONS)
@pytest.mark.parametrize("error_rate", [0.1, 0.001])
def test_the_removable_share_is_told(each: int, error_rate: float) -> None:
    """`estimated_removable_share` is the share that `removable` gives, after removals too."""
    filter = with_regions(each, error_rate=error_rate)
    assert filter.info()["estimated_removable_share"] == 1.0
    filter.update(np.arange(10_000))
    for _ in range(2):
        held = [key for key in range(10_000) if key in filter]
        share = np.mean([filter.removable(key) for key in held])
        told = filter.info()["estimated_removable_share"]
        assert share == pytest.approx(told, abs=0.03)
        filter.remove_many(np.arange(3000))


@pytest.mark.parametrize("regions", [0, -1, 2.5, "many", 10**9, True])
def test_impossible_regions_are_refused(regions: Any) -> None:
    """The message says what was given and what is right."""
    with pytest.raises(InvalidParameter, match="regions must be"):
        DeletableBloomFilter(1000, regions=regions)


def test_estimates() -> None:
    """Distinct keys are estimated from the bits, after removals too."""
    filter = with_regions(128, 50_000)
    filter.update(np.arange(50_000))
    assert filter.estimated_count == pytest.approx(50_000, rel=0.01)
    assert not filter.saturated
    filter.update(np.arange(50_000, 150_000))
    assert filter.saturated
