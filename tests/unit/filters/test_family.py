"""What all kinds have in common: one vocabulary, the same answers through every door, one gate."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter, CuckooFilter, RotatingBloomFilter, errors
from bloomery.filters import COMMON_KINDS, AnyFilter, RedisBloomFilter, RedisCuckooFilter
from unit.kinds import KEYS, REMOVING, every_kind, every_open, every_other, made


def names(one: type[AnyFilter]) -> set[str]:
    return {name for name in dir(one) if not name.startswith("_")}


@every_other
def test_one_vocabulary(kind: str) -> None:
    """What a plain filter can do, every filter can, under the same name and with the same words."""
    only_plain = {"fold", "from_keys", "layout", "positions", "with_shape"}
    if kind == "counting":
        only_plain -= {"positions", "with_shape"}
    assert names(BloomFilter) - names(COMMON_KINDS[kind]) == only_plain
    info, plain = made(kind).info(), made("bloom").info()
    assert plain.keys() - info.keys() <= {"layout", "num_bits", "num_hashes", "lines_per_key"}
    assert info["kind"] == kind
    assert json.loads(json.dumps(info)) == info


@every_kind
def test_contains_is_in(kind: str) -> None:
    """`contains(key)` says what `key in filter` says, and errs as it does."""
    filter = made(kind)
    asked = [*KEYS[:50], *range(10_000, 10_500)]
    assert [filter.contains(key) for key in asked] == [key in filter for key in asked]
    assert filter.contains(KEYS[0]) is True
    assert filter.contains("nobody") is False
    with pytest.raises(errors.UnsupportedKey, match="float cannot be a key"):
        filter.contains(1.5)


def test_contains_of_what_speaks_redisbloom() -> None:
    """So do the two filters of RedisBloom, whose keys are bytes."""
    for filter in (RedisBloomFilter(), RedisCuckooFilter()):
        filter.add(b"alice")
        assert filter.contains(b"alice")
        assert not filter.contains(b"nobody")


@every_other
def test_the_figures_are_those_of_info(kind: str) -> None:
    """A property and the entry of `info` by its name agree; repr shows the count."""
    filter = made(kind)
    for name in ("capacity", "error_rate", "nbytes", "estimated_count", "fill_ratio", "saturated"):
        assert getattr(filter, name) == filter.info()[name]
    assert abs(filter.estimated_count - len(KEYS)) < 30
    assert 0 < filter.fill_ratio <= 1
    assert not filter.saturated
    assert f"<{type(filter).__name__}(capacity=" in repr(filter)
    assert f"{filter.nbytes:,} bytes>" in repr(filter)


@every_other
def test_every_door_gives_the_same_answers(kind: str) -> None:
    """One by one, as a list, tuple, iterator, array or lines: the same keys, the same answers."""
    filter = made(kind)
    asked = [*KEYS, *(f"absent {n}" for n in range(5000))]
    one_by_one = [key in filter for key in asked]
    assert all(one_by_one[: len(KEYS)])
    for batch in (asked, tuple(asked), iter(asked), np.array(asked), np.array(asked, "S")):
        assert list(filter.contains_many(batch)) == one_by_one
    assert list(filter.contains_many(np.array(asked), threads=4)) == one_by_one
    text = "".join(f"{key}\n" for key in asked).encode()
    kept = [key for key, found in zip(asked, one_by_one, strict=True) if found]
    found, used, seen, count = filter.contains_lines(text)
    assert found.decode().splitlines() == kept
    assert (used, seen, count) == (len(text), len(asked), len(kept))
    assert filter.hash_of("a") == BloomFilter(1).hash_of("a")


@every_open
def test_ints_go_in_and_come_out(kind: str) -> None:
    """Int64 columns, which have loops of their own, are the keys that other ints are."""
    numbers = np.arange(-2500, 2500)
    whole, rows, single = (made(kind, 10_000) for _ in range(3))
    new = whole.add_many(numbers)
    assert new.mean() > 0.99
    rows.update(numbers)
    assert [single.add(number) for number in numbers.tolist()] == new.tolist()
    assert whole == rows == single
    assert whole.contains_many(numbers, threads=2).all()
    assert all(number in whole for number in numbers.tolist())
    assert whole.contains_many(numbers[::3]).all()
    assert whole.contains_many(numbers.astype("i4")).all()


@every_other
def test_merging_says_what_is_wrong(kind: str) -> None:
    """Filters that cannot be merged are IncompatibleFilters, with a reason; nothing has changed."""
    filter, twin = made(kind), made(kind, seed=1)
    before = filter.copy()
    for other in (twin, made("bloom"), "text"):
        with pytest.raises(errors.IncompatibleFilters):
            filter |= other
        with pytest.raises(errors.IncompatibleFilters):
            filter &= other
    with pytest.raises(TypeError):
        filter | "text"
    assert filter == before
    try:
        union = filter | filter.copy()
        filter |= filter
    except errors.IncompatibleFilters:
        assert filter == before
        return
    assert all(union.contains_many(KEYS))
    assert all(filter.contains_many(KEYS))


@pytest.mark.parametrize("kind", REMOVING)
def test_removing(kind: str) -> None:
    """`remove` and `discard` are a set's; batches and lines tell what was removed."""
    filter = made(kind)
    with pytest.raises(KeyError) as caught:
        filter.remove("absent")
    assert caught.value.args == ("absent",)
    assert filter.discard("absent") is False
    removed = [filter.discard(key) for key in KEYS[:100]]
    assert sum(removed) > 90
    assert all(filter.contains_many(KEYS[100:]))
    assert sum(filter.remove_many(KEYS[100:200])) > 90
    lines = "".join(f"{key}\n" for key in KEYS[200:]).encode()
    taken, used, seen, count = filter.remove_lines(lines + b"absent\n")
    assert (used, seen) == (len(lines) + 7, 101)
    assert count == taken.count(b"\n") > 90
    assert b"absent" not in taken


