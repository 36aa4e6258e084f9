"""What a shared log says, done to filters: every node gets the same answers and the same bytes."""

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
from bloomery.service.domain.operations import Op
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


def key(n: int) -> bytes:
    """As a bank has it too: of one of three users."""
    return b"user %d\tkey %d" % (n % 3, n)


def items(shelf: _native.Shelf) -> int:
    figures = shelf.figures(b"one")
    assert figures is not None
    return figures[0]


class Model:
    """Key by key, by what a server alone does with one."""

    def __init__(self, case: str) -> None:
        self.filter = make(case)
        self.shelf = shelf_of(case, self.filter)
        self.refusal: tuple[str, str] | None = None

    def do(self, op: Op, keys: list[int]) -> tuple[bytes, tuple[str, str] | None]:
        self.refusal = None
        return bytes(self.one(op, key(n)) for n in keys), self.refusal

    def one(self, op: Op, name: bytes) -> int:
        if op == Op.ADD_NEW and self.shelf.contains(b"one", [name]) == b"\1":
            return 0
        done = self.shelf.remove if op == Op.REMOVE else self.shelf.add
        answers, refusal = done(b"one", [name])
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

    def do(self, op: Op, data: bytes) -> tuple[bytes, tuple[str, str] | None]:
        if self.draw.random() < 0.3:
            self.filter = type(self.filter).from_bytes(self.filter.to_bytes())
            if self.filter.kind == "rotating":
                self.filter.set_clock(lambda: NOW)
            self.shelf = shelf_of(self.case, self.filter, items(self.shelf))
        width, answers, first = WIDTH.get(self.filter.kind, 8), b"", None
        while True:
            cut = width * self.draw.choice([1, 2, 3, 5, 50, 1000])
            some, refusal = self.shelf.apply(b"one", op, data[:cut])
            answers += some
            first = first or refusal
            data = data[cut:]
            if not data:
                return answers, first


@pytest.mark.parametrize("case", CASES)
@given(steps=some_steps, seed=st.integers(0, 1 << 30))
def test_every_node_comes_to_the_same(case: str, steps: list[Step], seed: int) -> None:
    """In whatever batches it has the records, and as a server alone would key by key."""
    whole, alone, node = make(case), Model(case), Node(case, seed)
    shelf = shelf_of(case, whole)
    for op, keys in steps:
        data = shelf.hashes(b"one", [key(n) for n in keys])
        told = shelf.apply(b"one", op, data)
        assert len(told[0]) == len(keys)
        assert told == alone.do(op, keys)
        assert told == node.do(op, data)
    assert whole.to_bytes() == alone.filter.to_bytes()
    if whole.kind != "bank":  # which keeps how often it was opened when a key came
        assert whole.to_bytes() == node.filter.to_bytes()
    assert items(shelf) == items(alone.shelf) == items(node.shelf)
    assert shelf.take_log() == []


def test_cases_refuse() -> None:
    """Else the test above would not see what it is for."""
    for case in CASES:
        shelf = shelf_of(case, make(case))
        data = shelf.hashes(b"one", [key(n) for n in range(2000)])
        answers, refusal = shelf.apply(b"one", Op.ADD, data)
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
        assert shelf.apply(b"one", op, data) == (bytes(expected), refusal)
    assert shelf.figures(b"one") == (count, taken, 0, 0)


def test_a_threshold_that_is_reached_is_told_once() -> None:
    shelf = _native.Shelf()
    shelf.put(b"one", BloomFilter(1000), 5, threshold=3)
    for n, reached in ([0, 1], []), ([2, 3], [5]), ([4, 5], []):
        shelf.apply(b"one", Op.ADD, shelf.hashes(b"one", n))
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
                shelf.apply(b"one", op, data)
    finally:
        _native.set_memory_limit()
    assert 100 < items(shelf) < 10_000
    before = items(shelf)
    answers, refusal = shelf.apply(b"one", op, data)
    assert (before + answers.count(1), refusal) == (items(shelf), None)
    assert REFUSED not in answers


