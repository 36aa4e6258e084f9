"""Deltas: they make one file of another, stay small, and damage is refused."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import BloomFilter, StaticFilter
from bloomery.errors import FeedRefused
from bloomery.feeds.delta import Delta, encode
from conftest import effort


def applied(delta: bytes, base: bytes) -> bytes:
    """The result of a delta."""
    read = Delta(delta)
    assert read.base_size == len(base)
    result = bytearray(base[: read.result_size].ljust(read.result_size, b"\0"))
    read.flip(result)
    return bytes(result)


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=300), st.integers(0, 2**32))
def test_any_file_comes_out(base: bytes, result: bytes, seed: int) -> None:
    """Whatever the two files are, longer, shorter or equal, the result comes out."""
    random.seed(seed)
    changed = bytearray(result)
    for _ in range(len(changed) // 4):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    for before, after in ((base, result), (result, bytes(changed)), (result, result)):
        delta = encode(before, after)
        if delta is not None:
            assert applied(delta, before) == after
    unchanged = encode(result, result)
    assert unchanged is not None
    assert len(unchanged) < 70


def test_far_apart_bits_take_more_planes() -> None:
    """A gap of more than a byte, two or three comes out too; the last bit of a file as well."""
    base = bytes(5_000_000)
    result = bytearray(base)
    for position in (0, 255, 256, 70_000, 20_000_000, 39_999_999):
        result[position >> 3] ^= 1 << (position & 7)
    delta = encode(base, bytes(result))
    assert delta is not None
    assert len(delta) < 150
    assert applied(delta, base) == result


def changed_share(filter: type, before: range, after: range, **options: object) -> float:
    """The size of a delta between filters of these keys, of the full file's."""
    files = []
    for keys in (before, after):
        made = filter(len(after), 0.01, **options)
        made.update(keys)
        files.append(made.to_bytes())
    delta = encode(*files)
    assert delta is not None
    assert applied(delta, files[0]) == files[1]
    return len(delta) / len(files[1])


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_one_percent_of_new_keys_is_under_a_twentieth(layout: str) -> None:
    """For 1% of keys that were added, or half of it added and half removed, a delta of a plain
    filter has at most 5% of the file. For 1% of each it cannot: twice as many bits differ."""
    n = 50_000
    added = changed_share(BloomFilter, range(n - n // 100), range(n), layout=layout)
    turned = changed_share(BloomFilter, range(n), range(n // 200, n + n // 200), layout=layout)
    replaced = changed_share(BloomFilter, range(n), range(n // 100, n + n // 100), layout=layout)
    assert added <= 0.04
    assert turned <= 0.04
    assert 0.05 < replaced <= 0.07


def test_a_static_filter_has_no_delta() -> None:
    """One more key solves all equations anew: half of all bits differ, and nothing is gained."""
    before, after = (StaticFilter.build(range(n)).to_bytes() for n in (10_000, 10_001))
    assert encode(before, after) is None


def test_a_damaged_delta_is_refused() -> None:
    """No byte of a delta can be wrong without an error, or a result that its hash tells apart."""
    base = BloomFilter(2_000, 0.01)
    result = base.copy()
    result.update(range(200))
    before = base.to_bytes()
    delta = encode(before, result.to_bytes())
    assert delta is not None
    random.seed(7)
    reasons: set[str] = set()
    for _ in range(effort(100, 500, 20_000)):
        damaged = bytearray(delta)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(len(delta))] = random.randrange(256)
        cut = bytes(damaged[: random.randint(0, len(delta))] if random.random() < 0.2 else damaged)
        try:
            read = Delta(cut)
            room = bytearray(before[: read.result_size].ljust(min(read.result_size, 10_000), b"\0"))
            read.flip(room)
        except FeedRefused as why:
            reasons.add(why.reason)
    assert reasons == {"damaged"}


def test_a_delta_that_would_fill_the_memory_is_refused() -> None:
    """A plane that inflates to more than it says, or bits beyond the file, are refused before
    memory is given to them."""
    import zlib

    bomb = zlib.compress(bytes(10_000_000), 9)
    head = struct.pack("<8sIIQQQQ", b"BLOOMDLT", 1, 1, 1000, 1000, 10, len(bomb))
    with pytest.raises(FeedRefused, match="longer than it says"):
        Delta(head + bomb).flip(bytearray(1000))
    few = zlib.compress(bytes([255] * 10))
    head = struct.pack("<8sIIQQQQ", b"BLOOMDLT", 1, 1, 100, 100, 10, len(few))
    with pytest.raises(FeedRefused, match="flips bit"):
        Delta(head + few).flip(bytearray(100))
    head = struct.pack("<8sIIQQQQ", b"BLOOMDLT", 1, 1, 100, 100, 1 << 60, len(few))
    with pytest.raises(FeedRefused, match="says more than it can"):
        Delta(head + few)
