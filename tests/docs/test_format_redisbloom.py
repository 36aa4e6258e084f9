"""docs/format.md is exact for RedisBloom's filters: a file written from it is the one we save."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from bloomery import _native
from bloomery.filters import RedisBloomFilter, RedisCuckooFilter
from docs.reader_family import HEADER
from properties.redisbloom_model import Bloom, Cuckoo

KEYS = [b"key %d" % n for n in range(300)]


def padded(part: bytes) -> bytes:
    """Filled up to whole lines."""
    return part + bytes(-len(part) % 64)


def written(model: Any, kind: int, hashes: int, capacity: int, error_rate: float) -> bytes:
    """A file of the filter that a model is, as the page says."""
    parts = [model.header(), *model.parts()]
    body = b"".join(map(padded, parts))
    num_bits = 8 * sum(map(len, parts[1:]))
    extra = (len(parts[0]), 0, 0, 0, 0, 0)
    numbers = (hashes, num_bits, capacity, error_rate, bytes(16), len(body), *extra)
    head = HEADER.pack(b"BLOOMERY", 1, kind, 0, 1, 0, *numbers, 0, 0)[:112]
    return head + struct.pack("<QQ", _native.checksum(head), _native.checksum(body)) + body


@pytest.mark.parametrize(
    ("rate", "capacity", "expansion", "nonscaling"),
    [(0.01, 100, 2, False), (1e-6, 7, 3, False), (0.25, 400, 0, False), (0.1, 400, 2, True)],
)
def test_a_chain(rate: float, capacity: int, expansion: int, nonscaling: bool) -> None:
    """The page's file of a chain is ours, byte for byte."""
    filter = RedisBloomFilter(rate, capacity, expansion, nonscaling)
    model = Bloom(rate, capacity, expansion, nonscaling)
    for key in KEYS:
        assert filter.add(key) is model.add(key)
    expected = written(model, 9, model.links[0].hashes, capacity, rate)
    assert filter.to_bytes() == expected
    assert RedisBloomFilter.from_bytes(expected) == filter


@pytest.mark.parametrize(
    ("capacity", "size", "iterations", "expansion"),
    [(1000, 2, 20, 1), (50, 2, 20, 2), (100, 7, 3, 4), (400, 255, 1, 0)],
)
def test_a_cuckoo_filter(capacity: int, size: int, iterations: int, expansion: int) -> None:
    """The page's file of a cuckoo filter is ours, byte for byte, after removals too."""
    filter = RedisCuckooFilter(capacity, size, iterations, expansion)
    model = Cuckoo(capacity, size, iterations, expansion)
    for key in KEYS[:250]:
        filter.add(key)
        model.add(key)
    for key in KEYS[:100]:
        assert filter.remove(key) is model.remove(key)
    rate = min(2 * size / 255, 0.999)
    expected = written(model, 10, 2, model.buckets * size, rate)
    assert filter.to_bytes() == expected
    assert RedisCuckooFilter.from_bytes(expected) == filter
