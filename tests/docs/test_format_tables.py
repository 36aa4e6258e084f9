"""docs/format.md is exact for tables of fingerprints: a reader written from it gives bloomery's
answers, and what is written by it is read."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest

from bloomery import CuckooFilter, RotatingBloomFilter, ScalableBloomFilter, _native
from bloomery.types import Hasher
from docs import reader, reader_family
from docs.reader_family import GOLDEN, Saved, Table

RATES = (0.5, 0.1, 0.01, 1e-3, 1e-6, 1e-9)
KEYS = range(1200)
OTHERS = range(10**6, 10**6 + 400)
HASHERS: tuple[tuple[Hasher, int], ...] = (
    ("xxh3", 7),
    ("murmur3", 2**64 - 1),
    ("fnv1a", 3),
    ("siphash", 2**127 + 5),
)


def table(filter: Any) -> Table:
    saved = reader_family.read(filter.to_bytes())
    assert isinstance(saved, Table)
    return saved


def agree(filter: Any, saved: Saved, keys: range) -> None:
    """Both give the same answer for these keys, whether they were added or not."""
    wrong = [key for key in keys if (key in filter) != saved.might_contain(key)]
    assert not wrong


@pytest.mark.parametrize("error_rate", RATES)
@pytest.mark.slow
def test_a_table_that_grows(error_rate: float) -> None:
    """At every size on the way from 20 keys to 1,200 the page says where they are."""
    filter = ScalableBloomFilter(20, error_rate)
    seen = set()
    for start in range(0, len(KEYS), 60):
        filter.update(KEYS[start : start + 60])
        saved = table(filter)
        seen.add((saved.layout, saved.buckets))
        assert all(map(saved.might_contain, KEYS[: start + 60]))
        agree(filter, saved, OTHERS[:100])
    assert len(seen) > 10
    assert len({layout for layout, _ in seen}) > 5


@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("error_rate", RATES)
def test_a_cuckoo_filter(error_rate: float, grow: bool) -> None:
    """Keys, copies and wrong maybes of a cuckoo filter are those that the page derives."""
    filter = CuckooFilter(2 * len(KEYS), error_rate, grow=grow)
    filter.update(KEYS)
    filter.update(KEYS[:20])
    assert filter.remove_many(list(KEYS[500:600])) == [True] * 100
    saved = table(filter)
    assert saved.grows is grow
    for keys in (KEYS, OTHERS):
        agree(filter, saved, keys)
        assert all(filter.count(key) == saved.count_of(key) for key in keys)
    assert saved.extra[3] == filter.estimated_count == len(KEYS) + 20 - 100


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 50])
def test_small_tables(capacity: int) -> None:
    """A table of one bucket, or of few, is read as any other."""
    filter = CuckooFilter(capacity)
    filter.update(range(capacity))
    agree(filter, table(filter), OTHERS)
    agree(filter, table(filter), range(capacity))


@pytest.mark.parametrize(("hasher", "seed"), HASHERS)
def test_every_hasher(hasher: Hasher, seed: int) -> None:
    """Hasher and seed stand in the header of every kind, and mean what they do in the plain one."""
    for filter in (CuckooFilter(100, hasher=hasher, seed=seed), ScalableBloomFilter(hasher=hasher)):
        filter.update(range(100))
        saved = table(filter)
        assert (saved.hasher, saved.seed) == (filter.hasher, filter.seed)
        agree(filter, saved, range(300))


@pytest.mark.parametrize("generations", [1, 2, 7, 8, 15, 16, 254])
def test_marks_of_generations(generations: int) -> None:
    """The mark of an entry tells how many generations ago its key was added last."""
    now = 1e9
    filter = RotatingBloomFilter(
        500, window=generations * 60.0, generations=generations, clock=lambda: now
    )
    for _ in range(min(generations, 20) + 3):
        filter.update(range(int(now) % 1000, int(now) % 1000 + 40))
        now += 60
    assert 2000 not in filter  # it looks at the clock when it is asked
    saved = table(filter)
    for key in range(1000):
        found = filter.generation_of(key)
        assert (None if found is None else found.age) == saved.age(
            reader.hash_key(key, saved.hasher, saved.seed)
        )


def test_time_that_passes_while_it_is_saved() -> None:
    """As the page says: an entry is forgotten once its age with the time passed is beyond G."""
    now = 5e8
    filter = RotatingBloomFilter(100, 1e-6, window=80, generations=4, clock=lambda: now)
    for start in range(0, 100, 20):
        filter.update(range(start, start + 20))
        now += 20
    now -= 20
    saved = table(filter)
    window, begun = map(reader_family.double, saved.extra[3:5])
    for now in (begun - 50.0, begun, begun + 19, begun + 45, begun + 61, begun + 99, begun + 1e6):
        loaded = RotatingBloomFilter.from_bytes(filter.to_bytes())
        loaded.set_clock(lambda now=now: now)  # type: ignore[misc]
        passed = max(0, int((now - begun) * saved.generations // window))
        for key in range(100):
            age = saved.age(reader.hash_key(key, saved.hasher, saved.seed))
            assert (key in loaded) == (age is not None and age + passed <= saved.generations)


def written(saved: Saved, body: bytes, **fields: int | tuple[int, ...]) -> bytes:
    """A file with this body and, but for these fields, the header of a saved one."""
    kind = next(number for number, name in reader_family.KINDS.items() if name == saved.kind)
    hasher = next(number for number, name in reader.HASHERS.items() if name == saved.hasher)
    layout, num_bits = fields.get("layout", saved.layout), fields.get("num_bits", saved.num_bits)
    extra = fields.get("extra", saved.extra)
    assert isinstance(extra, tuple)
    head = struct.pack(
        "<8sH4BHQQd16sQ6Q",
        *(b"BLOOMERY", 1, kind, layout, hasher, saved.lines_per_key, saved.num_hashes, num_bits),
        *(saved.capacity, saved.error_rate, saved.seed.to_bytes(16, "little"), len(body), *extra),
    )
    assert len(body) < 1 << 20
    return head + struct.pack("<QQ", _native.checksum(head), _native.checksum(body)) + body


def packed(slots: list[int], width: int) -> bytes:
    """Slots side by side, with the bytes behind them that the page asks for."""
    whole = "".join(f"{value:0{width}b}" for value in reversed(slots))
    nbytes = reader_family.lines_of(-(-len(slots) * width // 8) + 8) * 64
    return int(whole, 2).to_bytes(nbytes, "little")


@pytest.mark.parametrize("error_rate", [0.1, 0.01, 1e-6])
def test_doubling_as_the_page_says(error_rate: float) -> None:
    """A table whose buckets are doubled by the page's rules, without the keys, loses none."""
    filter = ScalableBloomFilter(300, error_rate)
    filter.update(range(100))
    for _ in range(5):  # of the two bits that entries know, none is left after two
        saved = table(filter)
        most, width, field_mask = saved.stream_bits, saved.width, (1 << saved.field_bits) - 1
        rooms: list[list[int]] = [[] for _ in range(2 * saved.buckets)]
        for number in range(saved.buckets):
            for value in filter_out_zeros(saved.bucket(number)):
                field, above = value & field_mask, value & ~field_mask
                field = forget(field, most, 2)
                if field == 1 << most:  # it ends at once: it knows no bit
                    rooms[2 * number].append(above | field)
                    rooms[2 * number + 1].append(above | field)
                else:
                    rooms[2 * number + (field >> most)].append(above | field << 1 & field_mask)
        slots = [0] * (saved.buckets * 16)
        for number, room in enumerate(rooms):
            assert len(room) <= 8
            slots[number * 8 : number * 8 + len(room)] = room
        extra = (saved.extra[0] + saved.buckets, sum(map(bool, slots)), *saved.extra[2:])
        num_bits = len(slots) * width
        data = written(saved, packed(slots, width), layout=16, num_bits=num_bits, extra=extra)
        filter = ScalableBloomFilter.from_bytes(data)
        assert filter.contains_many(list(range(100))) == [True] * 100
        agree(filter, table(filter), OTHERS)


