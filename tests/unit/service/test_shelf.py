"""The shelf: filters by name, what is answered, counted and logged."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from bloomery import BloomFilter, CountingBloomFilter, ScalableBloomFilter, _native
from bloomery.service.domain.operations import Op, named


@pytest.fixture
def shelf() -> _native.Shelf:
    return _native.Shelf()


def add(shelf: _native.Shelf, name: bytes, keys: list[Any]) -> bytes:
    """Note keys, and apply them as if the log had them; return the answers."""
    count, noted = shelf.note_keys(name, keys, Op.ADD)
    if noted is None:
        return bytes(count)
    record, first = noted
    results: list[Any] = []
    assert shelf.apply(shelf.take_log()[0], results, 60.0) is True
    answers, refusal = results[record]
    assert refusal is None
    return bytes(answers[first : first + count])


def test_noted_keys_change_nothing(shelf: _native.Shelf) -> None:
    """Only what the log has is applied: a batch that it refuses leaves no trace."""
    shelf.put(b"name", filter := BloomFilter(1000), 7)
    before = filter.to_bytes()
    assert shelf.note_keys(b"name", ["a", "b"], Op.ADD) == (2, (0, 0))
    assert shelf.note(9, Op.CLEAR, b"data") == 1
    assert shelf.note_keys(b"name", ["c"], Op.REMOVE) == (1, (2, 0))
    hashes = shelf.hashes(b"name", ["a", "b", "c"])
    assert shelf.take_log()[0] == [
        (7, Op.ADD, named(b"name", hashes[:16])),
        (9, Op.CLEAR, b"data"),
        (7, Op.REMOVE, named(b"name", hashes[16:])),
    ]
    assert shelf.take_log()[0] == []
    assert filter.to_bytes() == before
    assert shelf.figures(b"name") == (0, 0, 0, 0)


@pytest.mark.parametrize("exclusive", [True, False])
def test_present_keys_need_no_record(shelf: _native.Shelf, exclusive: bool) -> None:
    """Where no other process writes the log, and adding again changes nothing. They count as
    added."""
    shelf.exclusive = exclusive
    shelf.put(b"plain", BloomFilter(1000), 1)
    shelf.put(b"counts", CountingBloomFilter(1000), 2)
    for name in (b"plain", b"counts"):
        add(shelf, name, ["a", "b"])
    expected = (2, None) if exclusive else (2, (0, 0))
    assert shelf.note_keys(b"plain", ["b", "a"], Op.ADD) == expected
    assert len(shelf.take_log()[0]) == (0 if exclusive else 1)
    figures = shelf.figures(b"plain")
    assert figures is not None
    assert figures[1] == (4 if exclusive else 2)
    assert shelf.note_keys(b"plain", ["b", "new"], Op.ADD) == (2, (0, 0))
    assert shelf.note_keys(b"counts", ["a"], Op.ADD) == (1, (1, 0))  # another copy
    shelf.take_log()
    assert shelf.note_keys(b"counts", ["a"], Op.ADD_NEW)[1] == (None if exclusive else (0, 0))


def test_removal_in_the_same_batch_needs_a_record(shelf: _native.Shelf) -> None:
    """A client removes a key and adds it if it is new. When the second is noted the key is still
    present, and when it is applied it is not."""
    shelf.exclusive = True
    shelf.put(b"counts", CountingBloomFilter(1000), 1)
    add(shelf, b"counts", ["a"])
    assert shelf.note_keys(b"counts", ["a"], Op.REMOVE) == (1, (0, 0))
    assert shelf.note_keys(b"counts", ["a"], Op.ADD_NEW) == (1, (1, 0))
    results: list[Any] = []
    assert shelf.apply(shelf.take_log()[0], results, 60.0) is True
    assert results == [(b"\1", None), (b"\1", None)]
    assert shelf.contains(b"counts", ["a"]) == b"\1"
    assert shelf.note_keys(b"counts", ["a"], Op.ADD_NEW) == (1, None)  # the next batch


def test_memory_is_checked_ahead(shelf: _native.Shelf) -> None:
    """A record in the log must be applied, so a filter that would grow beyond the limit takes no
    keys. Filters that do not grow do."""
    shelf.put(b"grows", ScalableBloomFilter(100, 0.001), 1)
    shelf.put(b"plain", BloomFilter(100), 2)
    assert shelf.memory_limit is None
    assert shelf.has_memory(b"grows", 1_000_000)
    shelf.memory_limit = _native.memory_used()
    assert shelf.has_memory(b"grows", 10)
    assert not shelf.has_memory(b"grows", 10_000)
    assert shelf.has_memory(b"plain", 10_000)
    assert shelf.has_memory(b"none", 10_000)
    shelf.memory_limit = None
    assert shelf.has_memory(b"grows", 10_000)


def test_figures_stay_when_a_filter_is_put_again(shelf: _native.Shelf) -> None:
    """What was counted of a filter is not forgotten because it got an end, say."""
    filter = ScalableBloomFilter(100)
    shelf.put(b"name", filter, 7)
    add(shelf, b"name", [b"a", b"b"])
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
        use = cast(Any, Using(lambda: add(shelf, b"name", [8])))
        assert add(shelf, b"name", [use]) == b"\1"
        assert shelf.contains(b"name", [7, 8, 9]) == b"\1\1\0"
        use = cast(Any, Using(lambda: shelf.put(b"name", other, 2)))
        assert add(shelf, b"name", [use]) == b"\1"
        assert 7 in other

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for itself"
    assert 7 in other
