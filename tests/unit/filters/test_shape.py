"""Filters of given bits and hashes, and where a key's bits are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter, CountingBloomFilter, errors, open, sizing
from docs.reader import classic_positions

BLOOM = [
    (10, 3, "classic"),
    (64, 1, "classic"),
    (1000, 7, "classic"),
    (9_585_059, 7, "classic"),
    (1000, 32, "classic"),
    (512, 2, "blocked"),
    (1000, 6, "blocked"),
    (100_000, 8, "blocked"),
    (100_000, 16, "blocked"),
]
COUNTING = [(512, 1, 4), (1000, 4, 4), (100_000, 7, 4), (100_000, 20, 4), (100_000, 7, 8)]


def bits_set(filter: BloomFilter) -> set[int]:
    data = bytes(memoryview(filter))
    return {bit for bit in range(8 * len(data)) if data[bit >> 3] >> (bit & 7) & 1}


def test_the_drawing_of_every_lecture() -> None:
    """Ten bits, three hashes, three words: the bits that are set are where the words' bits are."""
    filter, words = BloomFilter.with_shape(10, 3), ("apple", "banana", "cherry")
    for word in words:
        filter.add(word)
    assert bits_set(filter) == {bit for word in words for bit in filter.positions(word)}
    assert all(filter.contains(word) for word in words)
    assert all(len(filter.positions(word)) == 3 for word in words)
    assert max(bits_set(filter)) < 10


