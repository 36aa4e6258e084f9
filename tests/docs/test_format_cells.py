"""docs/format.md is exact for lines of cells: every bit is as the page's rules make it."""

import pytest

from bloomery import CountingBloomFilter, DeletableBloomFilter, _native
from bloomery.filters import RemovingFilter
from docs import reader, reader_family
from docs.reader_family import Cells
from privates import open_filter

# (kind, bits of a counter or regions of a line)
CELLS = [("counting", 4), ("counting", 8), *(("deletable", r) for r in (16, 32, 64, 128))]


def cells(kind: str, each: int, lines: int, per_key: int, hashes: int) -> RemovingFilter:
    """A filter of so many lines, made by its header."""
    head = _native.make_header(
        kind,
        100,
        0.01,
        "xxh3",
        9,
        lines_per_key=per_key,
        num_hashes=hashes,
        num_bits=512 * lines,
        nbytes=64 * lines,
        extra=(each,),
    )
    one = CountingBloomFilter if kind == "counting" else DeletableBloomFilter
    filter: RemovingFilter = open_filter(one, head)
    return filter


def read_cells(filter: RemovingFilter) -> Cells:
    saved = reader_family.read(filter.to_bytes())
    assert isinstance(saved, Cells)
    return saved


def add(saved: Cells, body: bytearray, key: int) -> None:
    """Add a key by the page's rules."""
    put(saved, body, key, +1)


def put(saved: Cells, body: bytearray, key: int, by: int) -> None:
    whole = int.from_bytes(body, "little")
    most = (1 << saved.width) - 1
    positions = saved.positions(reader.hash_key(key, "xxh3", 9))
    flags = 0
    for at in positions:
        value = whole >> at & most
        if saved.kind == "counting":
            whole += (value < most) * by << at
        elif by > 0:
            flags |= value << saved.flag_of(at)
            whole |= 1 << at
        elif not whole >> saved.flag_of(at) & 1:
            whole &= ~(1 << at)
    body[:] = (whole | flags).to_bytes(len(body), "little")


@pytest.mark.parametrize(
    ("per_key", "hashes"), [(1, 1), (1, 4), (1, 5), (1, 16), (2, 2), (2, 10), (2, 32)]
)
@pytest.mark.parametrize(("kind", "each"), CELLS)
def test_every_cell_is_as_the_page_says(kind: str, each: int, per_key: int, hashes: int) -> None:
    """Through adding, adding again and removing, the body is what the page's rules make of it."""
    filter = cells(kind, each, 7, per_key, hashes)
    body = bytearray(64 * 7)
    for key in [*range(25), *range(10), *[3] * 20]:
        filter.add(key)
        add(read_cells(filter), body, key)
    assert read_cells(filter).body == body
    for key in range(5, 20):
        put(read_cells(filter), body, key, -1)
        filter.remove(key)  # or, if it is stuck, not
    saved = read_cells(filter)
    assert saved.body == body
    assert all((key in filter) == saved.might_contain(key) for key in range(500))
    if isinstance(filter, CountingBloomFilter):
        assert all(filter.count(key) == saved.count_of(key) for key in range(500))
    if isinstance(filter, DeletableBloomFilter):
        free = [
            saved.might_contain(key)
            and any(
                not saved.bits(saved.flag_of(at), 1)
                for at in saved.positions(reader.hash_key(key, "xxh3", 9))
            )
            for key in range(25)
        ]
        assert [filter.removable(key) for key in range(25)] == free


@pytest.mark.parametrize("intersection", [False, True])
@pytest.mark.parametrize(("kind", "each"), CELLS)
def test_merging_as_the_page_says(kind: str, each: int, intersection: bool) -> None:
    """Union and intersection are made of the two bodies as the page says."""
    one, two = (cells(kind, each, 3, 2, 8) for _ in range(2))
    one.update([*range(20), *[1] * 13])
    two.update([*range(10, 40), *[1] * 9])
    before, other = read_cells(one), read_cells(two)
    after = read_cells(one & two if intersection else one | two)
    step = before.width if kind == "counting" else 512 // each
    for at in range(0, before.num_bits, step):
        mine, theirs, merged = (saved.bits(at, step) for saved in (before, other, after))
        if kind == "counting":
            both = min(mine, theirs) if intersection else min(mine + theirs, (1 << step) - 1)
            assert merged == both
        elif intersection:
            assert merged == mine & theirs
        else:
            met = bool(mine & theirs & (1 << step - 1) - 1)
            assert merged == mine | theirs | met << step - 1
