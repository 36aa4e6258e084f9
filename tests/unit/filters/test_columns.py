"""Columns that lie about themselves, and arrays that are not what they seem: refused, not read."""

from __future__ import annotations

import array
import ctypes
import mmap
import multiprocessing
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from bloomery import BloomFilter, CuckooFilter, FilterBank, StaticFilter
from bloomery.errors import InvalidKey, NotEnoughMemory, NullKey, UnsupportedBatch, UnsupportedKey
from conftest import first_fast, require

U = UUID("12345678-1234-5678-1234-567812345678")


def new(*keys: Any) -> BloomFilter:
    """A filter with these keys."""
    made = BloomFilter(1000, 1e-9)
    made.update(list(keys))
    return made


def test_a_uuid_is_one_key_by_every_column() -> None:
    """What was added as a UUID is there for every column of UUIDs, and not for their bytes."""
    pa, pd, pl = require("pyarrow"), require("pandas"), require("polars")
    seen = new(U)
    column = pa.array([U], pa.uuid())
    for batch in (
        column,
        pa.table({"key": column}),
        pa.DictionaryArray.from_arrays(pa.array([0]), column),
        pd.Series([U]),
        pd.DataFrame({"key": [U]}),
        pd.Series([U]).astype("category"),
        pd.Index(pd.arrays.ArrowExtensionArray(pa.chunked_array([column]))),
        pl.Series([U]),
        pl.DataFrame({"key": [U]}),
    ):
        assert list(seen.contains_many(batch)) == [True], type(batch)
        assert new(U) == _with(batch)
    assert not seen.contains_many(pa.array([U.bytes], pa.binary(16)))[0]
    assert not seen.contains_many([str(U)])[0]


def _with(batch: Any) -> BloomFilter:
    made = new()
    made.update(batch)
    return made


def test_duckdb_hands_uuids_over_as_text() -> None:
    """A relation of UUIDs is refused with the way out, which makes it the keys that they are."""
    duckdb = require("duckdb")
    with duckdb.connect() as database:
        relation = database.sql(f"SELECT '{U}'::UUID AS key")
        with pytest.raises(UnsupportedBatch, match=r"UUID.*SET arrow_lossless_conversion = true"):
            new().update(relation)
        database.sql("SET arrow_lossless_conversion = true")
        assert list(new(U).contains_many(relation)) == [True]


def test_other_extension_types_are_refused_by_name() -> None:
    """A type that is stored as ints or bytes is not taken for these."""
    pa, pd = require("pyarrow"), require("pandas")
    for batch, says in (
        (pd.Series(pd.period_range("2026-01", periods=2, freq="M")), "pandas.period"),
        (pd.DataFrame({"key": pd.period_range("2026-01", periods=2)}), "pandas.period"),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())), "arrow.bool8"),
    ):
        with pytest.raises(UnsupportedBatch, match=f'"{says}".*storage'):
            new().update(batch)


def test_pandas_objects_are_what_numpy_objects_are() -> None:
    """What Arrow cannot hold, or holds as another type, is read object by object."""
    pd = require("pandas")
    keys = [1, "a", b"\xff", 2**70, (1, "b"), U, datetime(2026, 1, 31)]
    column = pd.Series(keys, dtype=object)
    assert _with(column) == new(*keys)
    mask = new(*keys).contains_many(pd.DataFrame({"key": column}))
    assert isinstance(mask, np.ndarray)
    assert mask.all()
    with pytest.raises(InvalidKey, match="surrogate"):
        new().update(pd.Series(["\ud800"], dtype=object))
    with pytest.raises(UnsupportedKey, match="float"):
        new().update(pd.Series([1, 1.5], dtype=object))
    mixed = pd.Series([1, "a"], dtype=object).astype("category")
    assert _with(mixed) == new(1, "a")


def test_nulls_of_pandas_objects() -> None:
    """None, NaN, NA and NaT are nulls in a column of objects, as pandas has it."""
    pd = require("pandas")
    column = pd.Series(["a", None, float("nan"), pd.NA, pd.NaT, "b"], dtype=object)
    with pytest.raises(NullKey, match="row 1"):
        new().update(column)
    assert list(new().add_many(column, nulls="skip")) == [True, False, False, False, False, True]


