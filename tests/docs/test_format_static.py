"""docs/format.md is exact for static filters: a reader written from it gives bloomery's answers."""

import struct

import pytest

from bloomery import StaticFilter, _native
from docs import reader, reader_family
from docs.reader_family import Fuse

OTHERS = range(10**6, 10**6 + 400)


def read(data: bytes) -> Fuse:
    saved = reader_family.read(data)
    assert isinstance(saved, Fuse)
    return saved


@pytest.mark.parametrize("keys", [0, 1, 2, 3, 17, 1000])
@pytest.mark.parametrize("bits", [1, 2, 7, 8, 9, 16, 17, 25, 26, 31, 32])
def test_fingerprints_of_every_width(bits: int, keys: int) -> None:
    """Every key is there, and wrong maybes are those that the page derives."""
    filter = StaticFilter.build(range(keys), 0.5**bits)
    saved = read(filter.to_bytes())
    assert (saved.width, saved.keys) == (bits, keys)
    assert all(map(saved.might_contain, range(keys)))
    assert [key in filter for key in OTHERS] == [saved.might_contain(key) for key in OTHERS]


def test_a_later_attempt() -> None:
    """Where keys could not be solved at first, the attempt in the header says how they were."""
    built = (read(StaticFilter.build(range(200), seed=seed).to_bytes()) for seed in range(10_000))
    saved = next(one for one in built if one.attempt > 0)
    assert all(map(saved.might_contain, range(200)))


def order(places: dict[int, list[int]]) -> list[tuple[int, int]]:
    """(hash, its own cell) for every hash, so that no later one has an earlier one's own cell."""
    left, found = dict(places), []
    while left:
        at: dict[int, list[int]] = {}
        for h, cells in left.items():
            for cell in cells:
                at.setdefault(cell, []).append(h)
        alone = {hashes[0]: cell for cell, hashes in at.items() if len(hashes) == 1}
        assert alone, "these keys block one another"
        for h, cell in alone.items():
            found.append((h, cell))
            del left[h]
    return found


def test_a_filter_built_by_the_page() -> None:
    """A file that another program built, with sizes of its own, is read, and its keys are there."""
    keys, width, reach, starts = range(150), 11, 64, 400
    hashes = [reader.hash_key(key, "xxh3", 0) for key in keys]
    places = {}
    for h in hashes:
        first = reader.mulhi(h, starts)
        places[h] = [first, first + reach + h % reach, first + 2 * reach + (h >> 18) % reach]
    cells = [0] * (starts + 3 * reach)
    for h, own in reversed(order(places)):
        total = (h ^ h >> 32) & (1 << width) - 1
        for cell in places[h]:
            total ^= cells[cell]
        cells[own] = total
    num_bits = len(cells) * width
    nbytes = (num_bits // 8 + 8 + 63) // 64 * 64
    whole = sum(value << width * i for i, value in enumerate(cells))
    body = whole.to_bytes(nbytes, "little")
    head = struct.pack(
        "<8sH4BHQQd16sQ6Q",
        *(b"BLOOMERY", 1, 7, 0, 1, 0, 3, num_bits, len(keys), 0.001, bytes(16), nbytes),
        *(len(keys), 0, width, reach, 0, 0),
    )
    data = head + struct.pack("<QQ", _native.checksum(head), _native.checksum(body)) + body
    made = StaticFilter.from_bytes(data)
    assert made.contains_many(list(keys)) == [True] * len(keys)
    assert sum(made.contains_many(list(OTHERS))) < 10
    assert made.estimated_error_rate == 0.5**width
