"""What each operation does to a server's filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery import StaticFilter, errors
from bloomery.filters.internals import add_hashes
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import Entry, State
from unit.service.durability.serving import NOW, REMOVING, SETTINGS, hashes, missing, packed

every_kind = pytest.mark.parametrize("kind", SETTINGS)


def create(state: State, kind: str, name: str = "one", **settings: Any) -> Entry:
    chosen = {"kind": kind, **SETTINGS[kind], **settings}
    fields = operations.fields(name=name, settings=chosen)
    entry = state.apply(Op.CREATE, state.next_id, fields, NOW)
    assert entry is not None
    return entry


@every_kind
def test_adding_counts_what_is_new(kind: str) -> None:
    """A filter of every kind takes hashes, and its entry counts those that were new."""
    state = State()
    entry = create(state, kind)
    keys = hashes(1, 20, kind)
    state.apply(Op.ADD, entry.id, keys, NOW)
    assert (entry.items, missing(entry.filter, keys)) == (20, 0)
    state.apply(Op.ADD, entry.id, keys, NOW)
    assert entry.items == (40 if kind == "rediscuckoo" else 20)


@every_kind
def test_adding_what_is_new_leaves_the_rest_as_it_is(kind: str) -> None:
    """ADD_NEW takes keys once, also where copies are counted, and those that come twice in it."""
    state = State()
    entry, other = create(state, kind), create(state, kind, "other")
    state.apply(Op.ADD, other.id, hashes(1, 40, kind), NOW)
    state.apply(Op.ADD_NEW, entry.id, hashes(1, 20, kind), NOW)
    state.apply(Op.ADD_NEW, entry.id, hashes(1, 40, kind) * 2, NOW)
    assert entry.items == other.items == 40
    assert entry.filter.to_bytes() == other.filter.to_bytes()


@pytest.mark.parametrize("kind", REMOVING)
def test_removing_undoes_adding(kind: str) -> None:
    """Where keys can be removed, removing one that was added makes it new again."""
    state = State()
    entry = create(state, kind)
    state.apply(Op.ADD, entry.id, packed(1 << 60), NOW)
    state.apply(Op.REMOVE, entry.id, packed(1 << 60), NOW)
    assert entry.items == 0
    state.apply(Op.ADD, entry.id, packed(1 << 60), NOW)
    assert entry.items == 1


def test_a_full_filter_leaves_hashes_out() -> None:
    """Hashes that find no room are left out, and those after them are still taken."""
    state = State()
    entry = create(state, "cuckoo", capacity=20)
    state.apply(Op.ADD, entry.id, hashes(1, 500), NOW)
    assert 20 <= entry.items < 500
    assert entry.items == entry.filter.estimated_count


@every_kind
def test_hashes_must_be_whole(kind: str) -> None:
    """Bytes that are no hashes of 8 bytes each are refused, and nothing has changed."""
    state = State()
    entry = create(state, kind)
    with pytest.raises(errors.InvalidParameter, match="9 bytes"):
        state.apply(Op.ADD, entry.id, bytes(9), NOW)
    assert entry.items == 0


def test_names_and_numbers_are_given_once() -> None:
    """A name that is taken and a number that was given before are refused."""
    state = State()
    create(state, "bloom")
    with pytest.raises(errors.FilterExists, match="named 'one' already"):
        create(state, "bloom")
    state.apply(Op.DROP, 1, b"", NOW)
    assert not state.names
    with pytest.raises(errors.InvalidParameter, match="the next one is 2"):
        state.apply(Op.CREATE, 1, operations.fields(name="x", settings={}), NOW)


def test_renaming_replaces() -> None:
    """A filter takes the name of another one, which is then gone."""
    state = State()
    one, other = create(state, "bloom"), create(state, "cuckoo", "other")
    state.apply(Op.RENAME, one.id, operations.fields(name="other"), NOW)
    assert state.names == {b"other": one}
    assert other.id not in state.filters
    state.apply(Op.RENAME, one.id, operations.fields(name="other"), NOW)
    assert state.names == {b"other": one}


@every_kind
def test_a_copy_goes_its_own_way(kind: str) -> None:
    """A copy has what the filter had, and what comes later is in one of them."""
    state = State()
    entry = create(state, kind)
    state.apply(Op.ADD, entry.id, hashes(1, 10, kind), NOW)
    copy = state.apply(Op.COPY, 2, operations.fields(source=1, name="two"), NOW)
    assert copy is not None
    assert copy.filter == entry.filter
    state.apply(Op.ADD, copy.id, hashes(2, 10, kind), NOW)
    assert (entry.items, copy.items) == (10, 20)
    with pytest.raises(errors.InvalidParameter, match="onto itself"):
        state.apply(Op.COPY, 3, operations.fields(source=1, name="one"), NOW)


def test_merging_takes_in_all_or_none() -> None:
    """A merge of filters that do not fit changes nothing; one of filters that do adds them all."""
    state = State()
    one, two = create(state, "bloom"), create(state, "bloom", "two")
    create(state, "counting", "three")
    state.apply(Op.ADD, one.id, hashes(1, 10), NOW)
    state.apply(Op.ADD, two.id, hashes(2, 10), NOW)
    before = one.filter.copy()
    with pytest.raises(errors.IncompatibleFilters):
        state.apply(Op.MERGE, one.id, operations.fields(sources=[2, 3]), NOW)
    assert one.filter == before
    state.apply(Op.MERGE, one.id, operations.fields(sources=[2]), NOW)
    assert add_hashes(one.filter, hashes(2, 10)) == 0
    assert one.items == 20


@every_kind
def test_clearing_forgets(kind: str) -> None:
    """After a clear every key is new."""
    state = State()
    entry = create(state, kind)
    state.apply(Op.ADD, entry.id, hashes(1, 20, kind), NOW)
    state.apply(Op.CLEAR, entry.id, b"", NOW)
    assert entry.items == 0
    state.apply(Op.ADD, entry.id, hashes(1, 20, kind), NOW)
    assert entry.items == 20


def test_what_expires_is_dropped() -> None:
    """A filter goes when its time has come and not before, and never if that was taken back."""
    dropped: list[Entry] = []
    state = State()
    state.on_drop = dropped.append
    one, two = create(state, "bloom"), create(state, "bloom", "two")
    for entry in (one, two):
        state.apply(Op.EXPIRE, entry.id, operations.fields(at=NOW + 5), NOW)
    state.apply(Op.EXPIRE, two.id, operations.fields(at=None), NOW)
    assert state.pass_time(NOW + 4) == []
    assert state.pass_time(NOW + 5) == [(one.id, Op.DROP, b"")]
    assert dropped == [one]
    assert state.pass_time(NOW + 500) == []


def test_time_turns_generations_over() -> None:
    """A rotating filter forgets by the time of the operations alone, and says when it does."""
    state = State()
    entry = create(state, "rotating", window=30, generations=3)
    state.apply(Op.ADD, entry.id, hashes(1, 10), NOW)
    ticks = [bool(state.pass_time(NOW + second)) for second in range(41)]
    assert [second for second, tick in enumerate(ticks) if tick] == [10, 20, 30, 40]
    assert entry.filter.estimated_count == 0


def test_rotating_and_compacting() -> None:
    """ROTATE begins a new generation; COMPACT folds a filter that was made too large."""
    state = State()
    entry, large = (
        create(state, "rotating", window=None),
        create(state, "bloom", "b", capacity=10**6),
    )
    state.apply(Op.ADD, entry.id, hashes(1, 5), NOW)
    for _ in range(4):
        state.apply(Op.ROTATE, entry.id, b"", NOW)
    assert entry.filter.estimated_count == 0
    state.apply(Op.ADD, large.id, hashes(1, 100), NOW)
    nbytes = large.filter.nbytes
    state.apply(Op.COMPACT, large.id, b"", NOW)
    assert large.filter.nbytes < nbytes // 100
    assert add_hashes(large.filter, hashes(1, 100)) == 0
    with pytest.raises(errors.ReadOnlyFilter, match="only a rotating one"):
        state.apply(Op.ROTATE, large.id, b"", NOW)


def chunks(saved: bytes, size: int, **fields: Any) -> Iterator[bytes]:
    """A saved filter as CHUNK operations."""
    yield operations.chunk(1, saved[:size], **fields)
    for start in range(size, len(saved), size):
        yield operations.chunk(start + 1, saved[start : start + size])


@pytest.mark.parametrize("size", [128, 131, 200, 4096, 1 << 20])
@pytest.mark.parametrize("kind", [kind for kind in SETTINGS if kind != "bank"])
def test_a_saved_filter_comes_in_chunks(kind: str, size: int) -> None:
    """A filter of every kind, cut anywhere, is the same filter once its last chunk has come."""
    source = State()
    if kind == "static":
        saved = StaticFilter.build(range(100))
    else:
        entry = create(source, kind)
        source.apply(Op.ADD, entry.id, hashes(1, 100, kind), NOW)
        saved = entry.filter
    state = State()
    parts = list(chunks(saved.to_bytes(), size, name="one", format="bloomery"))
    for part in parts:
        assert not any(entry.filter for entry in state.names.values())
        state.apply(Op.CHUNK, 1, part, NOW)
    entry = state.names[b"one"]
    assert entry.filter == saved
    assert entry.settings["kind"] == kind


@pytest.mark.parametrize("kind", ["redisbloom", "rediscuckoo"])
def test_a_redisbloom_dump_comes_in_chunks(kind: str) -> None:
    """A dump of RedisBloom's, by its own iterators, is the same filter once all of it has come."""
    source = State()
    entry = create(source, kind)
    source.apply(Op.ADD, entry.id, hashes(1, 200, kind), NOW)
    state = State()
    iterator, data = entry.filter.chunk(0)
    state.apply(Op.CHUNK, 1, operations.chunk(iterator, data, name="one", format=kind), NOW)
    while True:
        iterator, data = entry.filter.chunk(iterator)
        if not iterator:
            break
        state.apply(Op.CHUNK, 1, operations.chunk(iterator, data), NOW)
    found = state.filters[1]
    assert (found.filter, found.items) == (entry.filter, entry.items)