def forget(field: int, most: int, known: int) -> int:
    """A field of up to `most` bits that knows no more than the first `known`."""
    cut = field >> (most - known) << (most - known) | 1 << (most - known)
    return cut if most - (field & -field).bit_length() + 1 > known else field


def filter_out_zeros(values: Iterable[int]) -> list[int]:
    return [value for value in values if value]


def test_a_table_written_by_the_page() -> None:
    """A cuckoo filter that another program wrote is read, and its keys are there."""
    filter = CuckooFilter(500, 0.001)
    saved = table(filter)
    slots = [0] * (-(-saved.buckets // 2) * 8)
    for key in range(200):
        h = reader.hash_key(key, saved.hasher, saved.seed)
        tag = h >> (64 - saved.tag_bits) or 1
        bucket = reader.mulhi(reader.rotl(h, saved.tag_bits), saved.buckets)
        free = slots.index(0, 4 * bucket)
        if free < 4 * bucket + 4:
            slots[free] = tag
        else:
            both = reader.mulhi(tag * GOLDEN & reader.MASK, saved.buckets) | 1
            slots[slots.index(0, 4 * ((both - bucket) % saved.buckets))] = tag
    extra = (saved.extra[0], 200, 0, 200, 0, 0)
    made = CuckooFilter.from_bytes(written(saved, packed(slots, saved.width), extra=extra))
    assert made.contains_many(list(range(200))) == [True] * 200
    assert made.remove_many(list(range(200))) == [True] * 200
    assert sum(made.contains_many(list(range(200)))) == 0
