"""Many saved filters that are asked for a key at once (`_native.Pack`)."""

import mmap

import pytest

import bloomery
from bloomery import _native
from bloomery.errors import BloomeryError, CorruptData


def packed(*filters: bloomery.BloomFilter | bloomery.StaticFilter) -> tuple[mmap.mmap, list[int]]:
    """The filters end to end, and where each begins."""
    data = [filter.to_bytes() for filter in filters]
    memory = mmap.mmap(-1, sum(map(len, data)))
    places = []
    for one in data:
        places.append(memory.tell())
        memory.write(one)
    return memory, places


def test_it_answers_as_its_filters_do() -> None:
    """For every key the numbers are those of the filters that say maybe themselves."""
    filters: list[bloomery.BloomFilter | bloomery.StaticFilter] = [
        bloomery.BloomFilter.from_keys([f"a{n}" for n in range(500)], 0.1),
        bloomery.StaticFilter.build([f"b{n}" for n in range(500)], 0.1),
        bloomery.BloomFilter.from_keys([f"c{n}" for n in range(500)], 0.1, layout="classic"),
    ]
    pack = _native.Pack(*packed(*filters), True)
    keys = [f"{letter}{n}" for letter in "abcd" for n in range(500)]
    expected = [[i for i, filter in enumerate(filters) if key in filter] for key in keys]
    assert [pack.maybes(key) for key in keys] == expected
    assert pack.maybes_many(keys) == expected
    joined = _native.Pack.join([pack, pack])
    assert len(joined) == 6
    assert joined.maybes("a1") == [*expected[1], *(n + 3 for n in expected[1])]


def test_no_filters_hold_nothing() -> None:
    """An empty pack says no to everything."""
    pack = _native.Pack.join([])
    assert (len(pack), pack.maybes("a"), pack.maybes_many(["a", "b"])) == (0, [], [[], []])


def test_filters_of_two_hashers_are_refused() -> None:
    """The hash of a key is one for all."""
    filters = [bloomery.BloomFilter(10), bloomery.BloomFilter(10, seed=1)]
    with pytest.raises(CorruptData, match="hasher"):
        _native.Pack(*packed(*filters), True)


def test_other_kinds_are_refused() -> None:
    """A filter that changes is none of a segment's."""
    filter = bloomery.CountingBloomFilter(10)
    with pytest.raises(CorruptData, match="static"):
        _native.Pack(*packed(filter), True)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [-1, 1, 63, 64, 128, 1 << 40, 2**64 - 64])
def test_places_that_are_wrong_are_refused(place: int) -> None:
    """Nothing outside of the memory is read."""
    memory, _ = packed(bloomery.BloomFilter(10))
    with pytest.raises((BloomeryError, OverflowError)):
        _native.Pack(memory, [place], True)


def test_its_memory_stays_as_long_as_it_does() -> None:
    """What is mapped cannot be closed while it is asked."""
    memory, places = packed(bloomery.BloomFilter.from_keys(["a"]))
    pack = _native.Pack(memory, places, True)
    with pytest.raises(BufferError):
        memory.close()
    assert pack.maybes("a") == [0]
