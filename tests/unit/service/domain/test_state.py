"""What each operation does to a server's filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bloomery import StaticFilter, _native, errors
from bloomery.filters.internals import add_hashes
from bloomery.service.domain import operations
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import LongWork, State
from unit.service.durability.serving import NOW, REMOVING, SETTINGS, hashes, missing, packed

every_kind = pytest.mark.parametrize("kind", SETTINGS)


def create(state: State, kind: str, name: str = "one", **settings: Any) -> Entry:
    chosen = {"kind": kind, **SETTINGS[kind], **settings}
    data = operations.named(name.encode(), operations.fields(settings=chosen))
    entry = state.apply(Op.CREATE, state.next_id, data, NOW)
    assert isinstance(entry, Entry)
    return entry


def do(state: State, op: Op, entry: Entry, body: bytes = b"") -> Any:
    """Apply an operation on a filter, by its number and its name."""
    return state.apply(op, entry.id, operations.named(entry.name, body), NOW)


def text(entry: Entry) -> list[int | str]:
    """Return how a MERGE names one of its sources."""
    return [entry.id, operations.text_of(entry.name)]


@every_kind
def test_adding_counts_what_is_new(kind: str) -> None:
    """A filter of every kind takes hashes, and its entry counts those that were new."""
    state = State()
    entry = create(state, kind)
    keys = hashes(1, 20, kind)
    do(state, Op.ADD, entry, keys)
    assert (entry.items, missing(entry.filter, keys)) == (20, 0)
    do(state, Op.ADD, entry, keys)
    assert entry.items == (40 if kind == "rediscuckoo" else 20)


@every_kind
def test_adding_what_is_new_leaves_the_rest_as_it_is(kind: str) -> None:
    """ADD_NEW takes keys once, also where copies are counted, and those that come twice in it."""
    state = State()
    entry, other = create(state, kind), create(state, kind, "other")
    do(state, Op.ADD, other, hashes(1, 40, kind))
    do(state, Op.ADD_NEW, entry, hashes(1, 20, kind))
    do(state, Op.ADD_NEW, entry, hashes(1, 40, kind) * 2)
    assert entry.items == other.items == 40
    assert entry.filter.to_bytes() == other.filter.to_bytes()


@pytest.mark.parametrize("kind", REMOVING)
def test_removing_undoes_adding(kind: str) -> None:
    """Where keys can be removed, removing one that was added makes it new again."""
    state = State()
    entry = create(state, kind)
    do(state, Op.ADD, entry, packed(1 << 60))
    do(state, Op.REMOVE, entry, packed(1 << 60))
    assert entry.items == 0
    do(state, Op.ADD, entry, packed(1 << 60))
    assert entry.items == 1


def test_a_full_filter_leaves_hashes_out() -> None:
    """Hashes that find no room are left out, and those after them are still taken."""
    state = State()
    entry = create(state, "cuckoo", capacity=20)
    do(state, Op.ADD, entry, hashes(1, 500))
    assert 20 <= entry.items < 500
    assert entry.items == entry.filter.estimated_count


@every_kind
def test_hashes_must_be_whole(kind: str) -> None:
    """Bytes that are no hashes of 8 bytes each are refused, and nothing has changed."""
    state = State()
    entry = create(state, kind)
    with pytest.raises(errors.InvalidParameter, match="9 bytes"):
        do(state, Op.ADD, entry, bytes(9))
    assert entry.items == 0


def test_names_and_numbers_are_given_once() -> None:
    """A name that is taken and a number that was given before are refused."""
    state = State()
    one = create(state, "bloom")
    with pytest.raises(errors.FilterExists, match="'one' already exists"):
        create(state, "bloom")
    do(state, Op.DROP, one)
    assert not state.names
    data = operations.named(b"x", operations.fields(settings=SETTINGS["bloom"]))
    with pytest.raises(operations.DamagedRecord, match="number 1 was used before"):
        state.apply(Op.CREATE, 1, data, NOW)


def test_renaming_replaces() -> None:
    """A filter takes the name of another one, which is then gone."""
    state = State()
    one, other = create(state, "bloom"), create(state, "cuckoo", "other")
    with pytest.raises(errors.FilterExists, match="'other' already exists"):
        do(state, Op.RENAME, one, operations.fields(to="other", replace=False))
    assert state.names == {b"one": one, b"other": other}
    do(state, Op.RENAME, one, operations.fields(to="other", replace=True))
    assert state.names == {b"other": one}
    assert other.id not in state.filters
    do(state, Op.RENAME, one, operations.fields(to="other", replace=False))
    assert state.names == {b"other": one}


@every_kind
def test_a_copy_goes_its_own_way(kind: str) -> None:
    """A copy has what the filter had, and what comes later is in one of them."""
    state = State()
    entry = create(state, kind)
    do(state, Op.ADD, entry, hashes(1, 10, kind))
    fields = operations.fields(source=1, of="one", replace=False)
    copy = state.apply(Op.COPY, 2, operations.named(b"two", fields), NOW)
    assert isinstance(copy, Entry)
    assert copy.filter == entry.filter
    do(state, Op.ADD, copy, hashes(2, 10, kind))
    assert (entry.items, copy.items) == (10, 20)
    with pytest.raises(errors.InvalidParameter, match="onto itself"):
        state.apply(Op.COPY, 3, operations.named(b"one", fields), NOW)
    with pytest.raises(errors.FilterExists):
        state.apply(Op.COPY, 3, operations.named(b"two", fields), NOW)
    again = fields.replace(b"false", b"true")
    replaced = state.apply(Op.COPY, 3, operations.named(b"two", again), NOW)
    assert state.names == {b"one": entry, b"two": replaced}
    assert copy.id not in state.filters


def test_merging_takes_in_all_or_none() -> None:
    """A merge of filters that do not fit changes nothing; one of filters that do adds them all."""
    state = State()
    one, two = create(state, "bloom"), create(state, "bloom", "two")
    three = create(state, "counting", "three")
    do(state, Op.ADD, one, hashes(1, 10))
    do(state, Op.ADD, two, hashes(2, 10))
    before = one.filter.copy()
    with pytest.raises(errors.IncompatibleFilters):
        do(state, Op.MERGE, one, operations.fields(sources=[text(two), text(three)]))
    assert one.filter == before
    do(state, Op.MERGE, one, operations.fields(sources=[text(two)]))
    assert add_hashes(one.filter, hashes(2, 10)) == 0
    assert one.items == 20


@every_kind
def test_clearing_forgets(kind: str) -> None:
    """After a clear every key is new."""
    state = State()
    entry = create(state, kind)
    do(state, Op.ADD, entry, hashes(1, 20, kind))
    do(state, Op.CLEAR, entry)
    assert entry.items == 0
    do(state, Op.ADD, entry, hashes(1, 20, kind))
    assert entry.items == 20


def test_what_expires_is_dropped() -> None:
    """A filter goes when its time has come and not before, and never if that was taken back."""
    dropped: list[Entry] = []
    state = State()
    state.on_drop = dropped.append
    one, two = create(state, "bloom"), create(state, "bloom", "two")
    for entry in (one, two):
        do(state, Op.EXPIRE, entry, operations.fields(at=NOW + 5))
    do(state, Op.EXPIRE, two, operations.fields(at=None))
    state.pass_time(NOW + 4)
    assert dropped == []
    assert state.due(NOW + 5) == [(one, Op.DROP)]
    state.schedule(one)  # as a server does that could not log it
    state.pass_time(NOW + 5)
    assert dropped == [one]
    state.pass_time(NOW + 500)
    assert list(state.filters) == [two.id]


def test_time_turns_generations_over() -> None:
    """A rotating filter forgets by the time of the operations alone, and says when it does."""
    state = State()
    entry = create(state, "rotating", window=30, generations=3)
    do(state, Op.ADD, entry, hashes(1, 10))
    ticks = []
    for second in range(41):
        for due, op in state.due(NOW + second):
            assert (due, op) == (entry, Op.TICK)
            state.apply(op, entry.id, operations.named(entry.name), NOW + second)
            ticks.append(second)
    assert ticks == [10, 20, 30, 40]
    assert entry.filter.estimated_count == 0


def test_rotating_and_compacting() -> None:
    """ROTATE begins a new generation; COMPACT folds a filter that was made too large."""
    state = State()
    entry, large = (
        create(state, "rotating", window=None),
        create(state, "bloom", "b", capacity=10**6),
    )
    do(state, Op.ADD, entry, hashes(1, 5))
    for _ in range(4):
        do(state, Op.ROTATE, entry)
    assert entry.filter.estimated_count == 0
    do(state, Op.ADD, large, hashes(1, 100))
    nbytes = large.filter.nbytes
    do(state, Op.COMPACT, large)
    assert large.filter.nbytes < nbytes // 100
    assert add_hashes(large.filter, hashes(1, 100)) == 0
    with pytest.raises(errors.ReadOnlyFilter, match="only a rotating filter"):
        do(state, Op.ROTATE, large)


def chunk(name: bytes, position: int, part: bytes, **fields: Any) -> bytes:
    """Return the bytes of a CHUNK record."""
    return operations.named(name, operations.chunk(position, part, **fields))


def chunks(saved: bytes, size: int, **fields: Any) -> Iterator[bytes]:
    """Return a saved filter as CHUNK operations on `one`."""
    yield chunk(b"one", 1, saved[:size], **fields)
    for start in range(size, len(saved), size):
        yield chunk(b"one", start + 1, saved[start : start + size])


@pytest.mark.parametrize("size", [128, 131, 200, 4096, 1 << 20])
@pytest.mark.parametrize("kind", [kind for kind in SETTINGS if kind != "bank"])
def test_a_saved_filter_comes_in_chunks(kind: str, size: int) -> None:
    """A filter of every kind, cut anywhere, is the same filter once its last chunk has come."""
    source = State()
    if kind == "static":
        saved = StaticFilter.build(range(100))
    else:
        entry = create(source, kind)
        do(source, Op.ADD, entry, hashes(1, 100, kind))
        saved = entry.filter
    state = State()
    parts = list(chunks(saved.to_bytes(), size, format="bloomery"))
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
    do(source, Op.ADD, entry, hashes(1, 200, kind))
    state = State()
    iterator, data = entry.filter.chunk(0)
    state.apply(Op.CHUNK, 1, chunk(b"one", iterator, data, format=kind), NOW)
    while True:
        iterator, data = entry.filter.chunk(iterator)
        if not iterator:
            break
        state.apply(Op.CHUNK, 1, chunk(b"one", iterator, data), NOW)
    found = state.filters[1]
    assert (found.filter, found.items) == (entry.filter, entry.items)


def test_chunks_out_of_order_are_refused() -> None:
    """A chunk that is not the next one, one too many bytes, and a damaged last one are refused;
    the right one is still taken."""
    source = State()
    saved = create(source, "bloom").filter.to_bytes()
    state = State()
    first, *others, last = chunks(saved, 300, format="bloomery")
    state.apply(Op.CHUNK, 1, first, NOW)
    with pytest.raises(errors.CorruptData, match="expected 300"):
        state.apply(Op.CHUNK, 1, others[1], NOW)
    with pytest.raises(errors.InvalidParameter, match="still being loaded"):
        state.apply(Op.ADD, 1, operations.named(b"one", hashes(1, 1)), NOW)
    for part in others:
        state.apply(Op.CHUNK, 1, part, NOW)
    with pytest.raises(errors.CorruptData, match="are missing"):
        state.apply(Op.CHUNK, 1, last + b"x", NOW)
    with pytest.raises(errors.CorruptData, match="checksum"):
        state.apply(Op.CHUNK, 1, last[:-1] + bytes([last[-1] ^ 1]), NOW)
    state.apply(Op.CHUNK, 1, last, NOW)
    assert state.filters[1].filter.to_bytes() == saved


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (Op.CREATE, b"{}"),
        (Op.CREATE, b"no JSON"),
        (Op.CREATE, b'{"settings": []}'),
        (Op.CREATE, b'{"settings": {"kind": []}}'),
        (Op.CREATE, b'{"settings": {"kind": "bloom"}}'),
        (Op.COPY, b"{}"),
        (Op.COPY, b'{"source": {}, "of": "x", "replace": false}'),
        (Op.COPY, b'{"source": 7, "of": 5, "replace": false}'),
        (Op.COPY, b'{"source": 7, "of": "y", "replace": false}'),
        (Op.MERGE, b'{"sources": 1}'),
        (Op.MERGE, b'{"sources": [[1]]}'),
        (Op.RENAME, b"{}"),
        (Op.CHUNK, b""),
        (Op.CHUNK, b"\x01" + bytes(7) + b"\xff\xff\xff\xff"),
        (Op.CHUNK, operations.chunk(1, b"short", format="bloomery")),
        (Op.CHUNK, operations.chunk(1, b"short", format="nonsense")),
        (Op.CHUNK, operations.chunk(7, b"")),
        (Op.ADD, bytes(8)),
        (99, b""),
    ],
)
def test_nonsense_is_one_clear_error(op: int, body: bytes) -> None:
    """An operation that cannot be done raises a bloomery error and changes nothing."""
    state = State()
    with pytest.raises(errors.BloomeryError):
        state.apply(op, 5, operations.named(b"x", body), NOW)
    assert not state.filters
    assert not state.names
    assert state.next_id == 1


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("data", [b"", b"\x01", b"\x05\x00name", b"\xff\xff"])
def test_truncated_name_is_damage(op: Op, data: bytes) -> None:
    """A record that ends within its name is damaged, whatever its operation is."""
    state = State()
    create(state, "bloom")
    with pytest.raises(operations.DamagedRecord, match="truncated in its name"):
        state.apply(op, 1, data, NOW)
    assert list(state.names) == [b"one"]


def test_unknown_operation_names_the_remedy() -> None:
    """A record of a newer version is told apart from a damaged one."""
    with pytest.raises(operations.UnknownOperation, match="upgrade"):
        State().apply(99, 1, operations.named(b"x"), NOW)


BODIES: dict[Op, bytes] = {
    Op.ADD: packed(1 << 60),
    Op.REMOVE: packed(1 << 60),
    Op.ADD_NEW: packed(1 << 60),
    Op.ADD_IN_PLACE: packed(1 << 60),
    Op.ADD_NEW_IN_PLACE: packed(1 << 60),
    Op.RENAME: operations.fields(to="new", replace=True),
    Op.EXPIRE: operations.fields(at=NOW + 5),
    Op.MERGE: operations.fields(sources=[[2, "two"]]),
    Op.ADJUST: operations.fields(settings={"warn_at": 0.5}),
    Op.SUCCEED: operations.fields(successor=2),
    Op.CHUNK: operations.chunk(200, b"part"),
    Op.FORGET: operations.names([b"key"]),
}
ON_A_FILTER = [op for op in Op if op not in (Op.CREATE, Op.COPY)]


@pytest.mark.parametrize("op", ON_A_FILTER)
@pytest.mark.parametrize("change", ["renamed", "dropped", "replaced"])
def test_record_for_another_filter_is_a_conflict(op: Op, change: str) -> None:
    """The record was decided for a number and a name. If another command renamed, dropped or
    replaced the filter before the log reached the record, nothing is done."""
    state = State()
    one = create(state, "counting")
    create(state, "counting", "two")
    do(state, Op.ADD, one, hashes(1, 10))
    record = operations.named(b"one", BODIES.get(op, b""))
    if change == "renamed":
        do(state, Op.RENAME, one, operations.fields(to="other", replace=False))
    else:
        do(state, Op.DROP, one)
    if change == "replaced":
        create(state, "counting")
    before = {name: entry.filter.to_bytes() for name, entry in state.names.items()}
    with pytest.raises(operations.Conflict, match="another command changed filter 'one' first"):
        state.apply(op, 1, record, NOW)
    assert {name: entry.filter.to_bytes() for name, entry in state.names.items()} == before


@pytest.mark.parametrize("op", [Op.COPY, Op.MERGE])
def test_changed_source_is_a_conflict(op: Op) -> None:
    """A COPY and a MERGE name their sources by number and name too."""
    state = State()
    one, two = create(state, "bloom"), create(state, "bloom", "two")
    do(state, Op.RENAME, two, operations.fields(to="three", replace=False))
    if op == Op.COPY:
        fields = operations.fields(source=2, of="two", replace=False)
        record = 3, operations.named(b"copy", fields)
    else:
        record = one.id, operations.named(b"one", operations.fields(sources=[[2, "two"]]))
    with pytest.raises(operations.Conflict, match="'two'"):
        state.apply(op, *record, NOW)
    assert list(state.names) == [b"one", b"three"]


def test_outcome_of_keys() -> None:
    """Keys return an answer each and the first refusal; other operations return the entry."""
    state = State()
    entry = create(state, "bloom", capacity=20, on_full="reject")
    answers, refusal = do(state, Op.ADD, entry, hashes(1, 30))
    assert (answers.count(1), answers.count(3)) == (20, 10)
    assert refusal is not None
    assert refusal[0] == "filter-full"
    assert do(state, Op.ADD, entry, hashes(1, 5)) == (bytes(5), None)
    assert do(state, Op.CLEAR, entry) is entry
    assert do(state, Op.DROP, entry) is None


LONG: dict[str, tuple[Op, bytes]] = {
    "clear": (Op.CLEAR, b""),
    "merge": (Op.MERGE, operations.fields(sources=[[2, "two"]])),
    "compact": (Op.COMPACT, b""),
}


@pytest.mark.parametrize("operation", LONG)
def test_long_work_is_left_to_the_caller(operation: str) -> None:
    """Before the work that takes long is run, nothing has changed; after it, the rest is done at
    once."""
    op, body = LONG[operation]
    state = State()
    one, two = create(state, "bloom", capacity=5_000_000), create(state, "bloom", "two")
    two.filter = one.filter.copy()
    do(state, Op.ADD, one, hashes(1, 10))
    do(state, Op.ADD, two, hashes(2, 10))
    before = one.filter.to_bytes()
    steps = state.steps(op, one.id, operations.named(b"one", body), NOW)
    work = next(steps)
    assert isinstance(work, LongWork)
    assert work.is_long
    assert one.filter.to_bytes() == before
    with pytest.raises(StopIteration) as ended:
        steps.send(work.run())
    assert ended.value.value is one
    assert one.items == {"clear": 0, "merge": 20, "compact": 10}[operation]


def test_create_in_a_thread_keeps_its_number() -> None:
    """While a thread allocates a large filter, another filter with a later number is created. The
    large one still gets its own number."""
    state = State()
    state.attach(_native.Shelf())
    settings = {"kind": "bloom", "capacity": 5_000_000, "error_rate": 0.01}
    data = operations.named(b"large", operations.fields(settings=settings))
    steps = state.steps(Op.CREATE, 1, data, NOW)
    work = next(steps)
    small = operations.named(
        b"small", operations.fields(settings=SETTINGS["bloom"] | {"kind": "bloom"})
    )
    state.apply(Op.CREATE, 2, small, NOW)
    with pytest.raises(StopIteration) as ended:
        steps.send(work.run())
    assert ended.value.value.id == 1
    assert {entry.id: name for name, entry in state.names.items()} == {1: b"large", 2: b"small"}
    assert state.next_id == 3


@pytest.mark.parametrize("name", [b"", b"\xff\xfe", "ümläut".encode(), b"a\0b", b'"\\'])
def test_any_bytes_are_a_name(name: bytes) -> None:
    """Names are bytes, in the record itself and in JSON."""
    state = State()
    settings = {"kind": "bloom", **SETTINGS["bloom"]}
    data = operations.named(name, operations.fields(settings=settings))
    state.apply(Op.CREATE, 1, data, NOW)
    assert list(state.names) == [name]
    fields = operations.fields(source=1, of=operations.text_of(name), replace=False)
    state.apply(Op.COPY, 2, operations.named(b"copy", fields), NOW)
    to = operations.fields(to=operations.text_of(name), replace=True)
    state.apply(Op.RENAME, 2, operations.named(b"copy", to), NOW)
    assert {key: entry.id for key, entry in state.names.items()} == {name: 2}
