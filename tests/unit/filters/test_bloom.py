"""BloomFilter itself: what it is made with, what it says of itself, copies and folds."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any, cast

import numpy as np
import pytest

from bloomery import BloomFilter, sizing
from bloomery.errors import UnsupportedBatch
from bloomery.types import Layout
from conftest import require

SHAPES: list[tuple[Layout, float, int]] = [
    ("blocked", 0.01, 1),
    ("blocked", 1e-5, 2),
    ("classic", 0.01, 0),
]


def filled(*keys: Any, **options: Any) -> BloomFilter:
    """A small filter of a low error rate that holds these keys."""
    filter = BloomFilter(100, 1e-9, **options)
    filter.update(keys)
    return filter


def test_the_first_five_lines() -> None:
    """A new filter holds nothing; an added key is new once and a maybe from then on."""
    seen = BloomFilter(capacity=1000, error_rate=0.01)
    assert "https://example.org/" not in seen
    assert seen.add("https://example.org/") is True
    assert seen.add("https://example.org/") is False
    assert ("https://example.org/" in seen) is True
    assert "https://example.net/" not in seen


@pytest.mark.parametrize(("layout", "error_rate", "lines"), SHAPES)
def test_it_is_made_as_planned(layout: Any, error_rate: float, lines: int) -> None:
    """A filter's figures are those of its plan, and what it was asked for."""
    filter = BloomFilter(12_345, error_rate, layout=layout, hasher="murmur3", seed=7)
    plan = sizing.plan(12_345, error_rate, layout=layout)
    for name in ("capacity", "error_rate", "num_bits", "num_hashes", "lines_per_key", "nbytes"):
        assert getattr(filter, name) == getattr(plan, name), name
    assert filter.lines_per_key == lines
    assert (filter.layout, filter.hasher, filter.seed) == (layout, "murmur3", 7)
    assert not filter.read_only
    assert memoryview(filter).nbytes == filter.nbytes
    assert filter.nbytes % 64 == 0


def test_an_empty_filter() -> None:
    """An empty filter has no bit set, counts nothing and errs never."""
    for layout, error_rate, _ in SHAPES:
        filter = BloomFilter(1000, error_rate, layout=layout)
        assert filter.fill_ratio == 0
        assert filter.estimated_count == 0
        assert filter.estimated_error_rate == 0
        assert not filter.saturated
        assert not any(memoryview(filter))


def test_the_fill_is_that_of_the_bits() -> None:
    """fill_ratio is the share of set bits in the buffer the filter shows."""
    filter = BloomFilter(1000, layout="classic")
    filter.update(range(1000))
    view = memoryview(filter)
    assert filter.fill_ratio == int.from_bytes(view, "little").bit_count() / filter.num_bits
    assert 0.45 < filter.fill_ratio < 0.55
    with pytest.raises(TypeError):
        view[0] = 0


@pytest.mark.parametrize(("layout", "error_rate", "lines"), SHAPES)
def test_one_key_sets_its_bits(layout: Any, error_rate: float, lines: int) -> None:
    """A key sets at most num_hashes bits, within as many 64-byte lines as it may touch."""
    for key in range(200):
        filter = BloomFilter(5000, error_rate, layout=layout)
        filter.add(key)
        raw = bytes(memoryview(filter))
        bits = int.from_bytes(raw, "little").bit_count()
        assert filter.num_hashes * 0.6 <= bits <= filter.num_hashes
        touched = sum(any(raw[i : i + 64]) for i in range(0, len(raw), 64))
        assert touched <= (lines or filter.num_hashes)
        assert int.from_bytes(raw, "little").bit_length() <= filter.num_bits


def test_saturated() -> None:
    """A filter is saturated once it holds more keys, and errs more often, than it was made for."""
    for layout, error_rate, _ in SHAPES:
        filter = BloomFilter(10_000, error_rate, layout=layout)
        filter.update(np.arange(9000))
        assert not filter.saturated
        over = filter.copy()
        over.update(np.arange(13_000))
        assert over.saturated
        assert over.estimated_error_rate > error_rate
        empty = over & BloomFilter(10_000, error_rate, layout=layout)
        assert not empty.saturated
    roomy = BloomFilter(1)  # a line is the least there is, and holds some fifty keys
    roomy.update(range(10))
    assert roomy.estimated_count > roomy.capacity
    assert not roomy.saturated


