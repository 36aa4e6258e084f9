"""Records of keys, applied to filters: live, in a replay and on every node the answers and the
bytes are the same, however the keys are split into records and slices."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    ScalableBloomFilter,
    _native,
    errors,
)
from bloomery.filters import creation
from bloomery.service.domain.operations import Op, Record, named
from unit.service.durability.serving import NOW, SETTINGS, WIDTH

REFUSED = 3
# How each filter is made, and how many keys it takes at most.
CASES: dict[str, tuple[dict[str, Any], int | None]] = {
    **{kind: ({"kind": kind, **settings}, None) for kind, settings in SETTINGS.items()},
    **{f"{kind}, 25 keys": ({"kind": kind, **SETTINGS[kind]}, 25) for kind in SETTINGS},
    "cuckoo, small": ({"kind": "cuckoo", "capacity": 20, "error_rate": 0.01}, None),
    "redisbloom, fixed": ({"kind": "redisbloom", **SETTINGS["redisbloom"], "expansion": 0}, None),
    "rediscuckoo, fixed": (
        {"kind": "rediscuckoo", **SETTINGS["rediscuckoo"], "capacity": 16, "expansion": 0},
        None,
    ),
}
OPS = (Op.ADD, Op.REMOVE, Op.ADD_NEW)
Step = tuple[Op, list[int]]
some_steps = st.lists(
    st.tuples(st.sampled_from(OPS), st.lists(st.integers(0, 70), max_size=90)), max_size=12
)


def make(case: str) -> Any:
    filter = creation.create(dict(CASES[case][0]), lambda: NOW)
    if filter.kind == "rotating":
        filter.set_clock(lambda: NOW)
    return filter


def shelf_of(case: str, filter: Any, items: int = 0) -> _native.Shelf:
    shelf = _native.Shelf()
    shelf.put(b"one", filter, 1, items=items, limit=CASES[case][1], full="it is full")
    return shelf


Outcome = tuple[bytes, tuple[str, str] | None]


def apply(shelf: _native.Shelf, op: Op, data: bytes) -> Outcome:
    """Apply a record of `one`, all of it."""
    done = shelf.apply_one(1, op, named(b"one", data))
    assert done is not None
    return done


def apply_in_slices(shelf: _native.Shelf, op: Op, data: bytes) -> Outcome:
    """Apply a record of `one` as a server does, with as many breaks as there can be."""
    results: list[Any] = []
    records = [(1, int(op), named(b"one", data))]
    while True:
        done = shelf.apply(records, results, 0.0)
        if done is None:
            results.append(shelf.apply_one(*records[0]))
        if done is not False:
            (result,) = results
            outcome: Outcome = result
            return outcome


def key(n: int) -> bytes:
    """As a bank has it too: of one of three users."""
    return b"user %d\tkey %d" % (n % 3, n)


def items(shelf: _native.Shelf) -> int:
    figures = shelf.figures(b"one")
    assert figures is not None
    return figures[0]


class Model:
    """Key by key: a record for each."""

    def __init__(self, case: str) -> None:
        self.filter = make(case)
        self.shelf = shelf_of(case, self.filter)
        self.refusal: tuple[str, str] | None = None

    def do(self, op: Op, keys: list[int]) -> Outcome:
        self.refusal = None
        return bytes(self.one(op, key(n)) for n in keys), self.refusal

    def one(self, op: Op, name: bytes) -> int:
        if op == Op.ADD_NEW and self.shelf.contains(b"one", [name]) == b"\1":
            return 0
        op = Op.ADD if op == Op.ADD_NEW else op
        answers, refusal = apply(self.shelf, op, self.shelf.hashes(b"one", [name]))
        if refusal is not None:
            self.refusal = self.refusal or refusal
            return REFUSED
        return answers[0]


class Node:
    """A copy that takes the same records in batches of its own, and was loaded now and then."""

    def __init__(self, case: str, seed: int) -> None:
        self.case, self.draw = case, random.Random(seed)
        self.filter = make(case)
        self.shelf = shelf_of(case, self.filter)

    def do(self, op: Op, data: bytes) -> Outcome:
        if self.draw.random() < 0.3:
            self.filter = type(self.filter).from_bytes(self.filter.to_bytes())
            if self.filter.kind == "rotating":
                self.filter.set_clock(lambda: NOW)
            self.shelf = shelf_of(self.case, self.filter, items(self.shelf))
        width, answers, first = WIDTH.get(self.filter.kind, 8), b"", None
        while True:
            cut = width * self.draw.choice([1, 2, 3, 5, 50, 1000])
            way = self.draw.choice([apply, apply_in_slices])
            some, refusal = way(self.shelf, op, data[:cut])
            answers += some
            first = first or refusal
            data = data[cut:]
            if not data:
                return answers, first


@pytest.mark.parametrize("case", CASES)
@given(steps=some_steps, seed=st.integers(0, 1 << 30))
def test_every_node_comes_to_the_same(case: str, steps: list[Step], seed: int) -> None:
    """In any number of records and slices, and as key by key."""
    whole, alone, node = make(case), Model(case), Node(case, seed)
    shelf = shelf_of(case, whole)
    for op, keys in steps:
        data = shelf.hashes(b"one", [key(n) for n in keys])
        told = apply(shelf, op, data)
        assert len(told[0]) == len(keys)
        assert told == alone.do(op, keys)
        assert told == node.do(op, data)
    assert whole.to_bytes() == alone.filter.to_bytes()
    if whole.kind != "bank":  # which keeps how often it was opened when a key came
        assert whole.to_bytes() == node.filter.to_bytes()
    assert items(shelf) == items(alone.shelf) == items(node.shelf)
    assert shelf.take_log()[0] == []


def test_cases_refuse() -> None:
    """Else the test above would not see what it is for."""
    for case in CASES:
        shelf = shelf_of(case, make(case))
        data = shelf.hashes(b"one", [key(n) for n in range(2000)])
        answers, refusal = apply(shelf, Op.ADD, data)
        assert (REFUSED in answers) == (refusal is not None) == ("," in case or case == "cuckoo")


@pytest.mark.parametrize("kind", [BloomFilter, ScalableBloomFilter, CountingBloomFilter])
@given(steps=some_steps, limit=st.integers(0, 60))
def test_a_limit_holds(kind: Any, steps: list[Step], limit: int) -> None:
    """As a set of keys that takes so many, and copies where they are counted."""
    shelf, counts, held = _native.Shelf(), kind is CountingBloomFilter, Counter[int]()
    shelf.put(b"one", kind(1000, 1e-9), 1, limit=limit, full="it is full")
    count = taken = 0
    for op, numbers in steps:
        if op == Op.REMOVE and not counts:
            continue
        expected = []
        for n in numbers:
            if op == Op.REMOVE:
                answer = int(held[n] > 0)
                held[n] -= answer
                count = max(count - answer, 0)
            elif held[n]:
                answer = 0
                held[n] += counts and op == Op.ADD
            else:
                answer = 1 if count < limit else REFUSED
                held[n] += answer == 1
                count += answer == 1
            taken += op != Op.REMOVE and answer != REFUSED
            expected.append(answer)
            if held[n] > 200:
                return  # counters saturate
        data = shelf.hashes(b"one", numbers)
        refusal = ("filter-full", "it is full") if REFUSED in expected else None
        assert apply(shelf, op, data) == (bytes(expected), refusal)
    assert shelf.figures(b"one") == (count, taken, 0, 0)


def test_a_threshold_that_is_reached_is_told_once() -> None:
    shelf = _native.Shelf()
    shelf.put(b"one", BloomFilter(1000), 5, threshold=3)
    for n, reached in ([0, 1], []), ([2, 3], [5]), ([4, 5], []):
        shelf.apply_one(5, Op.ADD, named(b"one", shelf.hashes(b"one", n)))
        assert shelf.take_reached() == reached


@pytest.mark.parametrize("op", [Op.ADD, Op.ADD_NEW])
def test_a_node_without_memory_does_not_answer(op: Op) -> None:
    """What others answer it cannot know. Keys before that one are in, and counted."""
    shelf = _native.Shelf()
    shelf.put(b"one", ScalableBloomFilter(100, 0.001), 1)
    data = shelf.hashes(b"one", list(range(20_000)))
    _native.set_memory_limit(_native.memory_used() + 4096)
    try:
        for _ in range(2):  # and it asks for memory again each time
            with pytest.raises(errors.NotEnoughMemory):
                apply(shelf, op, data)
    finally:
        _native.set_memory_limit()
    assert 100 < items(shelf) < 10_000
    before = items(shelf)
    answers, refusal = apply(shelf, op, data)
    assert (before + answers.count(1), refusal) == (items(shelf), None)
    assert REFUSED not in answers


def test_bytes_that_are_no_hashes_are_refused() -> None:
    """As elsewhere, before anything is done."""
    for case in CASES:
        shelf = shelf_of(case, filter := make(case))
        before = filter.to_bytes()
        for nbytes in {1, 7, 9, WIDTH.get(filter.kind, 8) + 4}:
            for ask in (shelf.apply_one, shelf.unchanged):
                with pytest.raises(errors.InvalidParameter, match="are no hashes"):
                    ask(1, Op.ADD, named(b"one", bytes(nbytes)))
            # Python applies it, and reports the error.
            assert shelf.apply([(1, Op.ADD, named(b"one", bytes(nbytes)))], [], 1.0) is None
        if filter.kind in WIDTH:
            with pytest.raises(errors.InvalidParameter, match="16 bytes each"):
                apply(shelf, Op.ADD, bytes(24))
        assert filter.to_bytes() == before
        assert apply(shelf, Op.ADD, b"") == (b"", None)


def test_only_hashes_of_filters_that_are_there_are_applied() -> None:
    shelf = _native.Shelf()
    shelf.put(b"coming", BloomFilter(10), 1, loading=True)
    assert shelf.apply_one(1, Op.ADD, named(b"none")) is None
    assert shelf.unchanged(1, Op.ADD, named(b"none")) is None
    with pytest.raises(errors.InvalidParameter, match="loaded"):
        shelf.apply_one(1, Op.ADD, named(b"coming", bytes(8)))
    assert shelf.unchanged(1, Op.ADD, named(b"coming")) is None
    with pytest.raises(errors.InvalidParameter, match="operation 3"):
        shelf.apply_one(1, Op.CREATE, named(b"coming"))
    for data in (b"", b"\1", b"\7\0coming"):
        with pytest.raises(errors.CorruptData, match="truncated in its name"):
            shelf.apply_one(1, Op.ADD, data)
        assert shelf.apply([(1, Op.ADD, data)], [], 1.0) is None


def test_record_of_another_filter_is_not_applied() -> None:
    """Another filter has the name, or the filter has another name: the result is None, and the
    records around it are applied."""
    shelf = _native.Shelf()
    shelf.put(b"one", one := BloomFilter(100), 1)
    shelf.put(b"two", two := BloomFilter(100), 2)
    data = shelf.hashes(b"one", ["a"])
    results: list[Any] = []
    records: list[Record] = [
        (2, Op.ADD, named(b"one", data)),
        (1, Op.ADD, named(b"two", data)),
        (2, Op.ADD, named(b"two", data)),
        (3, Op.ADD, named(b"gone", data)),
    ]
    assert shelf.apply(records, results, 10.0) is True
    assert results == [None, None, (b"\1", None), None]
    assert ("a" in one, "a" in two) == (False, True)
    assert shelf.apply_one(2, Op.ADD, named(b"one", data)) is None
    assert shelf.unchanged(2, Op.ADD, named(b"one", data)) is None
    assert shelf.unchanged(2, Op.ADD, named(b"two", data)) == b"\0"


def test_records_for_python_stop_native_code() -> None:
    """Other operations, filters that a thread works on, and filters whose successor gets the keys.
    Results before them stay. The lock of a transaction does not stop records."""
    shelf = _native.Shelf()
    shelf.put(b"one", BloomFilter(100), 1)
    data = shelf.hashes(b"one", ["a"])
    first: Record = (1, Op.ADD, named(b"one", data))
    results: list[Any] = []
    records: list[Record] = [first, (1, Op.CLEAR, named(b"one")), first]
    assert shelf.apply(records, results, 10.0) is None
    assert results == [(b"\1", None)]
    results.append("Python's")
    assert shelf.apply(records, results, 10.0) is True
    assert results == [(b"\1", None), "Python's", (b"\0", None)]
    shelf.set_locked(b"one", True)
    assert shelf.apply([first], [], 10.0) is True
    shelf.set_busy(b"one", True)
    assert shelf.apply([first], [], 10.0) is None
    shelf.set_busy(b"one", False)
    shelf.put(b"one", BloomFilter(100), 1, followed=True)
    assert shelf.apply([first], [], 10.0) is None


def test_record_in_slices_is_not_mixed_with_others() -> None:
    """While a long record is applied in slices, a task applies records of other filters: each gets
    its own answers, and no key is lost."""
    shelf = _native.Shelf()
    shelf.put(b"long", long := BloomFilter(100_000, 1e-6), 1)
    shelf.put(b"short", short := BloomFilter(100_000, 1e-6), 2)
    keys = list(range(20_000))
    record: Record = (1, Op.ADD, named(b"long", shelf.hashes(b"long", keys)))
    results: list[Any] = []
    slices = 0
    while shelf.apply([record], results, 0.0) is False:
        some = [-1 - slices - n * 1_000_000 for n in range(3000)]
        data = named(b"short", shelf.hashes(b"short", some))
        assert shelf.apply_one(2, Op.ADD, data) == (b"\1" * 3000, None)
        assert all(short.contains_many(some))
        shelf.set_locked(b"long", True)  # a transaction starts
        slices += 1
    assert slices > 5
    assert results == [(b"\1" * 20_000, None)]
    assert all(long.contains_many(keys))
    assert shelf.figures(b"long") == (20_000, 20_000, 0, 0)


@pytest.mark.parametrize("case", CASES)
def test_what_changes_nothing_is_known_ahead(case: str) -> None:
    """Keys that are there, where that is enough; asking counts as no check."""
    filter = make(case)
    shelf = shelf_of(case, filter)
    some = shelf.hashes(b"one", [key(n) for n in range(10)])
    more = shelf.hashes(b"one", [key(n) for n in range(1000)])

    def unchanged(op: Op, data: bytes) -> bytes | None:
        return shelf.unchanged(1, op, named(b"one", data))

    for op in (Op.ADD, Op.ADD_NEW):
        assert unchanged(op, some) is None
    assert REFUSED not in apply(shelf, Op.ADD, some)[0]
    counts = filter.kind not in ("bloom", "scalable", "redisbloom", "bank")
    before = filter.to_bytes()
    assert unchanged(Op.ADD, some) == (None if counts else bytes(10))
    assert unchanged(Op.ADD_NEW, some) == bytes(10)
    assert unchanged(Op.REMOVE, some) is None
    assert unchanged(Op.ADD, more) is None
    assert unchanged(Op.ADD_NEW, more) is None
    figures = shelf.figures(b"one")
    assert figures is not None
    assert figures[2:] == (0, 0)
    assert filter.to_bytes() == before
    if not counts:
        assert apply(shelf, Op.ADD, some) == (bytes(10), None)
    assert apply(shelf, Op.ADD_NEW, some) == (bytes(10), None)
    assert filter.to_bytes() == before


def test_what_a_successor_has_to_get_is_written() -> None:
    """The filter that a rebuild makes has not got what this one has."""
    shelf = _native.Shelf()
    shelf.put(b"one", filter := BloomFilter(10), 1)
    data = shelf.hashes(b"one", ["a"])
    apply(shelf, Op.ADD, data)
    assert shelf.unchanged(1, Op.ADD, named(b"one", data)) == b"\0"
    shelf.put(b"one", filter, 1, followed=True)
    assert shelf.unchanged(1, Op.ADD, named(b"one", data)) is None


def test_keys_behind_a_refused_copy_are_taken() -> None:
    """A cuckoo filter takes one key so often, and then others still."""
    shelf = _native.Shelf()
    shelf.put(b"one", CuckooFilter(100), 1)
    many = shelf.hashes(b"one", ["a"] * 200 + ["b", "a", "c"])
    answers, refusal = apply(shelf, Op.ADD, many)
    assert refusal is not None
    assert refusal[0] == "too-many-copies"
    assert answers[0] == 1
    assert answers[-3:] == b"\1\3\1"


records = st.lists(
    st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, 255), st.binary(max_size=50))
)


@given(records)
def test_records_come_back(made: list[tuple[int, int, bytes]]) -> None:
    """By the layout that the module's head gives; cut off anywhere they do not."""
    packed = _native.pack_records(made)
    assert packed == b"".join(
        struct.pack("<QBI", id, op, len(data)) + data for id, op, data in made
    )
    assert _native.unpack_records(packed) == made
    ends = {len(_native.pack_records(made[:count])) for count in range(len(made) + 1)}
    for nbytes in range(len(packed)):
        if nbytes in ends:
            assert _native.unpack_records(packed[:nbytes]) == made[: sorted(ends).index(nbytes)]
            continue
        with pytest.raises(errors.CorruptData, match="cut off"):
            _native.unpack_records(packed[:nbytes])
    for behind in (b"\0", bytes(12), b"\xff" * 13):
        with pytest.raises(errors.CorruptData):
            _native.unpack_records(packed + behind)


def test_what_is_no_record_is_not_packed() -> None:
    for wrong in ((-1, 1, b""), (1 << 64, 1, b""), (1, 256, b"")):
        with pytest.raises(OverflowError):
            _native.pack_records([wrong])
