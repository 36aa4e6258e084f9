"""The filters of a node as entries of the shared log are applied to them: what a rebuild, a
rotation and a FORGET do, to the same effect on every node."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from bloomery import BloomFilter, _native, errors
from bloomery.filters.internals import facts
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Conflict, Op, Record
from bloomery.service.domain.state import State
from bloomery.service.durability.no_log import NodeLog
from bloomery.service.engine import Engine
from bloomery.service.replication.replica import FilterReplica

OLD, NEW, COPY = 11, 12, 13


class Copy:
    """A node's filters, without a node."""

    def __init__(self) -> None:
        self.engine = Engine(State(), NodeLog())
        self.engine.batches = cast("Any", DrawnNumbers())  # nothing else of a log is used here
        self.engine.state.numbers_are_drawn = True
        self.replica = FilterReplica(self.engine)
        self.ms = 1_000_000

    def record(self, op: Op, number: int, body: bytes = b"", name: str | None = None) -> Record:
        """A record for a filter: it has the name of the filter, or another one."""
        called = self.engine.state.filters[number].name if name is None else name.encode()
        return number, op, operations.named(called, body)

    def apply(self, *records: Record) -> list[Any]:
        """Apply an entry of the log; return the result of each record."""
        return self.replica.apply(_native.pack_records(list(records)), self.ms).each

    def do(
        self, op: Op, number: int, body: bytes = b"", called: str | None = None, **more: Any
    ) -> Any:
        """Apply an entry of one operation, with these bytes or fields; return its result."""
        body = operations.fields(**more) if more else body
        (result,) = self.apply(self.record(op, number, body, called))
        return result

    def create(self, number: int, name: str, **settings: Any) -> None:
        chosen = {"kind": "bloom", "capacity": 1000, "seed": 7, **settings}
        self.do(Op.CREATE, number, called=name, settings=chosen)

    def add(self, number: int, *keys: str) -> Any:
        return self.do(Op.ADD, number, hashes(*keys))

    def additions(self, *records: Record) -> list[Record]:
        """What of an entry is repeated after a loss."""
        kept = self.replica.additions(_native.pack_records(list(records)))
        return [] if kept is None else _native.unpack_records(kept)

    def has(self, name: bytes, *keys: str) -> list[bool]:
        return [bool(one) for one in self.engine.shelf.contains(name, list(keys))]


class DrawnNumbers:
    """Draws one number, as a node does for a new filter."""

    NUMBER = 77
    exclusive = False

    def draw_number(self) -> int:
        return self.NUMBER


def hashes(*keys: str) -> bytes:
    """Keys as records have them."""
    shelf = _native.Shelf()
    shelf.put(b"", BloomFilter(1000, seed=7), 1)
    shelf.note_keys(b"", list(keys), Op.ADD)
    ((_, _, data),), _ = shelf.take_log()
    return operations.split(data)[1]


@pytest.fixture
def copy() -> Copy:
    """A filter that is being rebuilt."""
    made = Copy()
    made.create(OLD, "seen", source="table")
    made.add(OLD, "before")
    made.create(NEW, "\0rebuild:1", capacity=5000)
    made.do(Op.EXPIRE, NEW, at=1060.0)
    made.do(Op.ADJUST, OLD, settings={"successor": NEW})
    return made


def test_the_successor_gets_what_is_added_and_takes_the_place(copy: Copy) -> None:
    """Also keys that the old one has; by one entry, with the old one's settings and end."""
    assert (
        copy.replica.unchanged(_native.pack_records([copy.record(Op.ADD, OLD, hashes("before"))]))
        is None
    )
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
    assert isinstance(copy.do(Op.EXPIRE, NEW, called="\0rebuild:1", at=1.0), Conflict)
    assert isinstance(copy.do(Op.DROP, NEW, called="\0rebuild:1"), Conflict)


@pytest.mark.parametrize("how", ["clear", "merge", "rotate", "bind", "another", "dropped"])
def test_a_filter_that_is_changed_as_a_whole_has_no_successor(copy: Copy, how: str) -> None:
    """Its place is not taken by what lacks the change."""
    if how == "clear":
        copy.do(Op.CLEAR, OLD)
    elif how == "merge":
        copy.create(COPY, "other")
        copy.do(Op.MERGE, OLD, sources=[[COPY, "other"]])
    elif how == "rotate":
        assert isinstance(copy.do(Op.ROTATE, OLD), errors.ReadOnlyFilter)
        return
    elif how == "bind":
        copy.do(Op.ADJUST, OLD, settings={"source": "other table"})
    elif how == "another":
        copy.create(COPY, "\0rebuild:2")
        copy.do(Op.ADJUST, OLD, settings={"successor": COPY})
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
    copy.do(Op.COPY, COPY, called="copied", source=OLD, of="seen", replace=False)
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
    record = copy.record(Op.FORGET, OLD, data)
    assert copy.additions(record) == [record]
    for wrong in (data[:-1], data[:3], struct.pack("<I", 1 << 31)):
        assert isinstance(copy.do(Op.FORGET, OLD, wrong), errors.CorruptData)
    assert isinstance(copy.do(Op.FORGET, 99, data, called="seen"), Conflict)
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


