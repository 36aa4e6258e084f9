"""Keys out of an Arrow IPC stream that nobody vouches for, message by message as it comes.

    bytes ──Messages──> one whole message ──Column──> a column of keys, validated, in slices

A message's lengths are read here and held against the limit before pyarrow sees it, so that nothing
is allocated because a header says so. Compressed batches, dictionaries and nested columns are
refused: what they unfold to is not bounded by what was sent. So are views, past a limit, that all
show the same bytes, and keys that have no byte at all, of which a header can claim any number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from bloomery import _native, errors, extras
from bloomery.service.http.limits import MAX_ARROW_METADATA

# Rows, and bytes of them, that are added in one go: 1 to 5 ms for which all others wait, and 20 ms
# where each becomes a Python object (banks, RedisBloom's filters).
_SLICE = 1 << 14
_SLICE_BYTES = 2 << 20
_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")
_SCHEMA, _RECORD_BATCH = 1, 3
_ANSWER_ROWS = 1 << 20


def load_pyarrow() -> Any:
    """Return pyarrow with what is needed of it; MissingExtra if it is not installed."""
    with extras.needed("pyarrow", "this server takes application/x-ndjson and JSON; Arrow"):
        import pyarrow
        import pyarrow.ipc
    return pyarrow


def _refuse(what: str) -> errors.UnsupportedBatch:
    return errors.UnsupportedBatch(f"this is no Arrow IPC stream that can be read: {what}")


class Messages:
    """Cuts a stream into messages of at most so many bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()
        self._needed = _PREFIX.size
        self._kind = 0
        self._ended = False

    @property
    def pending(self) -> int:
        """Bytes of a message that is not yet whole."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take received bytes; return the complete messages: the type and bytes of each."""
        if self._ended and data:
            raise _refuse("bytes follow its end")
        self._buffer += data
        while len(self._buffer) >= self._needed:
            if self._needed == _PREFIX.size:
                if not self._begin():
                    return
            elif self._kind == 0:
                self._needed += self._body()
            else:
                message = bytes(memoryview(self._buffer)[: self._needed])
                del self._buffer[: self._needed]
                kind, self._kind, self._needed = self._kind, 0, _PREFIX.size
                yield kind, message

    def end(self) -> None:
        """Raise unless the stream may end here."""
        if self._buffer:
            raise _refuse("it was cut off")

    def _begin(self) -> bool:
        """Read how long a message's metadata is; False at the end of the stream."""
        mark, length = _PREFIX.unpack_from(self._buffer)
        if self._buffer.startswith(b"ARROW1"):
            raise _refuse("it is an Arrow file; write a stream (pyarrow.ipc.new_stream)")
        if mark != _CONTINUATION:
            raise _refuse("a message does not begin with ffffffff")
        if length == 0:
            self._ended = True
            del self._buffer[: _PREFIX.size]
            if self._buffer:
                raise _refuse("bytes follow its end")
            return False
        if length % 8 or not 16 <= length <= MAX_ARROW_METADATA:
            raise _refuse(f"metadata of {length} bytes")
        self._needed += length
        return True

    def _body(self) -> int:
        """Read a message's metadata: what it is; how long its body is."""
        try:
            metadata = memoryview(self._buffer)[_PREFIX.size :]
            try:
                kind, length, compressed = _read_metadata(metadata)
            finally:
                metadata.release()
        except (struct.error, IndexError):
            raise _refuse("a message's metadata is damaged") from None
        if kind not in (_SCHEMA, _RECORD_BATCH):
            raise _refuse("dictionaries are not taken: send the column decoded")
        if compressed:
            raise _refuse("compressed batches are not taken: send them as they are")
        if length < 0:
            raise _refuse("a message's metadata is damaged")
        if self._needed + length > self._most:
            raise errors.RequestTooLarge(
                f"a message of an Arrow stream has {length} bytes, must have at most "
                f"{self._most}: send smaller batches"
            )
        self._kind = kind
        return length


def _read_metadata(metadata: memoryview) -> tuple[int, int, bool]:
    """Read a message's flatbuffer: its type, its body's length, whether that is compressed."""
    message = struct.unpack_from("<I", metadata)[0]
    kind_at = _field(metadata, message, 1)
    header_at = _field(metadata, message, 2)
    length_at = _field(metadata, message, 3)
    if not kind_at or not header_at:
        raise IndexError
    kind = metadata[kind_at]
    length = struct.unpack_from("<q", metadata, length_at)[0] if length_at else 0
    header = header_at + struct.unpack_from("<I", metadata, header_at)[0]
    compressed = kind == _RECORD_BATCH and _field(metadata, header, 3) != 0
    return kind, length, compressed