def test_what_another_library_raises_is_told() -> None:
    """The error of a column that cannot hand itself over is one of bloomery's, with its cause."""

    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise RuntimeError("a key of yours")

    with pytest.raises(
        UnsupportedBatch, match=r"Broken.*__arrow_c_stream__ raised RuntimeErr"
    ) as told:
        new().update(Broken())
    assert "yours" not in str(told.value)
    assert isinstance(told.value.__cause__, RuntimeError)

    class NoCapsule:
        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
            return 1, 2

    with pytest.raises(UnsupportedBatch, match="capsule"):
        new().update(NoCapsule())


BYTES: list[Callable[[], Any]] = [
    lambda: mmap.mmap(-1, 10),
    lambda: pickle.PickleBuffer(b"abc"),
    lambda: require("pyarrow").py_buffer(b"abc"),
    lambda: memoryview(b"abc"),
]


@pytest.mark.parametrize("make", BYTES)
def test_bytes_are_one_key(make: Callable[[], Any]) -> None:
    """What holds plain bytes is one key, not a batch of small ints."""
    with pytest.raises(UnsupportedBatch, match=r"one \w+ is not a batch.*bytes\(key\)"):
        new().update(make())


def test_arrays_of_small_ints_are_ints() -> None:
    """NumPy, array and ctypes say that they are arrays of ints, if of one byte each."""
    for batch in (
        np.array([1, 2], "u1"),
        array.array("B", [1, 2]),
        (ctypes.c_ubyte * 2)(1, 2),
        (ctypes.c_byte * 2)(1, 2),
    ):
        assert _with(batch) == new(1, 2), type(batch)


def test_arrays_of_ctypes() -> None:
    """ctypes gives no strides: its arrays lie side by side."""
    shared: Any = multiprocessing.RawArray("q", [1, 2, 3])
    for batch in ((ctypes.c_int64 * 3)(1, 2, 3), (ctypes.c_uint16 * 3)(1, 2, 3), shared):
        assert _with(batch) == new(1, 2, 3)
    for wrong in ((ctypes.c_double * 2)(), (ctypes.c_char * 2)(), ((ctypes.c_int * 2) * 2)()):
        with pytest.raises(UnsupportedBatch):
            new().update(wrong)
    assert list(new().add_many((ctypes.c_int64 * 0)())) == []


@pytest.mark.filterwarnings("ignore:The 'u' type code:DeprecationWarning")
def test_values_that_look_otherwise_than_they_are() -> None:
    """A bool is 0 or 1 whatever its byte; a character of `array` is kept if it is a NUL."""
    assert _with(np.array([2, 0], "u1").view(bool)) == new(1, 0)
    letters = array.array("u", "a\0")
    assert _with(letters) == new("a", "\0")


def test_a_null_in_a_dictionary_is_a_null_of_its_rows() -> None:
    """Rows that lead to a null value are null; values that no row leads to do not matter."""
    pa = require("pyarrow")
    column = pa.DictionaryArray.from_arrays([0, 1, None, 0], ["a", None])
    with pytest.raises(NullKey, match="row 1"):
        new().update(column)
    assert list(new().add_many(column, nulls="skip")) == [True, False, False, False]
    assert _with(column.slice(3)) == new("a")


def test_null_rows_of_a_struct() -> None:
    """A row of a table that is null as a whole has no key, whatever its field holds."""
    pa = require("pyarrow")
    rows = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3])], ["key"], mask=pa.array([False, True, False])
    )
    with pytest.raises(NullKey, match="row 1"):
        new().update(rows)
    seen = new()
    assert list(seen.add_many(rows, nulls="skip")) == [True, False, True]
    assert seen == new(1, 3)


def _views(*views: bytes, buffers: int = 1) -> Any:
    pa = require("pyarrow")
    texts = [pa.py_buffer(b"a text of more than twelve bytes")] * buffers
    data = pa.py_buffer(b"".join(views))
    return pa.Array.from_buffers(pa.string_view(), len(views), [None, data, *texts])


