"""ExactSet: built of two sides at once, it is right about each key of both and changes no more."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bloomery
from bloomery import ExactSet, StaticFilter
from bloomery.errors import (
    ConflictingKeys,
    IncompatibleFilters,
    InvalidParameter,
    NotEnoughMemory,
    ReadOnlyFilter,
)
from bloomery.storage import memory
from unit.filters.colliding import int_of
from unit.kills import die, killed

COUNTS = [0, 1, 2, 10, 1000, 100_000]
WRONG: list[tuple[str, Any]] = [
    *(("error_rate", v) for v in [0, 1, 0.6, 2**-33, -0.1, math.nan, "x", True, []]),
    *(("hasher", v) for v in ["md5", b"xxh3", None]),
    *(("seed", v) for v in [-1, 2**64, 1.5, "0", None]),
    *(("nulls", v) for v in ["keep", ""]),
]


@pytest.mark.parametrize("members", COUNTS)
@pytest.mark.parametrize("non_members", COUNTS)
def test_both_sides_are_right(members: int, non_members: int) -> None:
    """However many keys there are on either side, none is answered wrong."""
    inside, outside = np.arange(members), -1 - np.arange(non_members)
    exact = ExactSet.build(inside, outside)
    assert np.all(exact.contains_many(inside))
    assert not np.any(exact.contains_many(outside))
    assert (exact.member_count, exact.non_member_count) == (members, non_members)
    assert (exact.estimated_count, exact.capacity) == (members, max(1, members))


def test_a_large_set_takes_a_quarter_more_than_it_must() -> None:
    """50 k members among two million take 1.3 times at most what information takes at least."""
    members, non_members = np.arange(50_000), -1 - np.arange(2 * 10**6)
    exact = ExactSet.build(members, non_members)
    plan = bloomery.sizing.exact_plan(50_000, 2 * 10**6)
    bits = 8 * len(exact.to_bytes())
    assert bits <= 1.3 * plan.least_bits
    assert bits <= 1.3 * plan.cascade_bits
    assert exact.nbytes == pytest.approx(plan.nbytes, rel=0.02)


@pytest.mark.parametrize("error_rate", [0.1, "1%", 1e-6])
def test_other_keys_keep_the_error_rate(error_rate: float | str) -> None:
    """Where a rate is asked for, a key of neither side is a yes no more often."""
    exact = ExactSet.build(range(5000), range(-300, 0), error_rate=error_rate)
    assert exact.estimated_error_rate <= exact.error_rate
    assert not exact.info()["holds_non_members"]
    wrong = np.count_nonzero(exact.contains_many(np.arange(10**6, 2 * 10**6)))
    assert wrong <= 10**6 * exact.error_rate * 1.1 + 5


def test_the_smaller_side_is_held() -> None:
    """Few non-members among many members take no more than the other way round."""
    few, many = np.arange(500), -1 - np.arange(50_000)
    there, turned = ExactSet.build(few, many), ExactSet.build(many, few)
    assert there.nbytes == turned.nbytes
    assert turned.info()["holds_non_members"]
    assert turned.estimated_error_rate == 1 - there.estimated_error_rate
    assert np.all(turned.contains_many(many))
    assert not np.any(turned.contains_many(few))


def test_copies_and_order_do_not_matter() -> None:
    """The same keys make the same bytes, whatever they come as."""
    a, b = [f"a{n}" for n in range(300)], [f"b{n}" for n in range(900)]
    exact = ExactSet.build(a, b)
    assert ExactSet.build(a[::-1] * 3, iter(b * 2)) == exact
    assert ExactSet.build(np.array(a), pa.array(b)) == exact
    assert ExactSet.build(set(a), dict.fromkeys(b)) == exact
    assert ExactSet.build(b, a) != exact


@pytest.mark.parametrize("turn", [list, tuple, set, np.array, pa.array])
def test_a_key_on_both_sides_is_named(turn: Callable[[list[str]], Any]) -> None:
    """One key on both sides is one error with that key in it."""
    with pytest.raises(ConflictingKeys, match=r"^1 key is among .* non-members: 'bob' \(str\)$"):
        ExactSet.build(turn(["ann", "bob"]), turn(["cid", "bob", "dan"]))


def test_many_keys_on_both_sides_are_counted() -> None:
    """Several are counted; of what can be read only once, none is named."""
    with pytest.raises(ConflictingKeys, match=r"^1,000 keys are among .*: \d+, …$"):
        ExactSet.build(range(2000), range(1000, 5000))
    with pytest.raises(ConflictingKeys, match=r"^2 keys are among the members and .* non-members$"):
        ExactSet.build(iter([1, 2, 3]), iter([2, 3, 4]))
    with pytest.raises(ConflictingKeys, match=r"b'x'"):
        ExactSet.build(iter(["x"]), [b"x"])


def test_two_keys_of_one_hash_are_told_from_one_key() -> None:
    """Two keys that happen to have one hash are not called the same key: another seed helps."""
    number = int_of(ExactSet.build([], []).hash_of("revoked"))
    with pytest.raises(ConflictingKeys, match=r"^'revoked' .* same 64-bit hash: .* another seed$"):
        ExactSet.build(["revoked"], [number])
    exact = ExactSet.build(["revoked"], [number], seed=1)
    assert ("revoked" in exact, number in exact) == (True, False)


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: str(v)[:20])
def test_wrong_parameters(name: str, value: Any) -> None:
    """A parameter out of its range is one InvalidParameter that names it."""
    with pytest.raises(InvalidParameter, match=name):
        ExactSet.build([1, 2], [3], **{name: value})


def test_there_is_no_empty_one() -> None:
    """The class itself makes none, and says what does."""
    with pytest.raises(InvalidParameter, match=r"ExactSet\.build\(members, non_members"):
        ExactSet(1000, 0.01)


@pytest.mark.parametrize("keys", [[1.5], [None], "text", b"bytes", 5, np.array([1.5])], ids=repr)
def test_what_is_no_batch_of_keys(keys: Any) -> None:
    """What cannot be keys is refused, on either side."""
    for sides in (([1], keys), (keys, [1])):
        with pytest.raises((TypeError, ValueError)):
            ExactSet.build(*sides)


def test_nulls() -> None:
    """Nulls are refused, or skipped if so wished."""
    a: Any = ["a", None, "b"]
    exact = ExactSet.build(a, pa.array(["c", None]), nulls="skip")
    assert exact == ExactSet.build(["a", "b"], ["c"])


def test_too_many_keys_for_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the memory for the hashes is taken, it is asked whether there is so much."""
    monkeypatch.setattr(memory, "available", lambda: 10**6)
    with pytest.raises(NotEnoughMemory, match="fewer keys"):
        ExactSet.build([1], range(10**8))