def test_bytes_that_are_no_hashes_are_refused() -> None:
    """As elsewhere, before anything is done."""
    for case in CASES:
        shelf = shelf_of(case, filter := make(case))
        before = filter.to_bytes()
        for nbytes in {1, 7, 9, WIDTH.get(filter.kind, 8) + 4}:
            for ask in (shelf.apply, shelf.unchanged):
                with pytest.raises(errors.InvalidParameter, match="are no hashes"):
                    ask(b"one", Op.ADD, bytes(nbytes))
        if filter.kind in WIDTH:
            with pytest.raises(errors.InvalidParameter, match="16 bytes each"):
                shelf.apply(b"one", Op.ADD, bytes(24))
        assert filter.to_bytes() == before
        assert shelf.apply(b"one", Op.ADD, b"") == (b"", None)


def test_only_hashes_of_filters_that_are_there_are_applied() -> None:
    shelf = _native.Shelf()
    shelf.put(b"coming", BloomFilter(10), 1, loading=True)
    with pytest.raises(KeyError):
        shelf.apply(b"none", Op.ADD, b"")
    with pytest.raises(KeyError):
        shelf.unchanged(b"none", Op.ADD, b"")
    with pytest.raises(errors.InvalidParameter, match="loaded"):
        shelf.apply(b"coming", Op.ADD, bytes(8))
    assert shelf.unchanged(b"coming", Op.ADD, b"") is None
    with pytest.raises(errors.InvalidParameter, match="operation 3"):
        shelf.apply(b"coming", Op.CREATE, b"")


@pytest.mark.parametrize("case", CASES)
def test_what_changes_nothing_is_known_ahead(case: str) -> None:
    """Keys that are there, where that is enough; asking counts as no check."""
    filter = make(case)
    shelf = shelf_of(case, filter)
    some = shelf.hashes(b"one", [key(n) for n in range(10)])
    more = shelf.hashes(b"one", [key(n) for n in range(1000)])
    for op in (Op.ADD, Op.ADD_NEW):
        assert shelf.unchanged(b"one", op, some) is None
    assert REFUSED not in shelf.apply(b"one", Op.ADD, some)[0]
    counts = filter.kind not in ("bloom", "scalable", "redisbloom", "bank")
    before = filter.to_bytes()
    assert shelf.unchanged(b"one", Op.ADD, some) == (None if counts else bytes(10))
    assert shelf.unchanged(b"one", Op.ADD_NEW, some) == bytes(10)
    assert shelf.unchanged(b"one", Op.REMOVE, some) is None
    assert shelf.unchanged(b"one", Op.ADD, more) is None
    assert shelf.unchanged(b"one", Op.ADD_NEW, more) is None
    figures = shelf.figures(b"one")
    assert figures is not None
    assert figures[2:] == (0, 0)
    assert filter.to_bytes() == before
    if not counts:
        assert shelf.apply(b"one", Op.ADD, some) == (bytes(10), None)
    assert shelf.apply(b"one", Op.ADD_NEW, some) == (bytes(10), None)
    assert filter.to_bytes() == before


def test_what_a_successor_has_to_get_is_written() -> None:
    """The filter that a rebuild makes has not got what this one has."""
    shelf = _native.Shelf()
    shelf.put(b"one", filter := BloomFilter(10), 1)
    data = shelf.hashes(b"one", ["a"])
    shelf.apply(b"one", Op.ADD, data)
    assert shelf.unchanged(b"one", Op.ADD, data) == b"\0"
    shelf.put(b"one", filter, 1, followed=True)
    assert shelf.unchanged(b"one", Op.ADD, data) is None


def test_keys_behind_a_refused_copy_are_taken() -> None:
    """A cuckoo filter takes one key so often, and then others still."""
    shelf = _native.Shelf()
    shelf.put(b"one", CuckooFilter(100), 1)
    many = shelf.hashes(b"one", ["a"] * 200 + ["b", "a", "c"])
    answers, refusal = shelf.apply(b"one", Op.ADD, many)
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