def _field(metadata: memoryview, table: int, number: int) -> int:
    """Where a table of a flatbuffer has its field of this number; 0 if it has none."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if not 0 <= vtable <= len(metadata):
        raise IndexError
    size = struct.unpack_from("<H", metadata, vtable)[0]
    place = 4 + 2 * number
    if place + 2 > size:
        return 0
    offset = struct.unpack_from("<H", metadata, vtable + place)[0]
    return table + offset if offset else 0


class Column:
    """The column of a stream that holds the keys."""

    def __init__(self, name: str | None, most: int) -> None:
        """`most`: bytes that the keys of a message may have together."""
        self._arrow = load_pyarrow()
        self._most = most
        self._wanted = name
        self._schema: Any = None
        self._index = 0
        self._rows = 0

    def take(self, kind: int, message: bytes) -> Iterator[Any]:
        """Take a message; the keys in it, in slices, each checked when its turn comes."""
        # What pyarrow raises at hostile bytes is of no single class.
        failures = (self._arrow.ArrowException, OSError, MemoryError, ValueError)
        try:
            if kind == _SCHEMA:
                self._set_schema(message)
                return
            if self._schema is None:
                raise _refuse("it has no schema")
            column, view_bytes = self._column(message), 0
            views = str(column.type).endswith("_view")
            fit = _SLICE_BYTES * len(column) // max(column.nbytes, 1)
            rows_at_once = max(1, min(_SLICE, fit))
            for start in range(0, len(column), rows_at_once):
                part = column.slice(start, rows_at_once)
                view_bytes += _view_bytes(part) if views else 0
                if view_bytes > self._most:
                    raise errors.RequestTooLarge(
                        f"the keys of a message of an Arrow stream have more than {self._most} "
                        "bytes: send smaller batches"
                    )
                part.validate(full=True)
                if part.null_count:
                    rows = part.is_null().to_pylist()
                    raise errors.NullKey(f"row {self._rows + rows.index(True)} is null")
                self._rows += len(part)
                yield part
        except errors.BloomeryError:
            raise
        except failures as problem:
            raise _refuse(f"{type(problem).__name__} in a message") from None

    def _set_schema(self, message: bytes) -> None:
        if self._schema is not None:
            raise _refuse("it has a second schema")
        schema = self._arrow.ipc.read_schema(self._arrow.py_buffer(message))
        for field in schema:
            if not self._plain(field):
                raise errors.UnsupportedBatch(
                    f"the stream has a column of type {str(field.type)[:60]}: send the column of "
                    "keys alone, decoded"
                )
        self._index = self._find(schema)
        kind = schema.field(self._index).type
        try:
            _native.check_arrow_type(kind)
            known = not self._arrow.types.is_null(kind) and str(kind) != "fixed_size_binary[0]"
        except errors.UnsupportedBatch:
            known = False
        if not known:
            raise errors.UnsupportedBatch(
                f"a column of type {kind} is not a batch of keys: ints, strings, binary and UUIDs "
                "are; cast it to one of these"
            )
        self._schema = schema

    def _find(self, schema: Any) -> int:
        if self._wanted is None:
            if not len(schema):
                raise _refuse("it has no column")
            return 0
        indices: list[int] = schema.get_all_field_indices(self._wanted)
        if len(indices) != 1:
            raise errors.InvalidParameter(
                f"column is {self._wanted[:60]!r}, of which the stream has {len(indices)}: its "
                f"columns are {', '.join(repr(name[:60]) for name in schema.names[:20])}"
            )
        return indices[0]

    def _plain(self, field: Any) -> bool:
        """Whether a column is what it is stored as; a UUID is not, but pyarrow knows it."""
        kind, types = field.type, self._arrow.types
        if (field.metadata or {}).get(b"ARROW:extension:name") is not None:
            return False  # a type that pyarrow does not know
        if isinstance(kind, self._arrow.BaseExtensionType):
            return str(kind.extension_name) == "arrow.uuid"
        wrapped = types.is_dictionary(kind) or types.is_run_end_encoded(kind)
        return not (wrapped or types.is_nested(kind))

    def _column(self, message: bytes) -> Any:
        ipc = self._arrow.ipc
        parsed = ipc.read_message(self._arrow.py_buffer(message))
        batch = ipc.read_record_batch(parsed, self._schema)
        column = batch.column(self._index)
        column.validate()
        return column


def _view_bytes(column: Any) -> int:
    """Bytes that the views of a column show, one after the other; a view's first four are how many
    these are."""
    lengths = memoryview(column.buffers()[1]).cast("i")[4 * column.offset :: 4]
    return sum(map(abs, lengths[: len(column)]))


def answers(results: bytes) -> Iterator[bytes]:
    """A byte an answer as an Arrow IPC stream of one boolean column."""
    arrow = load_pyarrow()
    schema = arrow.schema([("answer", arrow.bool_())])
    yield schema.serialize().to_pybytes()
    for start in range(0, len(results), _ANSWER_ROWS):
        part = arrow.py_buffer(memoryview(results)[start : start + _ANSWER_ROWS])
        column = arrow.Array.from_buffers(arrow.uint8(), part.size, [None, part])
        rows = arrow.record_batch([column.cast(arrow.bool_())], schema=schema)
        yield rows.serialize().to_pybytes()
    yield _PREFIX.pack(_CONTINUATION, 0)
