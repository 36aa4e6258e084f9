"""The shelf: filters by name, what is answered, counted and logged."""

import pytest

from bloomery import RotatingBloomFilter, ScalableBloomFilter, _native

NO_ROOM = 2


@pytest.fixture
def shelf() -> _native.Shelf:
    return _native.Shelf()


@pytest.mark.parametrize("several", [True, False])
def test_a_key_without_memory_is_refused_and_the_others_are_not(
    shelf: _native.Shelf, several: bool
) -> None:
    """Where a filter cannot grow, keys that are there are answered as ever, new ones are refused
    one by one, and only what is in was logged."""
    shelf.put(b"grows", ScalableBloomFilter(100, 0.001), 1)
    keys = [b"%d" % n for n in range(20_000)]
    _native.set_memory_limit(_native.memory_used() + 4096)
    try:
        if several:
            answers, refused = shelf.add(b"grows", keys)
            assert refused is None
        else:
            answers = b"".join(shelf.add(b"grows", [key])[0] for key in keys)
    finally:
        _native.set_memory_limit()
    added = [key for key, answer in zip(keys, answers, strict=True) if answer == 1]
    assert 100 < len(added) < 10_000
    assert answers.count(NO_ROOM) > 5_000
    assert shelf.contains(b"grows", added) == b"\x01" * len(added)
    assert sum(len(data) for _, _, data in shelf.take_log()) == 8 * len(added)
    figures = shelf.figures(b"grows")
    assert figures is not None
    assert figures[0] == len(added)
    assert shelf.add(b"grows", added[:3]) == (b"\x00\x00\x00", None)


def test_a_key_that_could_not_be_made_new_again_is_refused(shelf: _native.Shelf) -> None:
    """A rotating filter without memory does not acknowledge a key that it knows: it would forget it
    too early."""
    shelf.put(b"window", RotatingBloomFilter(100, 0.001, window="1h"), 1)
    keys = [b"%d" % n for n in range(20_000)]
    _native.set_memory_limit(_native.memory_used())
    try:
        answers, _ = shelf.add(b"window", keys)
        assert answers[0] == 1
        assert NO_ROOM in answers
        assert shelf.add(b"window", [keys[0]])[0] == bytes([NO_ROOM])
    finally:
        _native.set_memory_limit()


def test_figures_stay_when_a_filter_is_put_again(shelf: _native.Shelf) -> None:
    """What was counted of a filter is not forgotten because it got an end, say."""
    filter = ScalableBloomFilter(100)
    shelf.put(b"name", filter, 7)
    shelf.add(b"name", [b"a", b"b"])
    shelf.contains(b"name", [b"a", b"c"])
    shelf.put(b"name", filter, 7, items=2, limit=4000)
    assert shelf.figures(b"name") == (2, 2, 2, 1)
    shelf.put(b"name", ScalableBloomFilter(100), 8)
    assert shelf.figures(b"name") == (0, 0, 0, 0)
