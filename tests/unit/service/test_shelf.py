"""The shelf: filters by name, what is answered, counted and logged."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from bloomery import BloomFilter, RotatingBloomFilter, ScalableBloomFilter, _native

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


class Using:
    """A key whose own code uses the shelf that it is being added to."""

    def __init__(self, use: Callable[[], object]) -> None:
        self.use = use

    def __index__(self) -> int:
        self.use()
        return 7


def test_a_key_may_use_the_shelf(shelf: _native.Shelf) -> None:
    """Nothing is locked while keys are hashed; a filter that took the name meanwhile gets them."""
    shelf.put(b"name", BloomFilter(1000), 1)
    other = BloomFilter(1000, hasher="siphash", seed=5)

    def run() -> None:
        use = cast(Any, Using(lambda: shelf.add(b"name", [8])))
        assert shelf.add(b"name", [use])[0] == b"\1"
        assert shelf.contains(b"name", [7, 8, 9]) == b"\1\1\0"
        use = cast(Any, Using(lambda: shelf.put(b"name", other, 2)))
        assert shelf.add(b"name", [use])[0] == b"\1"
        assert 7 in other

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for itself"
    assert 7 in other
