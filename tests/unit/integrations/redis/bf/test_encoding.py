"""Keys as they go to servers with BF.*: distinct ones stay distinct, columns are their rows."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bloomery import _native
from bloomery.errors import InvalidKey, NullKey, UnsupportedBatch, UnsupportedKey
from bloomery.integrations.redis.bf.create import planned_bf
from bloomery.integrations.redis.bf.encoding import ESCAPE, encoded, rows
from conftest import require

PLACES = _native.Places(planned_bf(1000, 0.01, 1).header, 64)
PLAIN = st.one_of(
    st.text(), st.binary(), st.integers(), st.uuids(), st.binary().map(lambda data: ESCAPE + data)
)
KEYS = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


@given(KEYS, KEYS)
@example(5, ESCAPE + _native.canonical(5))
@example(ESCAPE, ESCAPE + _native.canonical(ESCAPE))
@example("a", b"a")
def test_distinct_keys_stay_distinct(one: Any, other: Any) -> None:
    """Two keys are sent as the same bytes exactly if filters take them for one."""
    same = _native.canonical(one) == _native.canonical(other)
    assert (encoded(one) == encoded(other)) == same


@given(st.one_of(st.text(), st.binary().filter(lambda data: not data.startswith(ESCAPE))))
def test_text_and_bytes_go_as_other_clients_send_them(key: str | bytes) -> None:
    """So that one who adds by redis-py and one who asks by bloomery mean the same key."""
    assert encoded(key) == (key.encode() if isinstance(key, str) else key)


def test_batches_are_read_row_by_row() -> None:
    """Whatever a batch is held in, its keys are those that `add` takes one by one."""
    numpy, arrow = require("numpy"), require("pyarrow")
    pandas, polars = require("pandas"), require("polars")
    for batch, right, array in [
        ([1, "a"], [1, "a"], False),
        (iter([1, "a"]), [1, "a"], False),
        ({"a": 1}, ["a"], False),
        (numpy.array([1, 2], dtype="u1"), [1, 2], True),
        (numpy.array([1, 2], dtype=">i4"), [1, 2], True),
        (numpy.array([b"a", b"b"]), [b"a", b"b"], True),
        (numpy.array(["a", 2], dtype=object), ["a", 2], True),
        (arrow.array(["a", "a"]).dictionary_encode(), ["a", "a"], True),
        (arrow.chunked_array([[1], [2]]), [1, 2], True),
        (pandas.Series(["a", "b"]), ["a", "b"], True),
        (pandas.Index([1]), [1], True),
        (polars.Series([1, 2]), [1, 2], True),
        ([], [], False),
    ]:
        found, hashes, masked = rows(PLACES, batch)
        assert list(found) == right
        assert hashes == PLACES.hashes(right)[0]
        assert masked is array


@pytest.mark.parametrize("batch", ["abc", b"abc", 5, None, memoryview(b"abc")])
def test_what_is_no_batch_is_refused(batch: Any) -> None:
    """One key in place of a batch is not taken apart."""
    with pytest.raises(UnsupportedBatch):
        rows(PLACES, batch)


def test_what_cannot_be_a_key_is_refused_before_anything_is_sent() -> None:
    """As a local filter refuses it."""
    arrow = require("pyarrow")
    cases: list[tuple[Any, type[Exception]]] = [([1.5], UnsupportedKey), (["\ud800"], InvalidKey)]
    for batch, error in cases:
        with pytest.raises(error):
            rows(PLACES, batch)
    with pytest.raises(NullKey, match="row 1"):
        rows(PLACES, arrow.array([1, None]))


def test_a_table_is_refused() -> None:
    """Keys are sent only if they are those of the column: here rows would be dictionaries, and the
    reader is at its end."""
    table = require("pyarrow").table({"a": [1, 2]})
    for batch in (table, table.to_reader(), require("polars").DataFrame({"a": [1, 2]})):
        with pytest.raises(UnsupportedBatch, match="pass a list"):
            rows(PLACES, batch)
    assert rows(PLACES, table["a"])[0] == [1, 2]