def test_it_cannot_be_changed() -> None:
    """What would change it is refused with what to do instead, and leaves it as it was."""
    exact = ExactSet.build(range(100), range(-100, 0))
    before = exact.copy()
    changes: list[Callable[[], object]] = [
        lambda: exact.add(1),
        lambda: exact.add_many([1, 2]),
        lambda: exact.add_many(np.arange(10_000)),
        lambda: exact.update([3]),
        lambda: exact.add_lines(b"a\n"),
        lambda: exact.clear(),
    ]
    for change in changes:
        with pytest.raises(ReadOnlyFilter, match="build a new one"):
            change()
    assert exact == before


def test_two_cannot_be_merged() -> None:
    """Union and intersection are refused with what to do instead."""
    a, b = ExactSet.build([1], [2]), ExactSet.build([3], [4])
    for merge in (a.union, a.intersection, a.__or__, a.__and__, a.__ior__, a.__iand__):
        with pytest.raises(IncompatibleFilters, match="keys of both"):
            merge(b)


def test_it_goes_through_every_door(tmp_path: Path) -> None:
    """Saved, mapped, pickled and copied it gives the same answers."""
    siphash: Any = {"hasher": "siphash", "seed": 2**100}
    path = tmp_path / "revoked.exact"
    for exact in (
        ExactSet.build(range(5000), range(-90_000, 0), **siphash),
        ExactSet.build(range(5000), range(-90, 0), **siphash),
        ExactSet.build(range(50), range(-50, 0), **siphash),
    ):
        exact.save(path)
        asked = np.arange(-90_000, 90_000)
        answers = list(exact.contains_many(asked))
        for other in (
            ExactSet.load(path),
            ExactSet.load(path, mmap=True),
            bloomery.open(path),
            bloomery.open(path, mmap=True, verify=True),
            pickle.loads(pickle.dumps(exact)),
            ExactSet.from_bytes(exact.to_bytes()),
            exact.copy(),
        ):
            assert isinstance(other, ExactSet)
            assert other == exact
            assert list(other.contains_many(asked)) == answers
            assert list(other.contains_many(asked, threads=2)) == answers
            assert other.contains_many(asked[:3000].tolist()) == answers[:3000]
    with pytest.raises(InvalidParameter, match="writable"):
        ExactSet.load(path, mmap=True, writable=True)
    with pytest.raises(IncompatibleFilters, match="this is a ExactSet, not a StaticFilter"):
        StaticFilter.load(path)


def test_a_kill_while_it_is_saved_leaves_the_old_file(tmp_path: Path) -> None:
    """Killed before, while and after the new file is written, the one before it is whole."""
    path = tmp_path / "revoked.exact"
    old = ExactSet.build(["old"], ["new"])
    old.save(path)
    new = ExactSet.build(["new"], [f"old{n}" for n in range(5000)])
    for name in ("open", "fsync", "replace"):

        def save_until_killed(name: str = name) -> None:
            setattr(os, name, lambda *_, **__: die())
            new.save(path)

        killed(save_until_killed)
        assert ExactSet.load(path) == old
    new.save(path)
    assert ExactSet.load(path) == new


def test_whoever_mapped_the_old_file_keeps_it(tmp_path: Path) -> None:
    """A set that is built anew takes the place of the old one; a map of that goes on answering."""
    path = tmp_path / "revoked.exact"
    ExactSet.build(["a"], ["b"]).save(path)
    mapped = ExactSet.load(path, mmap=True)
    ExactSet.build(["b"], ["a"]).save(path)
    assert ("a" in mapped, "b" in mapped) == (True, False)
    assert ("a" in ExactSet.load(path, mmap=True), "b" in ExactSet.load(path)) == (False, True)


def test_repr_and_info() -> None:
    """They show what it was built with and how small it is."""
    exact = ExactSet.build(range(1000), range(-5000, 0), seed=5)
    assert repr(exact).startswith("<ExactSet: 1,000 members, 5,000 non-members, ")
    info = exact.info()
    assert (info["kind"], info["non_members"], info["saturated"]) == ("exact", 5000, False)
    assert "secret" in str(ExactSet.build([1], [2], hasher="siphash", seed=7).info())
