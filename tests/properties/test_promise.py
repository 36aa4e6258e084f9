"""The one-sided promise: whatever a filter goes through, a key that was added is never a no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import BloomFilter
from properties.strategies import HASHERS, LAYOUTS, journeys, keys, make, shapes

JOURNEYS = sorted(journeys(Path()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples: hypothesis runs many in one test."""
    return tmp_path_factory.mktemp("promise")


@given(shapes, st.lists(keys, max_size=60), st.lists(keys, max_size=60))
def test_added_keys_are_never_a_no(shape: dict[str, Any], one: list[Any], many: list[Any]) -> None:
    """A key is a maybe right after add, add_many or update, one by one and in a batch."""
    filter = make(shape)
    for key in one:
        filter.add(key)
        assert key in filter
        assert filter.add(key) is False, "a key that is there cannot be new"
    half = len(many) // 2
    filter.add_many(many[:half])
    filter.update(iter(many[half:]))
    assert all(key in filter for key in one + many)
    assert filter.contains_many(one + many) == [True] * len(one + many)


@given(st.data(), shapes, st.lists(keys, max_size=80), st.integers(1, 3000))
def test_no_journey_loses_a_key(
    folder: Path, data: st.DataObject, shape: dict[str, Any], held: list[Any], capacity: int
) -> None:
    """Copied, saved, mapped, merged, folded or pickled, in any order: every key is still there."""
    filter = make(shape, capacity)
    filter.update(held)
    ways = journeys(folder)
    for name in data.draw(st.lists(st.sampled_from(JOURNEYS), min_size=1, max_size=4)):
        filter = ways[name](filter)
        assert filter.contains_many(held) == [True] * len(held), name


@pytest.mark.parametrize("journey", JOURNEYS)
@pytest.mark.parametrize("hasher", HASHERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-5, 1e-9])
def test_each_journey_of_each_kind(
    folder: Path, error_rate: float, layout: Any, hasher: Any, journey: str
) -> None:
    """Every layout, hasher and number of lines a key survives every journey with all its keys."""
    filter = BloomFilter(4000, error_rate, layout=layout, hasher=hasher, seed=3)
    held = [*range(500), *map(str, range(500))]
    filter.update(held)
    after = journeys(folder)[journey](filter)
    assert all(after.contains_many(held))
    assert (after.layout, after.hasher, after.seed) == (layout, hasher, 3)
    if journey == "fold":
        assert after.num_bits < filter.num_bits
    else:
        assert after == filter
        assert bytes(memoryview(after)) == bytes(memoryview(filter))


@given(shapes, st.lists(keys, max_size=40), st.lists(keys, max_size=40), st.lists(keys))
def test_merging_keeps_what_it_says(
    shape: dict[str, Any], left: list[Any], right: list[Any], both: list[Any]
) -> None:
    """A union holds the keys of either filter, an intersection those of both."""
    a, b = make(shape), make(shape)
    a.update(left + both)
    b.update(right + both)
    every, common = left + both + right, both
    assert all((a | b).contains_many(every))
    assert all(a.union(b).contains_many(every))
    assert all((a & b).contains_many(common))
    assert all(a.intersection(b).contains_many(common))
    assert a <= a | b
    assert a & b <= a
    merged, narrowed = a.copy(), a.copy()
    merged |= b
    narrowed &= b
    assert merged == a | b
    assert narrowed == a & b
    built = make(shape)
    built.update(every)
    assert merged == built, "a union is the filter that all the keys would have built"


@given(shapes, st.lists(keys, max_size=100), st.integers(1, 20_000))
def test_folding_keeps_every_key(shape: dict[str, Any], held: list[Any], capacity: int) -> None:
    """A folded filter answers maybe for every key, is no larger, and keeps adding."""
    filter = make(shape, capacity)
    filter.update(held)
    folded = filter.fold()
    assert all(folded.contains_many(held))
    assert folded.num_bits <= filter.num_bits
    if filter.estimated_error_rate <= filter.error_rate:
        assert folded.estimated_error_rate <= filter.error_rate
    folded.add("one more")
    assert "one more" in folded


@given(shapes, st.lists(keys, max_size=100))
def test_from_keys_holds_them(shape: dict[str, Any], held: list[Any]) -> None:
    """A filter made from keys holds them, from a list or from an iterator."""
    for batch in (held, iter(held)):
        filter = BloomFilter.from_keys(batch, **shape)
        assert filter.capacity == max(1, len(held))
        assert all(filter.contains_many(held))
