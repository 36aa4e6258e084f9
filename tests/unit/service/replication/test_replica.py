"""The filters of a node as entries of the shared log are applied to them: what a rebuild, a
rotation and a FORGET do, to the same effect on every node."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from bloomery import BloomFilter, _native, errors
from bloomery.filters.internals import facts
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.durability.no_log import NodeLog
from bloomery.service.engine import Engine
from bloomery.service.replication.replica import FilterReplica

OLD, NEW, COPY = 11, 12, 13


class Copy:
    """A node's filters, without a node."""

    def __init__(self) -> None:
        self.engine = Engine(State(), NodeLog())
        self.engine.state.numbers_are_drawn = True
        self.replica = FilterReplica(self.engine)
        self.ms = 1_000_000

    def do(self, op: Op, number: int, data: bytes = b"", **fields: Any) -> Any:
        """Apply an entry of one operation: its result."""
        payload = _native.pack_records(
            [(number, op, operations.fields(**fields) if fields else data)]
        )
        (result,) = self.replica.apply(payload, self.ms).each
        return result

    def create(self, number: int, name: str, **settings: Any) -> None:
        chosen = {"kind": "bloom", "capacity": 1000, "seed": 7, **settings}
        self.do(Op.CREATE, number, name=name, settings=chosen)

    def add(self, number: int, *keys: str) -> Any:
        return self.do(Op.ADD, number, hashes(*keys))

    def has(self, name: bytes, *keys: str) -> list[bool]:
        return [bool(one) for one in self.engine.shelf.contains(name, list(keys))]


def hashes(*keys: str) -> bytes:
    """Keys as entries have them."""
    shelf = _native.Shelf()
    shelf.put(b"", BloomFilter(1000, seed=7), 1)
    shelf.deferring = True
    shelf.defer(b"", list(keys), Op.ADD)
    ((_, _, data),) = shelf.take_log()
    return bytes(data)


@pytest.fixture
def copy() -> Copy:
    """A filter that is being rebuilt."""
    made = Copy()
    made.create(OLD, "seen", source="table")
    made.add(OLD, "before")
    made.create(NEW, "\0rebuild:1", capacity=5000)
    made.do(Op.EXPIRE, NEW, at=1060.0)
    made.do(Op.ADJUST, OLD, successor=NEW)
    return made


def test_the_successor_gets_what_is_added_and_takes_the_place(copy: Copy) -> None:
    """Also keys that the old one has; by one entry, with the old one's settings and end."""
    assert copy.replica.unchanged(_native.pack_records([(OLD, Op.ADD, hashes("before"))])) is None
    copy.add(OLD, "meanwhile", "before")
    taken = copy.do(Op.SUCCEED, OLD, successor=NEW)
    assert (taken.id, taken.name, taken.expires_at) == (OLD, b"seen", None)
    assert taken.settings["source"] == "table"
    assert taken.settings["capacity"] == taken.filter.capacity == 5000
    assert taken.items == 2
    assert "successor" not in taken.settings
    answers, refused = copy.add(OLD, "on its way when that was done")
    assert (answers, refused) == (b"\x01", None)
    assert copy.has(b"seen", "on its way when that was done") == [True]
    assert copy.has(b"seen", "meanwhile", "before") == [True, True]
    assert [*copy.engine.state.names] == [b"seen"]
    assert isinstance(copy.do(Op.SUCCEED, OLD, successor=NEW), errors.InvalidParameter)
    # What comes late, and was for the new one.
    assert isinstance(copy.do(Op.EXPIRE, NEW, at=1.0), errors.UnknownFilter)
    assert isinstance(copy.do(Op.DROP, NEW), errors.UnknownFilter)


