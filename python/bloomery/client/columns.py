"""Batches that are columns: NumPy, Arrow, pandas, Polars and others, as one Arrow column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bloomery._native as _native
from bloomery import errors

_ROWS = 1 << 18  # of one message: 2 MiB of 64-bit ints
_BYTES = 8 << 20  # of a message: a server takes 16 MiB
_END = b"\xff\xff\xff\xff\0\0\0\0"
_TEXTS = {"string", "binary", "fixed_size_binary"}
_VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
ARROW = "application/vnd.apache.arrow.stream"


def load_pyarrow() -> Any:
    """Return pyarrow, or None if it is not installed."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        return None
    return pyarrow


def is_column(keys: Any) -> bool:
    """Whether a batch is an array or a column, and its mask therefore an array."""
    arrow = hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__")
    return arrow or hasattr(keys, "dtype") or _has_buffer(keys)


def _has_buffer(keys: Any) -> bool:
    try:
        memoryview(keys).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


class _StreamCapsule:
    """A stream that was handed over, for pyarrow to take."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self._capsule


class _ArrayCapsules:
    """An array that was handed over, for pyarrow to take."""

    def __init__(self, capsules: Any) -> None:
        self._capsules = capsules

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        return self._capsules


def objects_of(keys: Any) -> Any:
    """A batch as what its keys can be read from one by one."""
    if hasattr(keys, "isna") and hasattr(keys, "dtype"):
        return _native.column_objects(keys.astype(object))  # None where pandas has a null
    return keys.tolist() if hasattr(keys, "tolist") else keys


def column_of(keys: Any, arrow: Any) -> Any:
    """A batch as a chunked array of keys; None if it has to go key by key (objects)."""
    if hasattr(keys, "iloc") and not hasattr(keys, "dtype") and len(keys.columns) == 1:
        keys = keys.iloc[:, 0]  # pandas: what it has as NumPy has it is read so
    numpys = hasattr(keys, "isna") and hasattr(getattr(keys, "dtype", None), "char")
    try:
        handed = None if numpys else _native.checked_arrow(keys)
    except errors.UnsupportedBatch as problem:
        if hasattr(keys, "isna") and problem.__cause__ is not None:
            return None  # pandas: of more than one type, say
        raise
    if isinstance(handed, tuple):
        column = arrow.chunked_array([arrow.array(_ArrayCapsules(handed))])
    elif handed is not None:
        column = arrow.chunked_array(_StreamCapsule(handed))  # a table's rows are structs
    else:
        array = _of_array(keys, arrow)
        if array is None:
            return None
        column = arrow.chunked_array([array])
    return _of_keys(column, arrow)


def _of_array(keys: Any, arrow: Any) -> Any:
    import numpy

    array = numpy.asarray(keys)
    if array.ndim != 1:
        raise errors.UnsupportedBatch(
            f"an array of {array.ndim} dimensions is not a batch of keys: use 1"
        )
    kind = array.dtype.kind
    if kind in "OT":
        return None
    if kind not in "biuSU":
        raise errors.UnsupportedBatch(
            f"an array of dtype {array.dtype} is not a batch of keys: use .astype('int64') or "
            ".astype(str)"
        )
    if kind == "b":
        array = array.astype("int64")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        # Not the array itself: of NumPy's text pyarrow drops all from the first NUL on.
        if kind == "S":
            return arrow.array(array.tolist(), arrow.large_binary())
        if kind == "U":
            return arrow.array(array.tolist(), arrow.large_string())
        return arrow.array(array)
    except UnicodeError:
        raise errors.InvalidKey("a row of the str array is not valid text") from None


def _of_keys(column: Any, arrow: Any) -> Any:
    """The column with its keys as a server takes them; UnsupportedBatch if they are none."""
    types = arrow.types
    kind = column.type
    extension = getattr(kind, "extension_name", "")
    if extension == "arrow.uuid":
        return column
    if extension:  # arrow.json: its text, or no key
        _native.check_arrow_type(kind)
        storage = [chunk.storage for chunk in column.chunks]
        return _of_keys(arrow.chunked_array(storage, kind.storage_type), arrow)
    if types.is_struct(kind):
        if kind.num_fields != 1:
            raise errors.UnsupportedBatch(
                f"a table of {kind.num_fields} columns is not a batch of keys: pick one column"
            )
        # Not `field`, which passes by what is null because the whole row is.
        chunks = [chunk.flatten()[0] for chunk in column.chunks]
        return _of_keys(arrow.chunked_array(chunks, kind.field(0).type), arrow)
    if types.is_dictionary(kind):
        value = _without_views(kind.value_type, arrow)
        chunks = [
            arrow.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(value))
            for chunk in column.chunks
        ]
        decoded = [chunk.dictionary_decode() for chunk in chunks]
        return _of_keys(arrow.chunked_array(decoded, value), arrow)
    if str(kind) in _VIEWS:
        # A slice of views takes the text of all rows with it.
        return column.cast(_without_views(kind, arrow))
    text = str(kind).partition("[")[0].removeprefix("large_")
    if not (types.is_integer(kind) or types.is_null(kind)) and text not in _TEXTS:
        raise errors.UnsupportedBatch(
            f"a column of type {kind} is not a batch of keys: ints, strings and binary are; cast "
            "it to one of these"
        )
    return column


def _without_views(kind: Any, arrow: Any) -> Any:
    name = _VIEWS.get(str(kind))
    return kind if name is None else getattr(arrow, name)()


def of_objects(keys: list[Any], arrow: Any) -> Any:
    """A long list as a column, if all of its keys are of one plain type; else None."""
    kinds = set(map(type, keys))
    wanted = {str: "large_string", bytes: "large_binary", int: "int64"}
    if len(kinds) != 1 or (name := wanted.get(kinds.pop())) is None:
        return None
    try:
        return arrow.chunked_array([arrow.array(keys, getattr(arrow, name)())])
    except (OverflowError, UnicodeError, ValueError):
        return None  # beyond 64 bits, say: such a key goes on its own


def messages(column: Any, arrow: Any) -> Iterator[bytes]:
    """A column as the bytes of an Arrow IPC stream, message by message."""
    schema = arrow.schema([("key", column.type)])
    yield schema.serialize().to_pybytes()
    for chunk in column.chunks:
        for start in range(0, len(chunk), _ROWS):
            for part in _small(chunk.slice(start, _ROWS)):
                yield arrow.record_batch([part], schema=schema).serialize().to_pybytes()
    yield _END


def _small(rows: Any) -> Iterator[Any]:
    """Rows in parts that a server takes as one message each."""
    if rows.nbytes <= _BYTES or len(rows) == 1:
        yield rows
        return
    half = len(rows) // 2
    yield from _small(rows.slice(0, half))
    yield from _small(rows.slice(half))
