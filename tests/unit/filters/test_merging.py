"""Filters together: unions, intersections, comparisons, and filters that do not fit."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import IncompatibleFilters
from privates import bloom_of


def filled(*keys: Any, **options: Any) -> BloomFilter:
    """A small filter of a low error rate that holds these keys."""
    filter = BloomFilter(100, 1e-9, **options)
    filter.update(keys)
    return filter


def test_set_operations() -> None:
    """Unions and intersections answer as sets do, and leave their operands alone."""
    a, b, c = filled(1, 2), filled(2, 3), filled(2, 4)

    def held(f: BloomFilter) -> set[int]:
        return {k for k in range(10) if k in f}

    assert held(a | b) == held(a.union(b)) == {1, 2, 3}
    assert held(a & b) == held(a.intersection(b)) == {2}
    assert held(a.union(b, c)) == {1, 2, 3, 4}
    assert held(a.intersection(b, c)) == {2}
    assert a.union() == a.intersection() == a
    assert (held(a), held(b), held(c)) == ({1, 2}, {2, 3}, {2, 4})
    same = a
    a |= b
    assert a is same
    a &= filled(1, 3)
    assert a is same
    assert held(a) == {1, 3}


def test_comparisons() -> None:
    """== is the same bits in the same shape, <= is every maybe of one in the other."""
    small, large = filled(1), filled(1, 2)
    assert small == filled(1)
    assert small != large
    assert small <= large
    assert large >= small
    assert not large <= small
    assert small <= small.copy()
    assert small != BloomFilter(101, 1e-9)
    assert small != {1}
    assert filled(1) != filled(1, seed=1)
    for wrong in (operator.lt, operator.gt):
        with pytest.raises(TypeError):
            wrong(small, large)
    with pytest.raises(TypeError, match="unhashable"):
        hash(small)


BASE: dict[str, Any] = {"capacity": 1000, "error_rate": 0.01}
DIFFERENT = [
    ({"layout": "classic"}, "layout"),
    ({"capacity": 5000}, "num_bits"),
    ({"error_rate": 0.02}, "num_bits"),
    ({"hasher": "fnv1a"}, "hasher"),
    ({"seed": 77}, "seed"),
]
OPERATIONS = [operator.or_, operator.and_, operator.ior, operator.iand, operator.le]
OPERATIONS += [BloomFilter.union, BloomFilter.intersection]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("options", "name"), DIFFERENT)
def test_incompatible_filters(options: dict[str, Any], name: str, operation: Any) -> None:
    """Filters that differ in a parameter cannot be combined; the error names it and both values."""
    one, other = BloomFilter(**BASE), BloomFilter(**BASE | options)
    mine, theirs = getattr(one, name), getattr(other, name)
    assert mine != theirs
    for left, right, first, second in ((one, other, mine, theirs), (other, one, theirs, mine)):
        with pytest.raises(IncompatibleFilters) as caught:
            operation(left, right)
        assert f"same {name}: this one has {first}, the other {second}" in str(caught.value)
        assert left.fill_ratio == 0
    assert one != other


def test_incompatible_hashes_and_lines() -> None:
    """Filters of the same size but other hashes or lines a key cannot be combined either."""
    parts = ("xxh3", 0)
    four = bloom_of(100, 0.01, "blocked", 5120, 4, 1, *parts)
    six = bloom_of(100, 0.01, "blocked", 5120, 6, 1, *parts)
    two_lines = bloom_of(100, 0.01, "blocked", 5120, 4, 2, *parts)
    with pytest.raises(IncompatibleFilters, match="num_hashes: this one has 4, the other 6"):
        four | six
    with pytest.raises(IncompatibleFilters, match="lines_per_key: this one has 1, the other 2"):
        four | two_lines


def test_a_siphash_key_stays_secret() -> None:
    """Filters of different siphash keys are incompatible, and the error shows neither."""
    one, other = (BloomFilter(10, hasher="siphash", seed=s) for s in (123456, 654321))
    with pytest.raises(IncompatibleFilters, match="same seed") as caught:
        one |= other
    assert "123456" not in str(caught.value)
    assert "654321" not in str(caught.value)


@pytest.mark.parametrize("other", [{1}, None, 5, "filter", b""])
def test_other_things_are_not_filters(other: Any) -> None:
    """A filter combines with nothing but filters."""
    filter = filled(1)
    for operation in (operator.or_, operator.and_, operator.le):
        with pytest.raises(TypeError):
            operation(filter, other)
    for operation in (operator.ior, operator.iand, BloomFilter.union):
        with pytest.raises((TypeError, IncompatibleFilters), match=type(other).__name__):
            operation(filter, other)