@every_open
def test_threads(kind: str) -> None:
    """Questions and saves beside batches that write see every key that was there before."""
    filter = made(kind, 200_000, 0.01)
    stop, wrong = threading.Event(), []

    def reader() -> None:
        stable = np.array(KEYS * 10)
        while not stop.is_set():
            if not filter.contains_many(stable, threads=2).all():
                wrong.append("a batch")

    def single() -> None:
        while not stop.is_set():
            if not all(key in filter for key in KEYS):
                wrong.append("a key")

    def writer(start: int) -> None:
        numbers = np.arange(start, start + 10_000)
        for piece in np.split(numbers, 4):
            filter.update(piece)
            for number in range(start, start + 50):
                filter.add(number + 10**9)
            if not filter.contains_many(piece).all():
                wrong.append("an addition")

    def saver() -> None:
        while not stop.is_set():
            if not all(type(filter).from_bytes(filter.to_bytes()).contains_many(KEYS)):
                wrong.append("a save")

    looking = [threading.Thread(target=work) for work in (reader, single, saver)]
    writing = [threading.Thread(target=writer, args=(n * 10**6,)) for n in range(3)]
    for thread in (*looking, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    stop.set()
    for thread in looking:
        thread.join()
    assert not wrong
    assert filter.contains_many(np.arange(10_000)).all()


def test_a_batch_that_does_not_fit() -> None:
    """FilterFull comes where the room ends: what stood before is in, what stands after is not."""
    for batch in (np.arange(5000), list(range(5000)), np.arange(5000).astype("i4")):
        filter = CuckooFilter(100)
        with pytest.raises(errors.FilterFull):
            filter.update(batch)
        count = filter.estimated_count
        assert 100 <= count < 200
        assert all(filter.contains_many(list(range(count))))
        assert not all(filter.contains_many(list(range(count, 5000))))


def test_a_clock_can_be_anything() -> None:
    """What a clock raises comes out, nonsense is refused, and a clock that holds its filter dies
    with it."""

    class Owner:
        def now(self) -> float:
            return 0.0

    filter = RotatingBloomFilter(10, clock=lambda: 0.0)
    filter.set_clock(lambda: float("nan"))
    with pytest.raises(errors.InvalidParameter, match="clock"):
        filter.add("key")
    filter.set_clock(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        filter.contains_many(["key"])
    owner: Any = Owner()
    owner.filter = RotatingBloomFilter(10, clock=owner.now)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