@pytest.mark.parametrize("how", ["clear", "merge", "rotate", "bind", "another", "dropped"])
def test_a_filter_that_is_changed_as_a_whole_has_no_successor(copy: Copy, how: str) -> None:
    """Its place is not taken by what lacks the change."""
    if how == "clear":
        copy.do(Op.CLEAR, OLD)
    elif how == "merge":
        copy.create(COPY, "other")
        copy.do(Op.MERGE, OLD, sources=[COPY])
    elif how == "rotate":
        assert isinstance(copy.do(Op.ROTATE, OLD), errors.ReadOnlyFilter)
        return
    elif how == "bind":
        copy.do(Op.ADJUST, OLD, source="other table")
    elif how == "another":
        copy.create(COPY, "\0rebuild:2")
        copy.do(Op.ADJUST, OLD, successor=COPY)
    else:
        copy.do(Op.DROP, NEW)
        copy.add(OLD, "more")
        assert "successor" not in copy.engine.state.filters[OLD].settings
    refused = copy.do(Op.SUCCEED, OLD, successor=NEW)
    assert isinstance(refused, errors.InvalidParameter)
    assert copy.engine.state.names[b"seen"].id == OLD


def test_what_a_dead_node_built_ends_by_itself(copy: Copy) -> None:
    """By the log's time; the old filter goes on as one that is not rebuilt."""
    copy.replica.pass_time(1_061_000)
    assert [*copy.engine.state.names] == [b"seen"]
    copy.add(OLD, "after")
    assert copy.has(b"seen", "before", "after") == [True, True]
    assert "successor" not in copy.engine.state.filters[OLD].settings


def test_a_copy_is_not_rebuilt_with_its_original(copy: Copy) -> None:
    """What is added to the copy is added to no successor."""
    copy.do(Op.COPY, COPY, source=OLD, name="copied")
    copy.add(COPY, "only in the copy")
    copy.do(Op.SUCCEED, OLD, successor=NEW)
    assert copy.has(b"seen", "only in the copy") == [False]
    assert "successor" not in copy.engine.state.filters[COPY].settings


def test_a_snapshot_is_told_to_caches(copy: Copy) -> None:
    """Who loads one may have missed a FORGET."""
    told: list[int] = []
    copy.engine.on_exchange.subscribe(lambda: told.append(1))
    FilterReplica(copy.engine, [*copy.engine.state.filters.values()], 1000.0).adopt()
    assert told == [1]
    assert [*copy.engine.state.names] == [b"seen", b"\0rebuild:1"]


def test_forget_changes_no_filter(copy: Copy) -> None:
    """It names keys, whatever their bytes; it may be repeated after a loss; one that is cut off is
    refused on all nodes."""
    told: list[tuple[int, list[bytes]]] = []
    copy.engine.on_forget.subscribe(lambda entry, names: told.append((entry.id, names)))
    changes = copy.engine.state.filters[OLD].changes
    names = [b"", b"a", b"\0\xff" * 300]
    data = operations.names(names)
    copy.do(Op.FORGET, OLD, data)
    assert told == [(OLD, names)]
    assert copy.engine.state.filters[OLD].changes == changes
    payload = _native.pack_records([(OLD, Op.FORGET, data)])
    assert copy.replica.additions(payload) == payload
    for wrong in (data[:-1], data[:3], struct.pack("<I", 1 << 31)):
        assert isinstance(copy.do(Op.FORGET, OLD, wrong), errors.CorruptData)
    assert isinstance(copy.do(Op.FORGET, 99, data), errors.UnknownFilter)
    assert len(told) == 1


def test_a_decided_rotation_is_done_once() -> None:
    """The second decision about the same generation is refused; all hear of the first."""
    copy = Copy()
    copy.create(OLD, "seen", kind="rotating", window=1e9, on_full="rotate")
    copy.add(OLD, "a", "b")
    told: list[tuple[int, int, int]] = []
    copy.engine.on_rotated.subscribe(lambda entry, *figures: told.append((entry.id, *figures)))
    began = facts(copy.engine.state.filters[OLD].filter)["generation_started"]
    copy.ms += 5000
    copy.do(Op.ROTATE, OLD, began=began)
    assert isinstance(copy.do(Op.ROTATE, OLD, began=began), errors.InvalidParameter)
    assert told == [(OLD, 2, 0)]
    assert copy.has(b"seen", "a", "b") == [True, True]