@pytest.mark.parametrize(("num_bits", "num_hashes", "layout"), BLOOM)
def test_the_shape_is_the_one_given(num_bits: int, num_hashes: int, layout: Any) -> None:
    """Bits, rounded up to lines where there are lines, and hashes are as given."""
    filter = BloomFilter.with_shape(num_bits, num_hashes, layout=layout)
    lines = -(-num_bits // 512) * 512
    assert filter.num_bits == (lines if layout == "blocked" else num_bits)
    assert (filter.num_hashes, filter.layout) == (num_hashes, layout)
    assert filter.capacity == max(1, int(0.6931471805599453 * filter.num_bits / num_hashes))
    assert 2.0**-num_hashes / 4 <= filter.error_rate <= 0.5 or filter.error_rate == 1e-9


@pytest.mark.parametrize(("num_bits", "num_hashes", "layout"), BLOOM)
def test_its_bits_are_at_its_positions(num_bits: int, num_hashes: int, layout: Any) -> None:
    """A key sets the bits of its positions and no others."""
    if num_bits > 1_000_000:
        num_bits //= 1000
    for key in ("alice", 7, b"\x00", ("a", 1)):
        filter = BloomFilter.with_shape(num_bits, num_hashes, layout=layout)
        positions = filter.positions(key)
        assert filter.add(key)
        assert bits_set(filter) == set(positions)
        assert len(positions) == num_hashes
        if layout == "classic":
            assert positions == [*classic_positions(filter.hash_of(key), num_bits, num_hashes)]


@pytest.mark.parametrize(("num_bits", "num_hashes", "counter_bits"), COUNTING)
def test_counters_are_at_their_positions(num_bits: int, num_hashes: int, counter_bits: Any) -> None:
    """A key raises the counters of its positions, each once, and no others."""
    filter = CountingBloomFilter.with_shape(num_bits, num_hashes, counter_bits=counter_bits)
    assert filter.num_bits == -(-num_bits // 512) * 512
    assert (filter.num_hashes, filter.counter_bits) == (num_hashes, counter_bits)
    assert filter.add("alice")
    data = int.from_bytes(filter.to_bytes()[128:], "little")
    counters = [
        data >> at & (1 << counter_bits) - 1 for at in range(0, filter.num_bits, counter_bits)
    ]
    positions = filter.positions("alice")
    assert len(positions) == num_hashes
    assert {at for at, count in enumerate(counters) if count} == set(positions)
    assert set(counters) <= {0, 1}
    assert filter.remove("alice")
    assert not filter.contains("alice")


def makers() -> list[Any]:
    return [
        lambda: BloomFilter.with_shape(10, 3),
        lambda: BloomFilter.with_shape(100_003, 5, hasher="murmur3", seed=7),
        lambda: BloomFilter.with_shape(100_000, 8, "blocked"),
        lambda: CountingBloomFilter.with_shape(100_000, 5, counter_bits=8),
    ]


@pytest.mark.parametrize("make", makers())
def test_saved_merged_and_shown(make: Any, tmp_path: Path) -> None:
    """Such a filter is saved, opened, merged and shown as any other."""
    one, other = make(), make()
    one.add("alice")
    other.add("bob")
    one.save(tmp_path / "one.bloom")
    again = open(tmp_path / "one.bloom")
    assert again == one
    both = one | other
    assert both.contains("alice")
    assert both.contains("bob")
    assert one.copy() == one
    command = [sys.executable, "-m", "bloomery", "info", "--json", str(tmp_path / "one.bloom")]
    done = subprocess.run(command, capture_output=True, check=True)
    shown = json.loads(done.stdout)
    assert shown["capacity"] == one.capacity
    assert shown["error_rate"] == one.error_rate


@pytest.mark.parametrize("layout", ["classic", "blocked"])
@pytest.mark.parametrize("num_hashes", [4, 8])
def test_the_rate_is_kept(layout: Any, num_hashes: int) -> None:
    """With as many keys as its capacity it errs as often as its error rate says."""
    filter = BloomFilter.with_shape(200_000, num_hashes, layout=layout)
    filter.update(range(filter.capacity))
    absent = 400_000
    wrong = sum(filter.contains_many(range(10**9, 10**9 + absent)))
    expected = filter.error_rate * absent
    assert abs(wrong - expected) < 5 * expected**0.5 + 0.05 * expected
    assert not filter.saturated
    assert 0.4 < filter.fill_ratio < 0.6


def test_a_counting_filter_keeps_its_rate_too() -> None:
    """The same of counters."""
    filter = CountingBloomFilter.with_shape(800_000, 5)
    filter.update(range(filter.capacity))
    absent = 200_000
    wrong = sum(filter.contains_many(range(10**9, 10**9 + absent)))
    expected = filter.error_rate * absent
    assert abs(wrong - expected) < 5 * expected**0.5 + 0.05 * expected
    assert not filter.saturated


@pytest.mark.parametrize(
    ("make", "arguments", "says"),
    [
        (BloomFilter.with_shape, (1, 1), "num_bits must be a whole number from 2"),
        (BloomFilter.with_shape, (1.5, 1), "num_bits"),
        (BloomFilter.with_shape, ("10", 1), "num_bits"),
        (BloomFilter.with_shape, (2**60, 1), "num_bits"),
        (BloomFilter.with_shape, (10, 0), "num_hashes must be 1 to 32"),
        (BloomFilter.with_shape, (10, 33), "num_hashes must be 1 to 32"),
        (BloomFilter.with_shape, (2, 9), "give more bits, or fewer hashes"),
        (BloomFilter.with_shape, (512, 5, "blocked"), "num_hashes must be 2, 4, 6, 8"),
        (BloomFilter.with_shape, (512, 4, "round"), "layout"),
        (CountingBloomFilter.with_shape, (512, 17), "num_hashes must be 1 to 16, or even"),
        (CountingBloomFilter.with_shape, (512, 34), "num_hashes"),
        (CountingBloomFilter.with_shape, (0, 4), "num_bits"),
    ],
)
def test_shapes_that_cannot_be(make: Any, arguments: tuple[Any, ...], says: str) -> None:
    """What cannot be is an InvalidParameter that says what can."""
    with pytest.raises(errors.InvalidParameter, match=says):
        make(*arguments)


def test_the_textbooks_own_numbers() -> None:
    """The shape that the textbook has for a capacity gives that capacity back."""
    plan = sizing.plan(1_000_000, 0.01, layout="classic")
    assert (plan.num_bits, plan.num_hashes) == (9_585_059, 7)
    shape = sizing.shape_plan(plan.num_bits, plan.num_hashes)
    assert shape.capacity == pytest.approx(1_000_000, rel=0.06)  # 7 where 6.64 were best
    assert shape.error_rate == pytest.approx(2.0**-7, rel=0.01)