def test_info() -> None:
    """info() has every figure by name, and is ready for JSON."""
    filter = BloomFilter(1000, 0.02, layout="classic", hasher="fnv1a", seed=2**64 - 1)
    filter.update(range(100))
    info = filter.info()
    assert json.loads(json.dumps(info)) == info
    names = set(info) - {"kind", "bits_per_key"}
    assert names == {
        *("capacity", "error_rate", "layout", "hasher", "seed", "num_bits", "num_hashes"),
        *("lines_per_key", "nbytes", "fill_ratio", "estimated_count", "estimated_error_rate"),
        *("saturated", "read_only"),
    }
    assert {name: info[name] for name in names} == {name: getattr(filter, name) for name in names}
    assert info["kind"] == "bloom"
    assert info["bits_per_key"] == filter.num_bits / 1000


def test_repr() -> None:
    """A repr shows what the filter was made with and how full it is, and never a siphash key."""
    filter = BloomFilter(1000)
    filter.update(range(100))
    text = repr(filter)
    assert text.startswith("<BloomFilter(capacity=1000, error_rate=0.01): ~")
    assert f"{filter.estimated_count} keys" in text
    assert f"{filter.nbytes:,} bytes" in text
    shown = repr(BloomFilter(1000, 1e-9, layout="classic", hasher="murmur3", seed=5))
    assert "layout='classic', hasher='murmur3', seed=5" in shown
    assert "1e-09" in shown
    secret = BloomFilter(10, hasher="siphash", seed=123456)
    assert "123456" not in repr(secret)
    assert "123456" not in json.dumps(secret.info())


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, BloomFilter.copy])
def test_copies_are_apart(how: Any) -> None:
    """A copy holds the same keys, and neither sees what is then done to the other."""
    filter = filled("a", seed=3)
    twin = how(filter)
    assert twin == filter
    twin.add("b")
    assert "b" not in filter
    filter.clear()
    assert "a" in twin


class Named(BloomFilter):
    """A subclass, as a program may make one."""

    __slots__ = ()


def test_subclasses_stay_what_they_are() -> None:
    """What a subclass makes of itself is of the subclass, through pickle too."""
    made = Named(100, 1e-9)
    made.add("a")
    for other in (
        made.copy(),
        made | made,
        made.fold(),
        Named.from_bytes(made.to_bytes()),
        Named.from_keys(["a"]),
        pickle.loads(pickle.dumps(made)),
    ):
        assert type(other) is Named
        assert "a" in other
    assert repr(made).startswith("<Named(")


def test_from_keys() -> None:
    """A filter from keys is sized for as many as there are, whatever they come in."""
    keys = list(range(5000))
    pa = require("pyarrow")
    table = pa.table({"key": keys})
    for batch in (
        *(keys, tuple(keys), set(keys), range(5000), iter(keys), (k for k in keys)),
        *(np.array(keys), np.array(keys, ">i4"), pa.array(keys), pa.chunked_array([keys, []])),
        table,
        *(require("polars").Series(keys), require("pandas").Series(keys)),
    ):
        filter = BloomFilter.from_keys(batch, 0.001, layout="classic", hasher="fnv1a", seed=4)
        assert (filter.capacity, filter.error_rate) == (5000, 0.001)
        assert (filter.layout, filter.hasher, filter.seed) == ("classic", "fnv1a", 4)
        assert np.asarray(filter.contains_many(np.array(keys))).all()
        assert filter.estimated_count == pytest.approx(5000, rel=0.03)
    assert BloomFilter.from_keys([]).capacity == 1
    assert 1 in BloomFilter.from_keys(cast(Any, [1, None]), nulls="skip")


def test_from_keys_that_cannot_be_counted() -> None:
    """What is no batch, or a stream that cannot be counted first, is refused with the way out."""
    reader = require("pyarrow").table({"key": [1, 2]}).to_reader()
    with pytest.raises(UnsupportedBatch, match="capacity"):
        BloomFilter.from_keys(reader)
    for wrong in (5, None, "abc", b"abc"):
        with pytest.raises(UnsupportedBatch):
            BloomFilter.from_keys(wrong)  # type: ignore[arg-type]


def test_fold_when_there_is_nothing_to_gain() -> None:
    """A full filter folds to a copy of itself; an empty one to a single line, or a few bits."""
    full = BloomFilter(1000)
    full.update(range(1000))
    folded = full.fold()
    assert folded == full
    assert folded is not full
    assert BloomFilter(10**6).fold().nbytes == 64
    assert BloomFilter(10**6, layout="classic").fold().nbytes == 64