def test_chunks_out_of_order_are_refused() -> None:
    """A chunk that is not the next one, one too many bytes, and a damaged last one are refused;
    the right one is still taken."""
    source = State()
    saved = create(source, "bloom").filter.to_bytes()
    state = State()
    first, *others, last = chunks(saved, 300, name="one", format="bloomery")
    state.apply(Op.CHUNK, 1, first, NOW)
    with pytest.raises(errors.CorruptData, match="expected 300"):
        state.apply(Op.CHUNK, 1, others[1], NOW)
    with pytest.raises(errors.InvalidParameter, match="still being loaded"):
        state.apply(Op.ADD, 1, hashes(1, 1), NOW)
    for part in others:
        state.apply(Op.CHUNK, 1, part, NOW)
    with pytest.raises(errors.CorruptData, match="are missing"):
        state.apply(Op.CHUNK, 1, last + b"x", NOW)
    with pytest.raises(errors.CorruptData, match="checksum"):
        state.apply(Op.CHUNK, 1, last[:-1] + bytes([last[-1] ^ 1]), NOW)
    state.apply(Op.CHUNK, 1, last, NOW)
    assert state.filters[1].filter.to_bytes() == saved


@pytest.mark.parametrize(
    ("op", "data"),
    [
        (Op.CREATE, b"{}"),
        (Op.CREATE, b"no JSON"),
        (Op.CREATE, b'{"name": 5, "settings": {}}'),
        (Op.CREATE, b'{"name": "x", "settings": []}'),
        (Op.CREATE, b'{"name": "x", "settings": {"kind": []}}'),
        (Op.CREATE, b'{"name": "x", "settings": {"kind": "bloom"}}'),
        (Op.COPY, b'{"name": "x", "source": {}}'),
        (Op.COPY, b'{"name": "x", "source": 7}'),
        (Op.MERGE, b'{"sources": 1}'),
        (Op.CHUNK, b""),
        (Op.CHUNK, b"\x01" + bytes(7) + b"\xff\xff\xff\xff"),
        (Op.CHUNK, operations.chunk(1, b"short", name="x", format="bloomery")),
        (Op.CHUNK, operations.chunk(1, b"short", name="x", format="nonsense")),
        (Op.CHUNK, operations.chunk(7, b"")),
        (99, b""),
    ],
)
def test_nonsense_is_one_clear_error(op: int, data: bytes) -> None:
    """An operation that cannot be done raises one of our errors and changes nothing."""
    state = State()
    with pytest.raises(errors.BloomeryError):
        state.apply(op, 5, data, NOW)
    assert not state.filters
    assert not state.names
    assert state.next_id == 1


@pytest.mark.parametrize("name", [b"", b"\xff\xfe", "ümläut".encode(), b"a\0b", b'"\\'])
def test_any_bytes_are_a_name(name: bytes, tmp_path: Path) -> None:
    """Names are bytes, and come back from JSON as they were."""
    state = State()
    text = operations.text_of(name)
    state.apply(Op.CREATE, 1, operations.fields(name=text, settings=SETTINGS["bloom"]), NOW)
    assert list(state.names) == [name]