def _strings(*offsets: int) -> Any:
    pa = require("pyarrow")
    packed = pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))
    parts = [None, packed, pa.py_buffer(b"abcdefghi")]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, parts)


def _dictionary(*places: int) -> Any:
    pa = require("pyarrow")
    return pa.DictionaryArray.from_arrays(pa.array(places), pa.array(["a", "b"]), safe=False)


GOOD = struct.pack("<i4sii", 20, b"a te", 0, 0)
SHORT = struct.pack("<i12s", 12, b"twelve bytes")
DAMAGED: dict[str, Callable[[], Any]] = {
    "offsets": lambda: _strings(0, 9, 5),
    "view, offset": lambda: _views(GOOD, struct.pack("<i4sii", 20, b"a te", 0, 1 << 30)),
    "view, length": lambda: _views(GOOD, struct.pack("<i4sii", 1 << 30, b"a te", 0, 0)),
    "view, negative": lambda: _views(GOOD, struct.pack("<i4sii", -20, b"a te", 0, 0)),
    "view, buffer": lambda: _views(GOOD, struct.pack("<i4sii", 20, b"a te", 7, 0)),
    "view, buffer below 0": lambda: _views(GOOD, struct.pack("<i4sii", 20, b"a te", -1, 0)),
    "view, third of two": lambda: _views(GOOD, struct.pack("<i4sii", 20, b"", 2, 0), buffers=2),
    "view, end of the second": lambda: _views(
        GOOD, struct.pack("<i4sii", 20, b"", 1, 13), buffers=2
    ),
    "view, no buffer": lambda: _views(SHORT, GOOD, buffers=0),
    "place": lambda: _dictionary(1, 2),
    "place below 0": lambda: _dictionary(1, -1),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_columns_add_nothing(name: str) -> None:
    """A row that leads nowhere is an error that names it, before the first bit is set."""
    column, seen = DAMAGED[name](), new()
    for way in (seen.update, seen.add_many, seen.contains_many):
        with pytest.raises(UnsupportedBatch, match="damaged: row 1 "):
            way(column)
    assert seen == new()
    assert seen.add("after")


NOWHERE = struct.pack("<i4sii", 20, b"a te", 0, 13)


@pytest.mark.parametrize("kind", ["bloom", "cuckoo"])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("row", [5_000, 8_191, 8_192, 20_001])
def test_a_damaged_view_behind_thousands(row: int, buffers: int, kind: str) -> None:
    """Views are looked at many at a time, questions' as they come: the one that leads nowhere is
    named, and nothing is added."""
    views = [GOOD, SHORT] * 10_002
    views[row] = NOWHERE
    column = _views(*views, buffers=buffers)
    seen = new() if kind == "bloom" else CuckooFilter(100)
    before = seen.to_bytes()
    for way in (seen.update, seen.add_many, seen.contains_many):
        with pytest.raises(UnsupportedBatch, match=f"damaged: row {row} has a view that leads now"):
            way(column)
    with pytest.raises(UnsupportedBatch, match=f"damaged: row {row} "):
        seen.contains_many(column, threads=2)
    assert seen.to_bytes() == before
    assert not any(seen.contains_many(column[:row]))


def test_a_damaged_view_among_nulls_and_chunks() -> None:
    """The row that is named counts nulls and the chunks before; a null's own view is not read."""
    pa = require("pyarrow")
    views = [NOWHERE, GOOD, SHORT] * 10_000
    filled = sum(1 << bit for bit in range(len(views)) if bit % 3)
    bitmap = pa.py_buffer(filled.to_bytes(len(views) // 8, "little"))

    def nullable() -> Any:
        _, data, text = _views(*views).buffers()
        return pa.Array.from_buffers(pa.string_view(), len(views), [bitmap, data, text])

    seen = new("twelve bytes")
    whole = pa.chunked_array([_views(SHORT, GOOD), nullable()])
    answers = [True, False, *[False, False, True] * 10_000]
    assert list(seen.contains_many(whole, nulls="skip")) == answers
    views[29_998] = NOWHERE
    damaged = pa.chunked_array([_views(SHORT, GOOD), nullable()])
    for way in (seen.contains_many, seen.add_many):
        with pytest.raises(UnsupportedBatch, match=r"row 30000 .*the 2 rows of the chunks before"):
            way(damaged, nulls="skip")


@pytest.mark.parametrize("buffers", [1, 2])
def test_views_of_all_lengths(buffers: int) -> None:
    """Texts on both sides of what a view holds itself, from one buffer or several, are the keys."""
    pa = require("pyarrow")
    keys = ["", "a", "elevenbytes", "twelve bytes", "thirteen byte", "a longer text " * 9] * 700
    views = pa.chunked_array([keys[:2000], keys[2000:]], pa.string_view())
    column = views if buffers == 2 else views.combine_chunks()
    seen = new()
    seen.update(column)
    assert seen == new(*keys)
    assert all(new(*keys).contains_many(column))
    assert list(new("thirteen byte").contains_many(column)) == [k == "thirteen byte" for k in keys]


def test_a_damaged_chunk_says_how_far_it_came() -> None:
    """The chunks before a damaged one are in, and the error says how many rows that were."""
    pa = require("pyarrow")
    column = pa.chunked_array([pa.array(["a", "b"]), _strings(0, 9, 5)])
    seen = new()
    with pytest.raises(
        UnsupportedBatch, match=r"row 3 .*the 2 rows of the chunks before were taken"
    ):
        seen.update(column)
    assert seen == new("a", "b")


HUGE = [
    ("np.broadcast_to(np.int64(1), (1 << 46,))", "contains_many(b)"),
    ("np.broadcast_to(np.int64(1), (1 << 46,))", "add_many(b, threads=2)"),
    ("np.broadcast_to(np.array(['a']), (1 << 46,))", "contains_many(b)"),
    ("pa.Array.from_buffers(pa.null(), 1 << 44, [None])", "add_many(b, nulls='skip')"),
    ("pa.Array.from_buffers(pa.binary(0), 1 << 44, [None, pa.py_buffer(b'')])", "contains_many(b)"),
]


@pytest.mark.parametrize(("batch", "way"), first_fast(HUGE))
def test_rows_without_end_are_not_enough_memory(batch: str, way: str) -> None:
    """Memory by a length that is only claimed is asked for, and its lack is an error."""
    require("pyarrow")
    script = f"""
import resource
import numpy as np, pyarrow as pa
from bloomery import BloomFilter
from bloomery.errors import NotEnoughMemory
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
f, b = BloomFilter(10), {batch}
try:
    f.{way}
except NotEnoughMemory as told:
    print(told, f.fill_ratio)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "rows could not be had: pass smaller batches 0.0" in run.stdout, (
        run.returncode,
        run.stderr,
    )


def test_rows_without_end_elsewhere() -> None:
    """Filters that need all hashes first ask for memory as well."""
    endless = np.broadcast_to(np.int64(1), (1 << 50,))
    with pytest.raises(NotEnoughMemory):
        StaticFilter.build(endless)
    with pytest.raises(NotEnoughMemory):
        FilterBank().add_many("me", endless)


def test_a_dictionary_costs_no_more_than_its_rows() -> None:
    """Values of no width can be claimed in any number: only those that rows lead to are hashed."""
    pa = require("pyarrow")
    values = pa.Array.from_buffers(pa.binary(0), 1 << 40, [None, pa.py_buffer(b"")])
    column = pa.DictionaryArray.from_arrays(pa.array([0, (1 << 40) - 1]), values, safe=False)
    assert _with(column) == new(b"")


@pytest.mark.slow
def test_ctrl_c_ends_a_batch_without_end() -> None:
    """Between some rows and the next, a batch looks for Ctrl-C, and lets others run."""
    script = """
import threading, time
import numpy as np
from bloomery import BloomFilter
def tell():
    for _ in range(3):
        print("running", flush=True)
        time.sleep(0.01)
threading.Thread(target=tell, daemon=True).start()
BloomFilter(10).update(np.broadcast_to(np.int64(1), (1 << 46,)))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        try:
            for _ in range(3):
                assert child.stdout.readline() == "running\n"
            child.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in child.communicate(timeout=120)[1]
        finally:
            child.kill()