def test_a_record_for_another_filter_of_the_name_changes_nothing() -> None:
    """Two nodes write at the same time: the log has one first, and the other one's record names a
    filter that has another name by then, or a name that another filter has."""
    copy = Copy()
    copy.create(OLD, "seen")
    late = copy.record(Op.ADD, OLD, hashes("late"))
    copy.do(Op.RENAME, OLD, to="other", replace=False)
    copy.create(NEW, "seen")
    changes = copy.engine.state.filters[NEW].changes
    (added, cleared, created) = copy.apply(
        late,
        copy.record(Op.CLEAR, OLD, name="seen"),
        copy.record(Op.CREATE, COPY, operations.fields(settings={"capacity": 9}), name="seen"),
    )
    assert isinstance(added, Conflict)
    assert isinstance(cleared, Conflict)
    assert isinstance(created, errors.FilterExists)
    assert copy.has(b"seen", "late") == copy.has(b"other", "late") == [False]
    assert copy.engine.state.filters[NEW].changes == changes


def test_keys_of_a_renamed_filter_are_repeated_under_its_name() -> None:
    """A loss undoes a rename: keys that were added by the new name go to the filter's name now."""
    copy = Copy()
    copy.create(OLD, "seen")
    (record,) = copy.additions(copy.record(Op.ADD, OLD, hashes("key"), name="renamed"))
    assert record == copy.record(Op.ADD, OLD, hashes("key"))
    assert copy.apply(record) == [(b"\x01", None)]
    assert copy.has(b"seen", "key") == [True]


def test_a_lost_rename_is_repeated_as_a_copy() -> None:
    """The filter stays under its old name, where keys may have been added since, and keys for the
    new name go to the copy."""
    copy = Copy()
    copy.create(OLD, "seen")
    copy.add(OLD, "before")
    rename = copy.record(Op.RENAME, OLD, operations.fields(to="renamed", replace=True))
    (repeated,) = copy.additions(rename)
    (made,) = copy.apply(repeated)
    assert (made.name, made.id) == (b"renamed", DrawnNumbers.NUMBER)
    (added,) = copy.additions(copy.record(Op.ADD, OLD, hashes("after"), name="renamed"))
    assert copy.apply(added) == [(b"\x01", None)]
    assert copy.has(b"renamed", "before", "after") == [True, True]
    assert copy.has(b"seen", "before", "after") == [True, False]


def test_a_lost_rename_with_other_changes_is_repeated_with_them() -> None:
    """The copy has the settings and the expiry, and the filter of the old name keeps its own."""
    copy = Copy()
    copy.create(OLD, "seen", warn_at=0.25)
    old = copy.engine.state.filters[OLD]
    old.expires_at = 9e9
    fields = operations.fields(to="renamed", replace=True, settings={"warn_at": 0.5}, at=None)
    (repeated,) = copy.additions(copy.record(Op.RENAME, OLD, fields))
    (made,) = copy.apply(repeated)
    assert (made.settings["warn_at"], made.expires_at) == (0.5, None)
    assert (old.settings["warn_at"], old.expires_at) == (0.25, 9e9)


def test_a_repeated_operation_replaces_no_filter() -> None:
    """The name was free when a node looked, and another node created a filter before the log had
    the lost copy or restore again: the keys of that filter stay."""
    copy = Copy()
    copy.create(OLD, "source")
    saved = BloomFilter(1000, seed=7).to_bytes()
    of = operations.fields(source=OLD, of="source", replace=True)
    part = operations.chunk(1, saved, format="bloomery", settings={}, replace=True)
    lost = [
        copy.record(Op.COPY, COPY, of, name="seen"),
        copy.record(Op.CHUNK, COPY, part, name="seen"),
    ]
    repeated = copy.additions(*lost)
    assert len(repeated) == len(lost)
    copy.create(NEW, "seen")
    copy.add(NEW, "key")
    assert [type(result) for result in copy.apply(*repeated)] == [errors.FilterExists] * 2
    assert copy.has(b"seen", "key") == [True]


def test_operations_that_take_something_away_are_not_repeated() -> None:
    """A name that is in use is not created again, and nothing is dropped, cleared or expired."""
    copy = Copy()
    copy.create(OLD, "seen")
    create = copy.record(Op.CREATE, NEW, operations.fields(settings={}), name="seen")
    expire = copy.record(Op.EXPIRE, OLD, operations.fields(at=5.0))
    others = [copy.record(op, OLD) for op in (Op.DROP, Op.CLEAR, Op.ROTATE)]
    removal = copy.record(Op.REMOVE, OLD, hashes("key"))
    assert copy.additions(create, expire, removal, *others) == []
    persist = copy.record(Op.EXPIRE, OLD, operations.fields(at=None))
    assert copy.additions(persist) == [persist]
